"""What a sweep leaves: the journal on disk, the sensitivities in memory, the ratios chosen from them."""
