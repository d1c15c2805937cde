#!/usr/bin/env python3
"""Servers whose KV cache is small: what a request is answered does not depend on it, nor on what runs beside. Standard
library only.

usage: scarce_memory_test.py PAGODA MODEL_DIR MODELS_DIR [unittest arguments]
"""
import json
import os
import shutil
import sys
import tempfile
import unittest

from server import Server
from worker_load import Connection, run

pagoda = model = models_dir = None


def prompt_of(length, seed):
    return [0] + [300 + (i * 7 + seed) % 90 for i in range(length - 1)]


class Scarce(unittest.TestCase):
    def start(self, *flags, of=None):
        server = Server(pagoda, of or model, "--block-size", "16", *flags, json_lines=True)
        server.__enter__()
        self.addCleanup(server.__exit__)
        connection = Connection((server.host, server.json_lines_port))
        self.addCleanup(connection.close)
        return server, connection

    def answers(self, connection, *bodies):
        """[[(token ids, finish reason) of each sequence] of each request] that come at once."""
        outcomes = run(connection, [{"op": "generate", "ignore_eos": True, "stream": False, **body} for body in bodies])
        self.assertEqual([outcome.error for outcome in outcomes], [None] * len(outcomes))
        return [[(tokens, reason) for tokens, _, reason in outcome.outputs] for outcome in outcomes]


class SlidingWindows(Scarce):
    WINDOW = 64

    def windowed_model(self):
        """Random weights whose layers look back over a window, with the tokenizer of the demo model."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for name in os.listdir(model):
            if not name.endswith(".safetensors"):
                shutil.copy(os.path.join(model, name), folder)
        with open(os.path.join(model, "config.json")) as file:
            vocab_size = json.load(file)["vocab_size"]
        with open(os.path.join(models_dir, "mistral-window-f32", "config.json")) as file:
            config = json.load(file)
        config |= {"sliding_window": self.WINDOW, "max_position_embeddings": 1024, "vocab_size": vocab_size}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        return folder

    def test_a_prompt_longer_than_the_cache_is_answered_whole(self):
        folder = self.windowed_model()
        body = {"prompt_token_ids": prompt_of(400, 0), "max_tokens": 20, "temperature": 0}
        expected = None
        # 8 blocks hold 128 tokens. The default budget of a step is more than that, 32 tokens are less.
        for flags in (("100",), ("8",), ("8", "--max-num-batched-tokens", "32", "--max-num-seqs", "8")):
            _, connection = self.start("--load-format", "dummy", "--num-device-blocks", *flags, of=folder)
            (((tokens, reason),),) = self.answers(connection, body)
            self.assertEqual((len(tokens), reason), (20, "length"), flags)
            expected = expected or tokens
            self.assertEqual(tokens, expected, flags)


class IndependentSequences(Scarce):
    SAMPLED = {"prompt_token_ids": prompt_of(96, 1), "max_tokens": 60, "n": 6, "temperature": 1, "seed": 5}
    GREEDY = {"prompt_token_ids": prompt_of(200, 2), "max_tokens": 150, "temperature": 0}

    def test_those_of_a_request_that_is_preempted_are_what_they_are_alone(self):
        # The cache has room for each request alone, and not for both.
        for more in (("--no-enable-prefix-caching",), (),
                     ("--num-host-blocks", "80", "--preemption-mode", "swap", "--no-enable-prefix-caching")):
            server, connection = self.start("--num-device-blocks", "40", "--max-num-seqs", "16", *more)
            (alone,) = self.answers(connection, self.SAMPLED)
            self.assertEqual([(len(tokens), reason) for tokens, reason in alone], [(60, "length")] * 6, more)
            greedy, sampled = self.answers(connection, self.GREEDY, self.SAMPLED)
            stats = server.stats()
            self.assertGreater(stats["preemptions_recompute_total"] + stats["preemptions_swap_total"], 0, more)
            self.assertEqual(len(greedy[0][0]), 150)
            self.assertEqual(sampled, alone, more)

    def test_those_that_do_not_fit_together_are_what_they_are_with_room(self):
        expected = None
        body = dict(self.SAMPLED, n=16, max_tokens=200)
        for blocks in ("400", "60"):
            server, connection = self.start("--num-device-blocks", blocks, "--max-num-seqs", "16",
                                            "--no-enable-prefix-caching")
            (outputs,) = self.answers(connection, body)
            self.assertEqual([(len(tokens), reason) for tokens, reason in outputs], [(200, "length")] * 16, blocks)
            expected = expected or outputs
            self.assertEqual(outputs, expected, blocks)
        self.assertGreater(server.stats()["preemptions_recompute_total"], 0)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR MODELS_DIR [unittest arguments]")
    pagoda, model, models_dir = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
