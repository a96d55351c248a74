"""Small data, and the shipped configs pointed at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dysens.adapters.det import DetTask, load_config
from dysens.data import make_layout_pages, make_shapes

CONFIGS = Path(__file__).parents[3] / "configs" / "det"
ROLES = ("TrainDataset", "EvalDataset", "TestDataset")


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A COCO data set of six scenes with circles, squares and triangles."""
    folder = tmp_path_factory.mktemp("shapes")
    make_shapes(folder, 6, seed=3)
    return folder


@pytest.fixture(scope="session")
def config(shapes):
    """Reads one of configs/det with the paths of `shapes`, without weights, plus overrides."""

    def read(name, *overrides):
        paths = [f"{role}.dataset_dir={shapes}" for role in ROLES]
        return load_config(CONFIGS / f"{name}.yml", ["weights=null", *paths, *overrides])

    return read


@pytest.fixture(scope="session")
def picodet(config):
    return DetTask(config("picodet_s_shapes"))


@pytest.fixture(scope="session")
def layout(tmp_path_factory):
    """The page-layout detector with its released weights, and two pages to score it on."""
    pages = tmp_path_factory.mktemp("pages")
    make_layout_pages(pages, 2, seed=5)
    paths = [f"{role}.dataset_dir={pages}" for role in ROLES]
    return DetTask(load_config(CONFIGS / "picodet_lcnet_layout.yml", paths))
