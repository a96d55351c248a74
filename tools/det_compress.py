#!/usr/bin/env python3
"""Make a PaddleDetection network smaller in one command: calibrate on its own images without labels, cut, train on, export.

    python tools/det_compress.py -c configs/det/picodet_lcnet_layout.yml --flops 50% --train --export --out out

prints the original, the pruned, the trained and the exported network in one table.
"""

from dysens.cli import compress_tool

TOOL = compress_tool("det", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
