from __future__ import annotations

import subprocess
import sys

# None in sys.modules makes Python's import fail as if there were no such package.
CODE = """
import logging
import sys
from dysens.adapters import det
from dysens.errors import MissingExtraError

sys.modules["ppdet"] = None
try:
    det.load_config(sys.argv[1])
except MissingExtraError as error:
    print(error)
del sys.modules["ppdet"]
det.load_config(sys.argv[1])
print("logs go to stdout:", logging.getLogger("ppdet.engine").handlers[0].stream is sys.stdout)
"""


def test_ppdet_is_missed_with_a_sentence_and_imported_without_noise(config):
    command = [sys.executable, "-c", CODE, str(config("picodet_s_shapes").path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    missing, imported = run.stdout.splitlines()
    assert missing.startswith("PaddleDetection cannot be imported")
    assert 'pip install "dysens[det]" && pip install --no-deps paddledet==2.6.0' in missing
    assert imported == "logs go to stdout: True"
