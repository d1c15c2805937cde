#!/usr/bin/env python3
"""Whether all sources are formatted as scripts/format formats them, and whether clang-tidy finds nothing in the lines of
the last commit. Skipped (77) without the tool, or without a git repository.

usage: style_test.py format|tidy ROOT
"""
import shutil
import subprocess
import sys

MAX_FILES = 20  # of a commit; clang-tidy takes some seconds for each


def output_of(*command):
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


what, root = sys.argv[1:3]
if shutil.which("git") is None or output_of("git", "rev-parse", "HEAD") is None:
    skip("this is no git repository")
if what == "format":
    # Versions format differently; Debian 12 has this one.
    if "version 14." not in (shutil.which("clang-format") and output_of("clang-format", "--version") or ""):
        skip("no clang-format 14")
    sys.exit(subprocess.run(["scripts/format", "--check"], cwd=root).returncode)
if shutil.which("clang-tidy-diff") is None:
    skip("no clang-tidy")
changed = output_of("git", "diff", "--name-only", "HEAD~1", "--", "*.cpp", "*.hpp")
if changed is None:
    skip("the commit before the last one is not here")
if changed.count("\n") > MAX_FILES:
    skip(f"the last commit changes more than {MAX_FILES} files; run scripts/tidy HEAD~1")
sys.exit(subprocess.run(["scripts/tidy", "HEAD~1"], cwd=root).returncode)
