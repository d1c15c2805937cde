#!/usr/bin/env python3
"""Runs one test with a real client library.

usage: run_client.py [--requirements NAME] WORK_DIR TEST.py PAGODA MODEL [arguments of the test]

The libraries of requirements.txt are installed from PyPI into WORK_DIR/venv, once for all tests, those of
requirements/NAME.txt into WORK_DIR/NAME; tests that come while one installs wait for it. MODEL is a folder, or a name that
scripts/fetch-model knows. Ends with 77 (skipped) where the libraries or the model cannot be had.
"""
import fcntl
import os
import subprocess
import sys
import venv

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
FETCH_MODEL = os.path.join(HERE, "..", "..", "scripts", "fetch-model")


def install(folder, requirements=REQUIREMENTS):
    """Makes the environment unless it holds what is required already; false when the packages cannot be had."""
    stamp = os.path.join(folder, "requirements.txt")
    with open(requirements) as file:
        required = file.read()
    if os.path.exists(stamp) and open(stamp).read() == required:
        return True
    venv.create(folder, with_pip=True)
    pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
           "--retries", "1", "--timeout", "30", "-r", requirements]
    if subprocess.run(pip).returncode != 0:
        return False
    with open(stamp, "w") as file:
        file.write(required)
    return True


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def fetch(name):
    """The folder of a model of that name."""
    if not os.path.exists(FETCH_MODEL):
        skip("there is no scripts/fetch-model")
    fetched = subprocess.run([FETCH_MODEL, name], stdout=subprocess.PIPE, text=True)
    if fetched.returncode != 0:
        skip(f"scripts/fetch-model {name} failed")
    return fetched.stdout.strip()


def main():
    arguments, name, requirements = sys.argv[1:], "venv", REQUIREMENTS
    if arguments[0] == "--requirements":
        name = arguments[1]
        requirements = os.path.join(HERE, "requirements", name + ".txt")
        del arguments[:2]
    work_dir, test, pagoda, model, *rest = arguments
    os.makedirs(work_dir, exist_ok=True)
    folder = os.path.join(work_dir, name)
    with open(os.path.join(work_dir, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not install(folder, requirements):
            skip(f"the packages of {os.path.relpath(requirements)} cannot be installed from PyPI")
        if os.sep not in model:
            model = fetch(model)
    # A proxy is for the outside: the server under test is on this machine.
    environment = dict(os.environ, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    python = os.path.join(folder, "bin", "python")
    sys.stdout.flush()
    os.execve(python, [python, test, pagoda, model, *rest], environment)


if __name__ == "__main__":
    main()
