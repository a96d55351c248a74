"""Package metadata. The optional stacks are extras, see the table in README.md."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
# Read, not imported: what dysens needs may not be installed yet.
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "dysens/__init__.py").read_text(encoding="utf-8"))

# What PaddleSlim 2.6.0 imports but does not declare.
SLIM_FORGOTTEN = ["six", "requests", "decorator", "setuptools"]

# What the training code of PaddleOCR imports. The code itself, the released weights and albumentations pin old
# packages, so they come with --no-deps from configs/ocr/requirements-nodeps.txt (see `make` targets).
OCR = [
    "numpy<2.3",  # with 2.4 its detection transforms break
    "shapely",
    "pyclipper",
    "rapidfuzz",
    "scikit-image",
    "scikit-learn",
    "scipy",
    "pydantic>=2.7",
    "opencv-python-headless<4.12",
    "lmdb",
    "pillow",
    "requests",
    "onnx",  # reads the released PP-OCRv5 weights
]
# What paddledet imports; it and rapid-layout are installed from configs/det/requirements-nodeps.txt.
DET = [
    "scipy",
    "scikit-learn",
    "pycocotools",
    "terminaltables",
    "typeguard",
    "six",
    "requests",
    "setuptools<81",  # paddledet imports pkg_resources
    "opencv-python-headless<4.12",
    "pillow",
    "onnx",
]

setup(
    name="dysens",
    version=VERSION[1],
    description="Sensitivity analysis and proven structured pruning for live PaddlePaddle models",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["dysens", "dysens.*"]),
    package_data={"dysens": ["py.typed", "report/templates/*", "data/*"]},
    entry_points={"console_scripts": ["dysens = dysens.cli:main"]},
    python_requires=">=3.9",
    install_requires=[
        "numpy",
        "pandas",
        "matplotlib",
        "tqdm",
        "pyyaml",
        "filelock",
        "psutil",
        "cloudpickle",
    ],
    extras_require={
        "cpu": ["paddlepaddle>=3.0"],
        "gpu": ["paddlepaddle-gpu"],
        "slim": ["paddlepaddle==2.6.2", "paddleslim==2.6.0", "numpy<2", *SLIM_FORGOTTEN],
        "ocr": OCR,
        "det": DET,
        "vdl": ["visualdl"],
        "ray": ['ray>=2.40; python_version >= "3.10"'],
        "openvino": ["openvino>=2024.0", "onnx"],
        "onnxruntime": ["onnxruntime", "onnx"],
        "docs": ["mkdocs", "mkdocstrings[python]"],
        "test": [
            "pytest",
            "pytest-timeout",
            "hypothesis",
            "selenium",  # drives the Chromium that the report is tested in
            "ruff",
            "mypy",
            "types-PyYAML",
            "types-tqdm",
            "pandas-stubs",
            "nbclient",
            "ipykernel",
            "setuptools>=70.1,<81",  # builds wheels by itself; paddledet imports pkg_resources
        ],
    },
    keywords="pruning, sensitivity analysis, model compression, PaddlePaddle, PaddleOCR, PaddleDetection",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
