"""Prints what installed packages need, as lines for pip, without the local parts of versions ("+cpu").

    dependencies.py NAME==VERSION...
"""
import re
import sys
from importlib.metadata import requires

for package in sys.argv[1:]:
    for line in requires(package.split("==")[0]) or []:
        if "extra ==" not in line:
            print(re.sub(r"==([\w.]+)\+\w+", r"==\1", line))
