"""From loss curves to pruning ratios: by a loss, by a budget; and the files that hold them."""
