#!/usr/bin/env python3
"""Score a PaddleDetection network as ppdet does: from a checkpoint, a pruned checkpoint, or an exported model.

python tools/det_eval.py -c configs/det/picodet_s_shapes.yml -o weights=output/picodet_s_shapes_pruned/model_final
python tools/det_eval.py -c configs/det/picodet_s_shapes.yml --exported output_inference/picodet_s_shapes
"""

from dysens.cli import eval_tool

TOOL = eval_tool("det", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
