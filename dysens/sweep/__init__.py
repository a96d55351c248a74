"""Measuring: how much accuracy each group is worth."""
