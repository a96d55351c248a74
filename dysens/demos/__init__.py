"""The whole story, start to end: on digits, on a PaddleOCR network, on a PaddleDetection network.

    python -m dysens.demos.digits
    python -m dysens.demos.ocr rec
    python -m dysens.demos.det

Nothing is imported here: ``ocr`` and ``det`` need packages that ``digits`` does not.
"""
