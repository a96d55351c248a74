#!/usr/bin/env python3
"""Prune a PaddleOCR network: measure sensitivities, choose ratios, prune, and train on with PaddleOCR's own loop.

    python tools/ocr_sensitivity.py -c configs/ocr/ch_PP-OCRv3_det.yml --ratios 0.25 0.5 0.75 --flops 0.3
    python tools/ocr_sensitivity.py -c configs/ocr/ch_PP-OCRv3_det.yml --target_loss 0.03 --flops 0.3

do all four steps. Each also runs alone (--steps) from the files that the one before wrote.
"""

from dysens.cli import sensitivity_tool

TOOL = sensitivity_tool("ocr", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
