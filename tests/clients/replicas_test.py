#!/usr/bin/env python3
"""Replicas of a model (--data-parallel-size): the tokens of one, while worker processes are killed and replicas are drained.
Standard library only.

usage: replicas_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from random import Random

from adapters_test import make_adapter
from worker_load import PROMPTS, SLOWNESS, Connection, LoadCase, WorkerServer, lives, request

NUM_REQUESTS = 240
ADMIN = "a-key-of-an-admin-that-is-long"

pagoda = model = folder = None
flags_of_all = []


def setUpModule():
    global folder
    kept = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(kept.cleanup)
    folder = kept.name
    adapter = make_adapter(os.path.join(folder, "adapter"), 7, base=model)
    with open(os.path.join(folder, "admin.key"), "w") as file:
        file.write(ADMIN + "\n")
    flags_of_all[:] = ["--threads", "3", "--kv-cache-memory", "0.05", "--enable-lora", "--lora-modules", f"wild={adapter}",
                       "--max-lora-rank", "4", "--admin-key-file", os.path.join(folder, "admin.key")]


class Replicas(LoadCase):
    def start(self, replicas, *flags):
        more = ["--data-parallel-size", str(replicas)] if replicas else []
        server = WorkerServer(pagoda, model, *flags_of_all, *more, *flags)
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.url = "http://%s:%d" % server.http
        self.connection = Connection(server.lines)
        self.addCleanup(self.connection.close)
        return server

    def ctl(self, *arguments, code=0):
        done = subprocess.run([pagoda, "ctl", *arguments, "--base-url", self.url, "--admin-key-file",
                               os.path.join(folder, "admin.key")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def replicas(self):
        return json.loads(self.ctl("replicas", "--output", "json"))["replicas"]

    def test_the_tokens_are_those_of_one_while_workers_are_killed(self):
        server = self.start(None, "--no-worker-processes")
        expected = self.expect(self.submit(NUM_REQUESTS))
        for count in (1, 2, 3):
            server = self.start(count)
            pids = [replica["worker_pids"] for replica in self.replicas()]
            self.assertEqual([len(ranks) for ranks in pids], [1] * count)
            ended = threading.Event()
            num_killed = 0

            def kill():
                nonlocal num_killed
                while not ended.wait(2):
                    workers = server.workers()
                    if workers:
                        # One crash alone: a request that runs alone in several of them would be blamed for them.
                        os.kill(workers[num_killed % len(workers)], signal.SIGSEGV if num_killed == 1 else signal.SIGKILL)
                        num_killed += 1

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                for _ in range(2 if count > 1 else 1):
                    self.expect(self.submit(NUM_REQUESTS), expected)
                while num_killed < 2:  # a fast machine
                    self.expect(self.submit(NUM_REQUESTS), expected)
            finally:
                ended.set()
                killer.join()
            stats = server.wait_for(lambda s: s["health"] == "ok" and len(s["worker_pids"]) == count)
            self.assertEqual(stats["requests_failed_total"], 0)
            self.assertGreaterEqual(stats["worker_restarts_total"], 1)
            if count > 1:
                self.assertEqual([one["state"] for one in stats["replicas"]], ["up"] * count)
                self.assertEqual(stats["worker_restarts_total"],
                                 sum(one["worker_restarts_total"] for one in stats["replicas"]))
            self.doCleanups()

    def test_a_replica_is_drained_under_load(self):
        server = self.start(2)
        expected = self.expect(self.submit(60))
        before = server.stats()
        outcomes = self.submit(60)
        server.wait_for(lambda s: all(one["requests_running"] > 0 for one in s["replicas"]))
        (pid,) = server.stats()["replicas"][1]["worker_pids"]
        self.assertIn("replica 1 takes no new requests", self.ctl("drain-replica", "1"))
        self.expect(outcomes + self.submit(60), expected * 2)
        server.wait_for(lambda s: s["replicas"][1]["state"] == "down")
        server.wait_for(lambda s: not lives(pid), pause=0.05)
        listed = self.ctl("replicas").splitlines()
        self.assertRegex(listed[0], r"^replica 0 +up: 0 running, 0 waiting, 0 swapped; .* rank 0 is process \d+$")
        self.assertRegex(listed[1], r"^replica 1 +down; the replica was drained$")
        self.assertIn("replica 1      down", self.ctl("status"))
        for wrong, why in (("1", "replica 1 is down"), ("0", "the only one that takes requests"),
                           ("2", "there is no replica 2; the engine has 2"), ("one", "which is a number")):
            self.assertIn(why, self.ctl("drain-replica", wrong, code=2 if wrong == "one" else 1))
        after = server.stats()
        self.assertEqual(after["requests_finished_total"] - before["requests_finished_total"], 120)
        self.assertEqual(after["health"], "ok")
        self.assertEqual(after["worker_deaths_total"], 0)

    def test_a_drained_replica_hands_its_requests_over(self):
        server = self.start(3)
        expected = self.expect(self.submit(60))
        outcomes = self.submit(60)
        server.wait_for(lambda s: all(one["requests_running"] > 0 for one in s["replicas"]))
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.open("/admin/replicas/0/drain?move_requests=maybe", {})
        self.assertEqual(refused.exception.code, 400)
        self.assertIn(b"move_requests must be true or false", refused.exception.read())
        for replica in ("0", "2"):
            self.assertIn(f"replica {replica} ends; its requests go on",
                          self.ctl("drain-replica", replica, "--move-requests"))
        server.wait_for(lambda s: [one["state"] for one in s["replicas"]] == ["down", "up", "down"])
        self.expect(outcomes, expected)
        self.assertIn("the only one that takes requests", self.ctl("drain-replica", "1", "--move-requests", code=1))
        self.expect(self.submit(60), expected)
        after = server.stats()
        self.assertEqual((after["requests_failed_total"], after["worker_deaths_total"]), (0, 0))

    def test_each_replica_is_restarted_under_load(self):
        server = self.start(2)
        expected = self.expect(self.submit(60))
        first_pids = server.stats()["worker_pids"]
        outcomes = []
        for replica in (0, 1):
            outcomes += self.submit(60)
            server.wait_for(lambda s: s["replicas"][replica]["requests_running"] > 0)
            self.ctl("drain-replica", str(replica), "--move-requests")
            server.wait_for(lambda s: s["replicas"][replica]["state"] == "down")
            before = server.stats()
            said = self.ctl("start-replica", str(replica))
            self.assertEqual(said, f"replica {replica} is starting; `ctl replicas` shows when it is up\n")
            server.wait_for(lambda s: s["replicas"][replica]["state"] == "up")
            self.assertGreaterEqual(server.stats()["steps_total"], before["steps_total"], "no count falls")
        outcomes += self.submit(60)
        server.wait_for(lambda s: all(one["requests_running"] > 0 for one in s["replicas"]))
        self.expect(outcomes, expected * 3)
        after = server.stats()
        self.assertEqual((after["requests_failed_total"], after["worker_deaths_total"]), (0, 0))
        self.assertEqual(after["requests_finished_total"], 240)
        self.assertFalse(set(after["worker_pids"]) & set(first_pids), "both have new processes")
        for wrong, why in (("1", "replica 1 is up"), ("2", "there is no replica 2"), ("one", "which is a number")):
            self.assertIn(why, self.ctl("start-replica", wrong, code=2 if wrong == "one" else 1))

    def test_requests_move_between_replicas(self):
        server = self.start(3)
        expected = self.expect(self.submit(NUM_REQUESTS))
        random = Random(5)
        outcomes = []
        num_moved = 0
        while num_moved < 100:
            self.assertLess(len(outcomes), 20 * NUM_REQUESTS, "requests end before they can move")
            outcomes += self.submit(NUM_REQUESTS)
            while not outcomes[-1].ended.is_set() and num_moved < 100:
                running = [one for one in json.loads(self.fetch("/admin/requests"))["requests"] if one["state"] == "running"]
                if not running:
                    continue
                one = random.choice(running)
                to = (one["replica"] + random.choice([1, 2])) % 3
                try:
                    self.assertEqual(json.loads(self.fetch(f"/admin/requests/{one['id']}/migrate?replica={to}", {})),
                                     {"id": one["id"], "replica": to})
                    num_moved += 1
                except urllib.error.HTTPError as error:  # it has ended meanwhile
                    self.assertEqual(json.loads(error.read())["error"]["param"], "id")
        self.expect(outcomes, expected * (len(outcomes) // NUM_REQUESTS))
        after = server.stats()
        self.assertEqual((after["requests_failed_total"], after["worker_deaths_total"]), (0, 0))
        for wrong, why in ((("1", "7"), "there is no replica 7"), (("99999999", "1"), "no request with the id 99999999"),
                           (("one", "1"), "which are numbers")):
            self.assertIn(why, self.ctl("migrate", *wrong, code=2 if wrong[0] == "one" else 1))
        slow = self.connection.submit(dict(request(1, 400), ignore_eos=True))
        server.wait_for(lambda s: s["requests_running"] == 1)
        (one,) = json.loads(self.fetch("/admin/requests"))["requests"]
        to = str((one["replica"] + 1) % 3)
        self.assertEqual(self.ctl("migrate", str(one["id"]), to), f"request {one['id']} goes on at replica {to}\n")
        self.assertTrue(slow.ended.wait(60 * SLOWNESS))

    def test_a_prompt_goes_where_its_beginning_was_computed(self):
        server = self.start(3)
        shared = " ".join(PROMPTS) * 6
        cached = []
        for i in range(6):
            # Others first, so that the replica with the beginning is not merely the idle one.
            others = [self.connection.submit(request(i * 7 + k, 60)) for k in range(3)]
            answer = self.fetch("/v1/completions", {"prompt": f"{shared} and number {i}", "max_tokens": 4})
            details = json.loads(answer)["usage"].get("prompt_tokens_details") or {}
            cached.append(details.get("cached_tokens", 0))
            for other in others:
                self.assertTrue(other.ended.wait(60 * SLOWNESS))
        self.assertEqual(cached[0], 0)
        for count in cached[1:]:
            self.assertGreater(count, 100, cached)
        self.assertEqual(len(server.stats()["replicas"]), 3)

    def open(self, path, fields=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN}"}
        body = None if fields is None else json.dumps(fields).encode()
        return urllib.request.urlopen(urllib.request.Request(self.url + path, body, headers), timeout=60 * SLOWNESS)

    def fetch(self, path, fields=None):
        with self.open(path, fields) as answer:
            return answer.read()

    def test_workers_of_all_replicas_share_the_copies_of_weights(self):
        server = self.start(2, "--quantize", "int8")
        files = set()
        for pid in server.workers():
            with open(f"/proc/{pid}/maps") as maps:
                found = {(line.split()[3], line.split()[4]) for line in maps if re.search(r"memfd:.*weights", line)}
            self.assertEqual(len(found), 1, f"process {pid} maps one file of weights")
            files |= found
        if not os.path.exists("/sys/devices/system/node/node1"):
            self.assertEqual(len(files), 1, "both map the same file")
        self.expect(self.submit(12))

    def test_metrics_and_the_model_count_all_replicas(self):
        server = self.start(2, "--num-device-blocks", "60", "--block-size", "32")
        stats = server.stats()
        self.assertEqual(stats["device_blocks_total"], 120)
        text = self.fetch("/metrics").decode()
        self.assertIn('num_gpu_blocks="120"', text)
        self.assertEqual(len(re.findall(r"^pagoda:replica_healthy\{.*\} 1$", text, re.M)), 2)
        self.assertEqual(json.loads(self.fetch("/load"))["max_num_seqs"], 2 * 256)
        for replica in (0, 1):
            with self.open(f"/ui/live?replica={replica}") as live:
                view = json.loads(live.readline().removeprefix(b"data: "))
            self.assertEqual((view["replicas"], view["replica"], view["blocks"]["total"]), (2, replica, 60))
        with self.assertRaisesRegex(urllib.error.HTTPError, "400"):
            self.fetch("/ui/live?replica=2")

    def test_bad_values_are_named(self):
        def refusal(*flags):
            done = subprocess.run([pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0", *flags],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr
        self.assertIn("data_parallel_size must be from 1 to 64, not 0", refusal("--data-parallel-size", "0"))
        self.assertIn("data_parallel_size must be from 1 to 64, not 65", refusal("--data-parallel-size", "65"))
        self.assertIn("at most the number of threads (2)", refusal("--data-parallel-size", "3", "--threads", "2"))
        if len(os.sched_getaffinity(0)) < 64:
            self.assertIn("each of 64 devices needs a CPU thread of its own", refusal("--data-parallel-size", "64"))
        self.assertIn("device must name one GPU for each replica",
                      refusal("--data-parallel-size", "3", "--device", "cuda:0,cuda:1"))
        self.assertIn("device must name one GPU for each replica", refusal("--device", "cuda:0,cuda:1"))
        self.assertIn("names the GPU cuda:0 twice", refusal("-dp", "2", "--device", "cuda:0,cuda:0"))
        self.assertIn("must be 1 with worker_listen",
                      refusal("-dp", "2", "--threads", "2", "--worker-processes", "--worker-listen", "127.0.0.1:0",
                              "--worker-tls-cert", "c", "--worker-tls-key", "k", "--worker-tls-ca", "a"))
        models = os.path.join(folder, "models.json")
        with open(models, "w") as file:
            json.dump({"one": {"model": model, "data_parallel_size": 2}}, file)
        done = subprocess.run([pagoda, "serve", "--models", models, "--threads", "2", "--listen", "127.0.0.1:0"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("data_parallel_size is for a single model", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
