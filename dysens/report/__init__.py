"""Results to look at. `dysens.report.plots` draws with matplotlib; nothing else in dysens loads it."""
