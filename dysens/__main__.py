"""``python -m dysens``: the command line."""

from dysens.cli import main

raise SystemExit(main())
