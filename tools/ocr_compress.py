#!/usr/bin/env python3
"""Make a PaddleOCR network smaller in one command: calibrate on its own images without labels, cut, train on, export.

    python tools/ocr_compress.py -c configs/ocr/ch_PP-OCRv3_det.yml --flops 50% --train --export --out out

prints the original, the pruned, the trained and the exported network in one table.
"""

from dysens.cli import compress_tool

TOOL = compress_tool("ocr", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
