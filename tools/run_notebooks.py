#!/usr/bin/env python3
"""Run notebooks for real, from a clean kernel, and keep their outputs, small enough for a repository.

    python tools/run_notebooks.py notebooks/*.ipynb

Files that a notebook writes go to a temporary folder. Pictures lose colours that nobody sees, not pixels.
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

COLOURS = 128
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def smaller(picture: str) -> str:
    """A PNG, in base64, with a palette; the same one if that does not make it smaller."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    written = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    found = base64.b64encode(written.getvalue()).decode()
    return found if len(found) < len(picture) else picture


def run(path: Path, timeout: int) -> None:
    """Execute one notebook and write it back, without what differs from machine to machine."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=timeout, resources=place, record_timing=False).execute()
    notebook.metadata = {**KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = smaller(data["image/png"])
    nbformat.write(notebook, path)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--timeout", type=int, default=900, help="seconds that one cell may take")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    for path in args.notebooks:
        run(path, args.timeout)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
