"""Results to look at: `plots` draws with matplotlib (nothing else in dysens loads it), `html` writes a page."""
