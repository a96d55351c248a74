#!/usr/bin/env python3
"""Prune a PaddleDetection network: measure sensitivities, choose ratios, prune, and train on with ppdet's own Trainer.

    python tools/det_sensitivity.py -c configs/det/picodet_lcnet_layout.yml --pruned_ratios "0.25 0.5 0.75" --flops 0.3
    python tools/det_sensitivity.py -c configs/det/picodet_lcnet_layout.yml --target_loss 0.02 --flops 0.3

do all four steps. Each also runs alone (--steps) from the files that the one before wrote. The ratios are a slim config of
PaddleDetection.
"""

from dysens.cli import sensitivity_tool

TOOL = sensitivity_tool("det", __file__, __doc__)
parse, main = TOOL.parse, TOOL.main

if __name__ == "__main__":
    main()
