#!/usr/bin/env python3
"""Ranks that compute a model together (--tensor-parallel-size, --pipeline-parallel-size): the same tokens in one process
and in several, while worker processes are killed; adapters; what is refused. Standard library only.

usage: ranks_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import re
import shutil
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


class Ranks(LoadCase):
    def start(self, ranks, *flags, stages=1):
        server = WorkerServer(pagoda, model, "--threads", "4", "--kv-cache-memory", "0.05", "--enable-lora",
                              "--lora-modules", f"wild={adapter}", "--max-lora-rank", "4",
                              "--tensor-parallel-size", str(ranks), "--pipeline-parallel-size", str(stages), *flags)
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.connection = Connection(server.lines)
        self.addCleanup(self.connection.close)
        return server

    def test_the_tokens_stay_while_ranks_are_killed(self):
        for ranks, stages, replicas in ((2, 1, 1), (4, 1, 1), (2, 1, 2), (1, 2, 1), (1, 3, 1), (2, 2, 1), (1, 2, 2)):
            self.start(ranks, "--no-worker-processes", stages=stages)
            expected = self.expect(self.submit(NUM_REQUESTS))
            self.doCleanups()
            server = self.start(ranks, "--data-parallel-size", str(replicas), stages=stages)
            num_devices = ranks * stages * replicas
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
        for ranks, stages in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2)):
            self.start(ranks, "--no-worker-processes", "--dtype", "float32", stages=stages)
            outcomes = [self.connection.submit({**mixed_request(i), "temperature": 0}) for i in range(8) if i % 8 != 6]
            texts.append(self.expect(outcomes))
            self.doCleanups()
        for others in texts[1:]:
            self.assertEqual(others, texts[0])

    def test_tokens_do_not_depend_on_stages(self):
        """Unlike ranks that share a layer, stages do the same sums as one device: all kinds of requests, sampled too."""
        of_stages = []
        for stages in (1, 2, 3):
            self.start(1, "--no-worker-processes", stages=stages)
            of_stages.append(self.expect(self.submit(64)))
            self.doCleanups()
        self.assertEqual(of_stages[1], of_stages[0])
        self.assertEqual(of_stages[2], of_stages[0])

    def test_quantised_weights_and_a_standby_worker(self):
        for ranks, stages in ((2, 1), (1, 2)):
            self.start(ranks, "--no-worker-processes", "--quantize", "int8", stages=stages)
            expected = self.expect(self.submit(20))
            self.doCleanups()
            server = self.start(ranks, "--quantize", "int8", "--standby-worker", stages=stages)
            for _ in range(3):
                server.wait_for(lambda s: s["health"] == "ok" and len(s["worker_pids"]) == 2)
                outcomes = self.submit(20)
                os.kill(server.stats()["worker_pids"][1], signal.SIGKILL)
                self.expect(outcomes, expected)
            self.assertEqual(server.stats()["requests_failed_total"], 0)
            self.doCleanups()

    def run_serve(self, *flags):
        done = subprocess.run([pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0", *flags],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    def test_what_cannot_be_divided_is_refused_by_name(self):
        with open(os.path.join(model, "config.json")) as file:
            config = json.load(file)
        heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
        for flags, why in (
                (["--tensor-parallel-size", "65"], "tensor_parallel_size must be from 1 to 64"),
                (["--tensor-parallel-size", "3", "--threads", "3"],
                 f"tensor_parallel_size is 3, but the model has {heads} attention heads, which it does not divide"),
                (["--tensor-parallel-size", "2", "--threads", "1"],
                 "tensor_parallel_size must be at most the number of threads (1), because each rank needs one, not 2"),
                (["--tensor-parallel-size", "2", "--device", "cuda"], "tensor_parallel_size must be 1 with a GPU"),
                (["--pipeline-parallel-size", "0"], "pipeline_parallel_size must be from 1 to 64"),
                (["--pipeline-parallel-size", str(layers + 1), "--threads", str(layers + 1)],
                 f"pipeline_parallel_size is {layers + 1}, but the model has only {layers} layers"),
                (["-pp", "2", "-tp", "2", "--threads", "3"],
                 "pipeline_parallel_size times tensor_parallel_size must be at most the number of threads (3), because "
                 "each rank needs one, not 4"),
                (["--pipeline-parallel-size", "2", "--device", "cuda"], "pipeline_parallel_size must be 1 with a GPU"),
        ):
            code, errors = self.run_serve(*flags)
            self.assertEqual(code, 2, errors)
            self.assertIn(why, errors)

    def test_a_tensor_that_no_stage_uses_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(model, os.path.join(folder, "model"))
            path = os.path.join(copy, "model.safetensors")
            with open(path, "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                data = file.read()
            header["model.layers.1.self_attn.sink.weight"] = {"dtype": "F32", "shape": [1],
                                                              "data_offsets": [len(data), len(data) + 4]}
            text = json.dumps(header).encode()
            with open(path, "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text + data + bytes(4))
            for stages in ("1", "2"):
                done = subprocess.run([pagoda, "serve", "--model", copy, "--listen", "127.0.0.1:0", "-pp", stages, "--threads",
                                       "2", "--kv-cache-memory", "0.05"], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("model.layers.1.self_attn.sink.weight", done.stderr)
                self.assertIn("is not used by LlamaForCausalLM", done.stderr)

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
        stages = inspect("--pipeline-parallel-size", "2")["ranks"]
        self.assertEqual([rank["stage"] for rank in stages], [0, 1])
        self.assertEqual(stages[0]["first_layer"], 0)
        self.assertEqual(stages[1]["first_layer"], stages[0]["num_layers"])
        self.assertEqual(sum(rank["kv_bytes_per_token"] for rank in stages), whole["kv_bytes_per_token"])
        self.assertGreaterEqual(sum(rank["weight_bytes"] for rank in stages), whole["weight_bytes"])


if __name__ == "__main__":
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
