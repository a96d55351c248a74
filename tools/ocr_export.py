#!/usr/bin/env python3
"""Export a PaddleOCR network, pruned or not, as the inference model that PaddleOCR's predictors load.

    python tools/ocr_export.py -c configs/ocr/ch_PP-OCRv3_det.yml -o Global.pretrained_model=output/ch_PP-OCRv3_det/latest

A checkpoint with a .plan.json beside it is one of a pruned network: the config's is cut in the same way first.
"""

from dysens.cli import export_tool

TOOL = export_tool("ocr", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
