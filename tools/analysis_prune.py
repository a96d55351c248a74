#!/usr/bin/env python3
"""Measure how much the convolutions of an exported model are worth, and choose ratios at a loss: PaddleSlim's ACT example.

    python tools/analysis_prune.py --config_path act.yaml --analysis_file sensitivity_0.data \
        --pruned_ratios 0.1 0.2 0.3 0.4 --target_loss 0.2

The config's section Global has model_dir, model_filename, params_filename, and data_dir (images and val_list.txt), batch_size,
img_size, resize_size; or --eval_function names a function of one's own.
"""

from dysens.cli import AnalysisTool

TOOL = AnalysisTool(__file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
