#!/usr/bin/env python3
"""Score a PaddleOCR network as PaddleOCR does: from a checkpoint, a pruned checkpoint, or an exported model.

python tools/ocr_eval.py -c configs/ocr/ch_PP-OCRv3_det.yml -o Global.pretrained_model=output/ch_PP-OCRv3_det/latest
python tools/ocr_eval.py -c configs/ocr/ch_PP-OCRv3_det.yml --exported output/ch_PP-OCRv3_det/inference
"""

from dysens.cli import eval_tool

TOOL = eval_tool("ocr", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
