"""The pagoda command and the model that tests are called with, and a call of it. Standard library only."""
import subprocess
import sys

PAGODA, MODEL = sys.argv[1:3]


def run(*args, stdin="", timeout=120):
    """(exit code, stdout, stderr) of one call of the command."""
    done = subprocess.run([PAGODA, *args], input=stdin, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr
