"""Which channels of a live model move together: found by running it, not by reading it."""
