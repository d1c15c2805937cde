#!/usr/bin/env python3
"""Journals that a server is told to recover: which of them it refuses, which it keeps aside, and which have nothing to
recover. Standard library only.

usage: recovery_journals_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import os
import shutil
import subprocess

import recovery_case
from killed_server import SLOWNESS, HttpStream
from recovery_case import PROMPTS, Case


class Locks(Case):
    def refused(self, *more):
        result = subprocess.run([recovery_case.pagoda, "serve", "--model", recovery_case.model, "--listen", "127.0.0.1:0",
                                 *recovery_case.flags, *more], capture_output=True, text=True, timeout=120 * SLOWNESS)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_a_journal_of_a_live_server_is_neither_written_nor_recovered(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        server = self.server(journal=journal)
        stream = HttpStream(server, "/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 100, "ignore_eos": True},
                            "mine")
        in_use = f"{journal} is in use by process {server.process.pid}"
        self.assertIn("journal: " + in_use, self.refused("--journal", journal))
        other = os.path.join(folder, "other")
        for names in (("--journal", journal), ("--journal", other), ()):
            self.assertIn("recover: " + in_use, self.refused("--recover", journal, *names))
        self.assertEqual(sorted(os.listdir(folder)), ["j", "j.lock"])
        self.finish([stream])
        server.kill()
        server.start()
        self.assertIn("recovering 0 live requests and 1 that had just ended", server.said())


class Refusals(Case):
    def command(self, *more):
        return subprocess.run([recovery_case.pagoda, "serve", "--model", recovery_case.model, "--listen", "127.0.0.1:0",
                               *recovery_case.flags, *more], capture_output=True, text=True, timeout=120 * SLOWNESS)

    def test_a_journal_that_is_none_is_refused(self):
        path = os.path.join(self.folder(), "j")
        with open(path, "wb") as file:
            file.write(os.urandom(10000))
        result = self.command("--recover", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not a journal", result.stderr)
        self.assertTrue(os.path.exists(path))

    def test_a_journal_of_another_version_is_kept_and_the_server_starts(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        server = self.server(journal=journal)
        body = {"prompt": PROMPTS[0], "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        stream = HttpStream(server, "/v1/completions", body, "mine")
        self.wait_for(lambda: len(stream.events) > 5, "nothing is streamed")
        server.kill()
        with open(journal, "r+b") as file:  # its format
            file.seek(8)
            file.write((77).to_bytes(4, "little"))
        with open(journal, "rb") as file:
            before = file.read()
        for _ in range(5):
            server.start()
            self.assertEqual(server.request("GET", "/v1/streams/mine")[0], 404)
            server.kill()
        self.assertIn("is a journal of format 77", server.said())
        self.assertIn(f"the file is kept as {journal}.unread", server.said())
        with open(journal + ".unread", "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertFalse(os.path.exists(journal + ".unread.1"))

    def test_a_journal_of_another_model_is_refused_and_stays(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        server = self.server(journal=journal)
        server.kill()
        other = os.path.join(folder, "other")
        shutil.copytree(recovery_case.model, other)
        with open(os.path.join(other, "config.json"), "a") as file:
            file.write("\n")
        result = subprocess.run([recovery_case.pagoda, "serve", "--model", other, "--listen", "127.0.0.1:0",
                                 *recovery_case.flags, "--journal", journal, "--recover", journal], capture_output=True,
                                text=True, timeout=120 * SLOWNESS)
        self.assertEqual(result.returncode, 2)
        self.assertIn("is the journal of another model", result.stderr)
        self.assertFalse(os.path.exists(journal + ".1"))
        server.start()

    def test_a_journal_without_tokens_is_refused(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        result = self.command("--recover", journal, "--no-journal-tokens")
        self.assertEqual(result.returncode, 2)
        self.assertIn("recover needs journal_tokens", result.stderr)
        server = self.server("--journal", journal, "--no-journal-tokens")
        server.kill()
        result = self.command("--recover", journal)
        self.assertEqual(result.returncode, 2)
        self.assertIn("has no prompts and outputs", result.stderr)

    def test_no_journal_and_a_clean_one_have_nothing_to_recover(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        self.assertIn("nothing to recover: there is no", server.said())
        server.end()
        there = self.server("--recover", os.path.join(self.folder(), "no", "folder", "j"))
        self.assertIn("nothing to recover: there is no", there.said())
        there.end()
        server.start()
        self.assertIn("nothing to recover: no resumable request", server.said())


if __name__ == "__main__":
    recovery_case.main()
