#!/usr/bin/env python3
"""Tests of --journal and pagoda replay: journals of commands, of a server that was killed, and of simulations.

usage: replay_test.py PAGODA MODEL_DIR PAGODA_SIMULATE [unittest arguments]
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL, SIMULATE = sys.argv[1:4]
SMALL = ["--model", MODEL, "--threads=1", "--max-num-seqs=16", "--max-num-batched-tokens=64", "--log-level=error"]
# Few blocks, so that groups give way.
RECOMPUTED = [*SMALL, "--num-device-blocks=60", "--num-host-blocks=200", "--block-size=4", "--preemption-mode=recompute"]
CROWDED = [*RECOMPUTED[:-1], "--preemption-mode=swap"]
TEXTS = [f"Once upon a time there were {i} foxes who lived in the wood" for i in range(60)]
PROMPTS = "".join(text + "\n" for text in TEXTS)
BEAMS = "".join(json.dumps({"prompt": text, "use_beam_search": True, "temperature": 0, "n": 2, "best_of": 3, "max_tokens": 150}) + "\n"
                for text in TEXTS)


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "journal")

    def run_pagoda(self, *args, stdin=""):
        return subprocess.run([PAGODA, *args], input=stdin, capture_output=True, text=True, timeout=900)

    def generate(self, *flags, stdin=PROMPTS):
        done = self.run_pagoda("generate", "--prompts=-", "--ignore-eos", "--journal", self.path, *flags, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)

    def replay(self, *flags):
        """The facts of a replay in which nothing differs."""
        done = self.run_pagoda("replay", self.path, "--json", *flags)
        facts = json.loads(done.stdout)
        self.assertEqual(facts["differences"], [])
        self.assertEqual(done.returncode, 0, done.stderr)
        return facts

    def execute(self):
        facts = self.replay("--execute", "--model", MODEL)["execution"]
        self.assertEqual((facts["tokens_different"], facts["differences"]), (0, []))
        self.assertEqual(facts["max_logprob_difference"], 0)
        return facts

    def test_all_effects_and_tokens_are_as_recorded(self):
        self.generate(*CROWDED, "--max-tokens=40")
        facts = self.replay()
        self.assertEqual((facts["segments"], facts["first_step"]), (1, 1))
        for core in ("scheduler", "block manager", "step order", "cache order", "router"):
            self.assertGreater(facts["inputs"][core], 100, core)
        self.assertEqual(facts["inputs"]["output core"], 0)
        self.assertRegex(facts["not_replayed"], r"^\d+ records of the output core: needs --model$")
        self.assertIn("not replayed: ", self.run_pagoda("replay", self.path).stdout)
        facts = self.replay("--model", MODEL)
        self.assertGreater(facts["inputs"]["output core"], 100)
        self.assertEqual(facts["not_replayed"], "")
        facts = self.execute()
        self.assertGreaterEqual(facts["tokens_compared"], 60 * 40)
        self.assertEqual(facts["tokens_computed_before"], 0)

    def test_structured_outputs_are_replayed_and_executed(self):
        constraints = [{"json": {"type": "object", "properties": {"a": {"enum": ["cat", "dog"]}, "b": {"type": "integer"}},
                            "required": ["a"]}}, {"regex": "[a-z]{30,90}"}, {"choice": ["left", "right"]}, None]
        lines = [json.dumps({"prompt": f"Story {i}", "max_tokens": 60, "temperature": 1.3, "seed": i, "n": 1 + i % 3,
                             "structured_outputs": constraints[i % 4]}) for i in range(40)]
        for flags in (CROWDED, RECOMPUTED, [*CROWDED, "--journal-mib=1"], [*CROWDED, "--no-journal-tokens"]):
            with self.subTest(flags=flags):
                done = self.run_pagoda("generate", "--prompts=-", "--journal", self.path, *flags, stdin="\n".join(lines))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.replay()
                if "--no-journal-tokens" not in flags:
                    self.replay("--model", MODEL)
                    self.assertGreater(self.execute()["tokens_compared"], 500)

    def test_a_ring_that_has_lost_its_beginning_is_executed_from_the_middle(self):
        for prompts, flags in ((PROMPTS, CROWDED), (PROMPTS, [*RECOMPUTED, "--pipeline-depth=1"]), (BEAMS, CROWDED),
                               (PROMPTS, [*SMALL, "--n=3", "--best-of=4", "--temperature=0.8", "--presence-penalty=0.7",
                                          "--logprobs=2"])):
            with self.subTest(flags=flags):
                self.generate(*flags, "--max-tokens=150", "--journal-mib=1", stdin=prompts)
                facts = self.replay()
                self.assertEqual(facts["segments"], 4)
                self.assertGreater(facts["first_step"], 1)
                # The cores of each step, of the whole segments behind the first. The last may have just begun.
                self.assertGreaterEqual(facts["states_compared"], 8)
                self.assertGreater(self.replay("--model", MODEL)["states_compared"], facts["states_compared"])
                facts = self.execute()
                self.assertGreater(facts["tokens_computed_before"], 100)
                self.assertGreater(facts["tokens_compared"], 500)

    def test_without_tokens_the_cores_are_replayed_and_no_prompt_is_in_the_file(self):
        secret = "The secret number of the old brown dragon"
        ids = json.loads(self.run_pagoda("tokenize", "--model", MODEL, stdin=secret).stdout)
        varints = b"".join(self.varint(2 * token) for token in ids[1:])
        prompts = PROMPTS + (secret + "\n") * 20
        self.generate(*CROWDED, "--max-tokens=20", stdin=prompts)
        with open(self.path, "rb") as file:
            self.assertIn(varints, file.read())
        self.generate(*CROWDED, "--max-tokens=20", "--no-journal-tokens", stdin=prompts)
        with open(self.path, "rb") as file:
            journal = file.read()
        self.assertNotIn(varints, journal)
        self.assertNotIn(secret.encode(), journal)
        facts = self.replay()
        self.assertGreater(facts["inputs"]["block manager"], 100)
        self.assertEqual((facts["inputs"]["router"], facts["not_replayed"]), (0, ""))
        done = self.run_pagoda("replay", self.path, "--execute", "--model", MODEL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("journal_tokens", done.stderr)

    @staticmethod
    def varint(value):
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    def test_what_a_killed_server_has_recorded_is_there_when_the_next_runs(self):
        server = subprocess.Popen([PAGODA, "serve", *CROWDED, "--listen=127.0.0.1:0", "--journal", self.path],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = int(re.search(r":(\d+)\n", server.stdout.readline()).group(1))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for i in range(20):
                request = {"id": str(i), "prompt": f"There were {i} bears", "max_tokens": 200, "ignore_eos": True}
                connection.sendall((json.dumps(request) + "\n").encode())
            lines = connection.makefile()
            for _ in range(300):
                self.assertEqual(json.loads(lines.readline())["event"], "delta")
            server.send_signal(signal.SIGKILL)
            lines.close()
        server.wait(timeout=60)
        server.stdout.close()
        facts = self.execute()
        self.assertGreaterEqual(facts["tokens_compared"], 300)
        self.generate(*SMALL, "--max-tokens=2", stdin="One\n")
        self.assertLess(self.replay()["steps"], 20)
        self.path += ".1"
        self.assertGreater(self.replay()["steps"], 20)

    def test_a_simulated_seed_is_replayed(self):
        done = subprocess.run([SIMULATE, "17", "1", "1", self.path], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(self.replay()["steps"], 10)

    def test_a_damaged_end_is_left_out_and_a_model_that_is_not_there_is_named(self):
        self.generate(*SMALL, "--max-tokens=5", stdin="One\n")
        other = os.path.join(os.path.dirname(MODEL), "no-such-model")
        done = self.run_pagoda("replay", self.path, "--execute", "--model", other)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no-such-model", done.stderr)
        with open(self.path, "r+b") as file:  # the last record is damaged: all before it is as it was
            content = bytearray(file.read())
            end = max(i for i in range(4096, 200_000) if content[i] != 0)
            content[end] ^= 1
            file.seek(0)
            file.write(content)
        self.assertEqual(self.replay()["damaged_segments"], 1)

    def test_bad_usage_is_named(self):
        for args, name in ((["replay"], "FILE"), (["replay", self.path], self.path),
                           (["replay", __file__], "is not a journal")):
            done = self.run_pagoda(*args)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(name, done.stderr)
            self.assertEqual(done.stdout, "")
        self.generate(*SMALL, "--max-tokens=2", stdin="One\n")
        done = self.run_pagoda("replay", self.path, "--execute")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--model", done.stderr)
        no_folder = os.path.join(self.path, "journal")
        done = self.run_pagoda("generate", *SMALL, "--prompt=a", "--journal", no_folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn(no_folder, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
