#!/usr/bin/env python3
"""Every planted bug of tools/check_mutants fits the code as it is: one that does not tells nothing.

usage: mutants_test.py SOURCE_DIR
"""
import pathlib
import shutil
import subprocess
import sys


def main():
    source = pathlib.Path(sys.argv[1])
    if not shutil.which("patch"):
        print("skipped: there is no `patch` here")
        sys.exit(77)
    patches = sorted((source / "tools" / "mutants").glob("*.patch"))
    misfits = []
    for path in patches:
        command = ["patch", "--dry-run", "--force", "--strip=1", f"--directory={source}", f"--input={path}"]
        if subprocess.run(command, capture_output=True).returncode != 0:
            misfits.append(path.name)
    if misfits or not patches:
        sys.exit(f"these do not fit the code any more: {', '.join(misfits)}" if patches else "there are no mutants")
    print(f"{len(patches)} mutants fit")


main()
