"""What holds for every test."""

from hypothesis import settings

import dysens  # noqa: F401  first of all: Paddle 2.6 must not bring its zlib before the real one is loaded

# Shared machines are slow at times; no example is wrong for that.
settings.register_profile("dysens", deadline=None, print_blob=True)
settings.load_profile("dysens")
