#!/usr/bin/env python3
"""Export a PaddleDetection network, pruned or not, as the inference model that PaddleDetection's deployment loads.

    python tools/det_export.py -c configs/det/picodet_s_shapes.yml -o weights=output/picodet_s_shapes_pruned/model_final

A checkpoint with a .plan.json beside it is one of a pruned network: the config's is cut in the same way first.
"""

from dysens.cli import export_tool

TOOL = export_tool("det", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
