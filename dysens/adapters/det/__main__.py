"""Run one of PaddleDetection's own tools with the Pruner of dysens in the place of ppdet's.

python -m dysens.adapters.det tools/train.py -c my.yml --slim_config ratios.yml
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from dysens.errors import DysensError


def main() -> None:
    """Registers the Pruner, then runs the script as Python would."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        raise SystemExit(__doc__)
    script = Path(sys.argv[1])
    if not script.is_file():
        raise SystemExit(
            f"error: There is no script {script}; give the path of PaddleDetection's tools/train.py."
        )
    sys.argv = sys.argv[1:]
    # The Pruner imports ppdet before the script puts its checkout on the path, and it must be the checkout's.
    checkout = script.resolve().parents[1]
    if (checkout / "ppdet").is_dir():
        sys.path.insert(0, str(checkout))
    sys.path.insert(0, str(script.resolve().parent))
    try:
        import dysens.adapters.det.pruner  # noqa: F401

        runpy.run_path(str(script), run_name="__main__")
    except DysensError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
