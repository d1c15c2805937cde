#!/usr/bin/env python3
"""`--packed-cache` and `pagoda cache`: packed weights that one process makes and the next reads.

usage: cache_test.py PAGODA MODEL_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PAGODA = MODEL = None


def run(*arguments, **environment):
    return subprocess.run([PAGODA, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})


class Cache(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = os.path.join(self.folder, "packed")

    def generate(self, *flags, min_mib=0, **environment):
        ended = run("generate", "--model", MODEL, "--quantize", "int8", "--prompt", "Once upon a time", "--max-tokens", "12",
                    "--temperature", "0", "--log-level", "debug", "--packed-cache-min-mib", str(min_mib), *flags, **environment)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended

    def list(self, *flags):
        ended = run("cache", "list", "--packed-cache", self.cache, *flags)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def test_the_next_process_reads_what_the_first_has_made(self):
        first = self.generate("--packed-cache", self.cache)
        self.assertIn("packed weights are kept in " + self.cache, first.stderr)
        entries = [json.loads(line) for line in self.list("--json").splitlines()]
        self.assertEqual([entry["model"] for entry in entries], [MODEL])
        self.assertEqual(os.path.getsize(entries[0]["file"]), entries[0]["bytes"])
        second = self.generate("--packed-cache", self.cache)
        self.assertIn("packed weights were read from " + entries[0]["file"], second.stderr)
        self.assertEqual(second.stdout, first.stdout)
        # A worker process fills the memory that outlives it.
        third = self.generate("--packed-cache", self.cache, "--worker-processes")
        self.assertIn("packed weights were read from " + entries[0]["file"], third.stderr)
        self.assertEqual(third.stdout, first.stdout)
        self.assertIn(MODEL, self.list())
        cleared = run("cache", "clear", "--packed-cache", self.cache, "--json")
        self.assertEqual(json.loads(cleared.stdout), {"freed_bytes": entries[0]["bytes"]})
        self.assertEqual(self.list("--json"), "")

    def test_a_worker_process_keeps_what_it_has_made(self):
        self.generate("--packed-cache", self.cache, "--worker-processes")
        again = self.generate("--packed-cache", self.cache)
        self.assertIn("packed weights were read from ", again.stderr)

    def test_small_models_are_not_kept_unless_that_is_wanted(self):
        folder = os.path.join(self.folder, "pagoda", "packed")
        self.generate(min_mib=64, XDG_CACHE_HOME=self.folder)
        self.assertFalse(os.path.exists(folder), "it is made when something is kept")
        self.generate(XDG_CACHE_HOME=self.folder)
        self.assertEqual(len(os.listdir(folder)), 1)
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        ended = run("cache", "list", XDG_CACHE_HOME=self.folder)
        self.assertIn(os.path.join(self.folder, "pagoda", "packed"), ended.stdout)
        self.assertIn(MODEL, ended.stdout)

    def test_a_folder_that_is_not_there_is_not_made_for_a_list(self):
        self.assertIn(self.cache, self.list())
        self.assertFalse(os.path.exists(self.cache))

    def test_a_folder_that_others_may_write_is_refused(self):
        os.mkdir(self.cache)
        os.chmod(self.cache, 0o777)
        for arguments in (("cache", "list"), ("generate", "--model", MODEL, "--quantize", "int8", "--prompt", "a",
                           "--packed-cache-min-mib", "0")):
            ended = run(*arguments, "--packed-cache", self.cache)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn("no other user may write", ended.stderr)

    def test_a_folder_that_cannot_be_made_does_not_stop_a_start(self):
        for flags in ((), ("--worker-processes",)):
            self.assertIn("packed weights are not kept", self.generate(*flags, XDG_CACHE_HOME="/proc").stderr)

    def test_what_is_wrong_is_named(self):
        self.assertIn("packed_cache", run("generate", "--model", MODEL, "--prompt", "a", "--packed-cache", "").stderr)
        ended = run("cache", "list", HOME="", XDG_CACHE_HOME="")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("HOME", ended.stderr)
        self.assertNotEqual(run("cache").returncode, 0)


if __name__ == "__main__":
    PAGODA, MODEL = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
