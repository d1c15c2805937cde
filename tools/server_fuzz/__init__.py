"""The parts of tools/fuzz_server, which use the helpers of tests/clients."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "clients"))
