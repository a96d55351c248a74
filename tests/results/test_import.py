from .common import run_python


def test_this_room_needs_no_paddle():
    script = """
import importlib, pkgutil, sys
import dysens.results
for module in pkgutil.iter_modules(dysens.results.__path__):
    importlib.import_module("dysens.results." + module.name)
print([name for name in sys.modules if name.split(".")[0] in ("paddle", "paddleslim")])
"""
    assert run_python(script).strip() == "[]"
