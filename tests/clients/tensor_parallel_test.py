#!/usr/bin/env python3
"""Ranks that share each layer (--tensor-parallel-size): the same tokens in one process and in several, while worker
processes are killed; adapters; what is refused. Standard library only.

usage: tensor_parallel_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

from adapters_test import make_adapter
from worker_load import Connection, LoadCase, WorkerServer, lives, mixed_request

NUM_REQUESTS = 160

pagoda = model = adapter = None


def setUpModule():
    global adapter
    kept = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(kept.cleanup)
    adapter = make_adapter(os.path.join(kept.name, "adapter"), 7, base=model)


class TensorParallel(LoadCase):
    def start(self, ranks, *flags):
        server = WorkerServer(pagoda, model, "--threads", "4", "--kv-cache-memory", "0.05", "--enable-lora",
                              "--lora-modules", f"wild={adapter}", "--max-lora-rank", "4",
                              "--tensor-parallel-size", str(ranks), *flags)
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.connection = Connection(server.lines)
        self.addCleanup(self.connection.close)
        return server

    def test_the_tokens_stay_while_ranks_are_killed(self):
        for ranks, flags in ((2, []), (4, ["--data-parallel-size", "1"]), (2, ["--data-parallel-size", "2"])):
            self.start(ranks, "--no-worker-processes")
            expected = self.expect(self.submit(NUM_REQUESTS))
            self.doCleanups()
            server = self.start(ranks, *flags)
            num_devices = ranks * int(dict(zip(flags[::2], flags[1::2])).get("--data-parallel-size", 1))
            self.assertEqual(len(server.workers()), num_devices)
            ended = threading.Event()
            num_killed = 0

            def kill():
                nonlocal num_killed
                while not ended.wait(2):
                    workers = server.workers()
                    if len(workers) == num_devices:
                        os.kill(workers[num_killed % num_devices],
                                signal.SIGSTOP if num_killed == 1 else signal.SIGKILL)
                        num_killed += 1

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                while num_killed < 3:
                    self.expect(self.submit(NUM_REQUESTS), expected)
            finally:
                ended.set()
                killer.join()
            stats = server.wait_for(lambda s: s["health"] == "ok" and len(s["worker_pids"]) == num_devices)
            self.assertEqual(stats["requests_failed_total"], 0)
            self.assertGreaterEqual(stats["worker_restarts_total"], 1)
            self.expect(self.submit(20), expected[:20])
            pids = server.workers()
            self.doCleanups()
            self.assertFalse([pid for pid in pids if lives(pid)], "processes that are left")

    def test_greedy_tokens_are_those_of_one_rank(self):
        texts = []
        for ranks in (1, 2, 4):
            self.start(ranks, "--no-worker-processes", "--dtype", "float32")
            outcomes = [self.connection.submit({**mixed_request(i), "temperature": 0}) for i in range(8) if i % 8 != 6]
            texts.append(self.expect(outcomes))
            self.doCleanups()
        self.assertEqual(texts[1], texts[0])
        self.assertEqual(texts[2], texts[0])

    def test_quantised_weights_and_a_standby_worker(self):
        self.start(2, "--no-worker-processes", "--quantize", "int8")
        expected = self.expect(self.submit(20))
        self.doCleanups()
        server = self.start(2, "--quantize", "int8", "--standby-worker")
        for _ in range(3):
            server.wait_for(lambda s: s["health"] == "ok" and len(s["worker_pids"]) == 2)
            outcomes = self.submit(20)
            os.kill(server.stats()["worker_pids"][1], signal.SIGKILL)
            self.expect(outcomes, expected)
        self.assertEqual(server.stats()["requests_failed_total"], 0)

    def run_serve(self, *flags):
        done = subprocess.run([pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0", *flags],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    def test_what_cannot_be_divided_is_refused_by_name(self):
        with open(os.path.join(model, "config.json")) as file:
            heads = json.load(file)["num_attention_heads"]
        for flags, why in (
                (["--tensor-parallel-size", "65"], "tensor_parallel_size must be from 1 to 64"),
                (["--tensor-parallel-size", "3", "--threads", "3"],
                 f"tensor_parallel_size is 3, but the model has {heads} attention heads, which it does not divide"),
                (["--tensor-parallel-size", "2", "--threads", "1"],
                 "tensor_parallel_size must be at most the number of threads (1), because each rank needs one, not 2"),
                (["--tensor-parallel-size", "2", "--device", "cuda"], "tensor_parallel_size must be 1 with a GPU"),
        ):
            code, errors = self.run_serve(*flags)
            self.assertEqual(code, 2, errors)
            self.assertIn(why, errors)

    def test_inspect_tells_what_each_rank_holds(self):
        def inspect(*flags):
            done = subprocess.run([pagoda, "inspect", model, "--threads", "4", "--kv-cache-memory", "0.05", "--json",
                                   *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        whole = inspect()["memory"]
        ranks = inspect("--tensor-parallel-size", "2")["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1])
        for rank in ranks:
            self.assertEqual(rank["kv_bytes_per_token"] * 2, whole["kv_bytes_per_token"])
            self.assertLess(rank["weight_bytes"], whole["weight_bytes"] * 0.6)
        self.assertGreaterEqual(sum(rank["weight_bytes"] for rank in ranks), whole["weight_bytes"])


if __name__ == "__main__":
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
