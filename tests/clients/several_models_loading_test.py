#!/usr/bin/env python3
"""pagoda serve --models: models that are loaded when a request names them and unloaded when others need their place, also
under load. A model whose trace goes to a pipe loads for as long as nobody reads that, so tests know what waits for what.
Standard library only.

usage: several_models_loading_test.py PAGODA MODEL_DIR MODELS_DIR [unittest arguments]
"""
import collections
import contextlib
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import sys
import threading
import time
import unittest

import several_models_case
import worker_load
from several_models_case import PATIENCE, PROMPT, SHORT, Several, eventually

model = None


class EvictionTest(Several):
    def test_the_least_recently_used_model_makes_room(self):
        server = self.start({name: {"model": model} for name in "abc"}, "--max-loaded-models", "2")
        for name in "abac":
            server.complete(name)
        eventually(lambda: server.states() == {"a": "loaded", "b": "unloaded", "c": "loaded"}, "b has made room")
        self.assertEqual([server.facts(name)["loads_total"] for name in "abc"], [1, 1, 1])
        self.assertEqual(server.facts("b")["unloads_total"], 1)

    def test_a_quantised_model_comes_back_as_it_was(self):
        for kept in ("-1", "0"):
            server = self.start({"small": {"model": model, "quantize": "int8"}, "b": {"model": model}},
                                "--max-loaded-models", "1", "--models-kept-memory", kept)
            texts = [server.complete(name, max_tokens=12)["choices"][0]["text"] for name in ("small", "b", "small")]
            self.assertEqual(texts[0], texts[2])
            self.assertEqual(server.facts("small")["loads_total"], 2)

    def test_memory_is_a_limit_too(self):
        models = {name: {"model": model} for name in "abc"}
        probe = self.start(models)
        each = probe.facts("a")["memory_bytes"]
        server = self.start(models, "--models-memory", str(2.5 * each / 2**30))
        for name in "abc":
            server.complete(name)
        eventually(lambda: sorted(server.states().values()) == ["loaded", "loaded", "unloaded"], "two are loaded")
        server.complete("a")
        self.assertEqual(server.facts("a")["loads_total"], 2)

    def test_a_model_that_streams_stays_while_an_idle_one_goes(self):
        server = self.start({"slow": self.slow(), "a": {"model": model}, "b": {"model": model}},
                            "--max-loaded-models", "2")
        server.complete("a")
        stream = self.in_background(lambda: server.complete("slow", max_tokens=400))
        eventually(lambda: server.facts("slow")["requests_running"] == 1, "the slow model runs")
        server.complete("b")
        self.assertEqual(server.facts("slow")["requests_running"], 1, "it should still run: make it slower")
        self.assertEqual(stream()["usage"]["completion_tokens"], 400)
        self.assertEqual(server.facts("a")["unloads_total"], 1)
        self.assertEqual(server.facts("slow")["unloads_total"], 0)

    def test_one_that_is_never_idle_gives_way_in_time_and_loses_nothing(self):
        server = self.start({"slow": self.slow(), "a": {"model": model}}, "--max-loaded-models", "1")
        streams = [self.in_background(lambda: server.complete("slow", max_tokens=300))]
        eventually(lambda: server.facts("slow")["requests_running"] == 1, "the slow model runs")
        waiting = self.in_background(lambda: server.complete("a"))
        eventually(lambda: server.facts("a")["state"] == "waiting", "a waits for its place")
        done = threading.Event()

        def keep_busy():
            while not done.is_set():
                self.assertEqual(server.complete("slow", max_tokens=100)["usage"]["completion_tokens"], 100)
        streams += [self.in_background(keep_busy) for _ in range(2)]
        self.assertEqual(waiting()["model"], "a")
        done.set()
        self.assertEqual(streams[0]()["usage"]["completion_tokens"], 300)
        for stream in streams[1:]:
            stream()

    def test_an_idle_model_goes_when_its_time_is_over_and_comes_back(self):
        server = self.start({"a": {"model": model, "keep_alive": 0.2}, "b": {"model": model}})
        server.complete("a")
        server.complete("b")
        eventually(lambda: server.states() == {"a": "unloaded", "b": "loaded"}, "a is idle for too long")
        self.assertEqual(server.complete("a")["model"], "a")
        self.assertEqual(server.facts("a")["loads_total"], 2)

    def test_ollama_says_how_long_a_model_stays(self):
        server = self.start({"a": {"model": model}, "b": {"model": model}, "slow": self.slow()})
        loaded = server.json("POST", "/api/generate", {"model": "a", "keep_alive": "1h"})
        self.assertEqual((loaded["done"], loaded["done_reason"]), (True, "load"))
        running = server.json("GET", "/api/ps")["models"]
        self.assertEqual([each["name"] for each in running], ["a:latest"])
        self.assertLess(running[0]["expires_at"], "2300")
        stream = self.in_background(lambda: server.json("POST", "/api/generate", {
            "model": "slow", "keep_alive": "1h", "prompt": "Once", "stream": False, "options": {"num_predict": 300}}))
        eventually(lambda: server.facts("slow")["requests_running"] == 1, "the slow model runs")
        (busy,) = [each for each in server.json("GET", "/api/ps")["models"] if each["name"] == "slow:latest"]
        self.assertLess(busy["expires_at"], "2300", "a model with work has a time, too")
        self.assertEqual(server.facts("slow")["requests_running"], 1, "it should still run: make it slower")
        self.assertTrue(stream()["done"])
        for name in ("slow", "a"):
            unloaded = server.json("POST", "/api/generate", {"model": name, "keep_alive": 0})
            self.assertEqual(unloaded["done_reason"], "unload")
        eventually(lambda: server.json("GET", "/api/ps")["models"] == [], "they are unloaded")
        generation = {"model": "a", "prompt": "Once", "stream": False, "options": {"num_predict": 3}}
        for _ in range(5):  # whether the model is there or not, it is loaded once and goes with its request
            loads = server.facts("a")["loads_total"]
            self.assertEqual(server.json("POST", "/api/generate", {"model": "a"})["done_reason"], "load")
            self.assertTrue(server.json("POST", "/api/generate", {**generation, "keep_alive": 0})["done"])
            eventually(lambda: server.facts("a")["state"] == "unloaded", "a goes with its request")
            self.assertTrue(server.json("POST", "/api/generate", {**generation, "keep_alive": 0})["done"])
            eventually(lambda: server.facts("a")["state"] == "unloaded", "a goes with the request that it was loaded for")
            self.assertEqual(server.facts("a")["loads_total"], loads + 2)
        server.json("POST", "/api/generate", {"model": "a", "keep_alive": 0})  # there is nothing to unload
        server.complete("a")
        self.assertEqual(server.facts("a")["state"], "loaded")
        status, _, body = server.request("POST", "/api/generate", {"model": "a", "keep_alive": "soon"})
        self.assertEqual(status, 400, body)


class LoadingTest(Several):
    def waiting(self, server, name="gate"):
        return server.facts(name)["waiting_for_model"]

    def test_requests_for_a_loading_model_wait_and_others_do_not(self):
        server = self.start({"gate": self.gated(), "a": {"model": model}})
        answers = [self.in_background(lambda: server.complete("gate")) for _ in range(20)]
        eventually(lambda: self.waiting(server) == 20, "20 requests wait")
        self.assertEqual(server.facts("gate")["state"], "loading")
        self.assertEqual(server.complete("a")["model"], "a")
        self.assertEqual(server.request("GET", "/health")[0], 200)
        self.open_gate()
        texts = {answer()["choices"][0]["text"] for answer in answers}
        self.assertEqual(len(texts), 1, "greedy requests have one answer")
        self.assertEqual(server.facts("gate")["loads_total"], 1)

    def test_a_request_waits_no_longer_than_it_said(self):
        server = self.start({"gate": self.gated(), "a": {"model": model}}, "--model-load-timeout", "1")
        for fields, expected in (({"timeout": 0.2}, 504), ({}, 503)):
            status, headers, body = server.request("POST", "/v1/completions", {**SHORT, "model": "gate", **fields})
            self.assertEqual(status, expected, body)
            self.assertIn("gate", json.loads(body)["error"]["message"])
        self.assertIn("retry-after", headers)
        self.assertEqual(self.waiting(server), 0)
        self.open_gate()
        eventually(lambda: server.states()["gate"] == "loaded", "the load has gone on")

    def test_the_wait_for_a_model_counts_in_the_time_that_its_requests_have(self):
        gate = {**self.gated(), "request_timeout": 0.3}
        server = self.start({"gate": gate, "a": {"model": model}}, "--model-load-timeout", "60")
        status, _, body = server.request("POST", "/v1/completions", {**SHORT, "model": "gate"})
        self.assertEqual((status, json.loads(body)["error"]["code"]), (504, "timeout"))
        self.assertEqual(self.waiting(server), 0)
        self.open_gate()
        eventually(lambda: server.states()["gate"] == "loaded", "the load has gone on")
        self.assertEqual(server.complete("gate")["model"], "gate")

    def test_the_wait_for_a_model_is_time_in_the_queue(self):
        server = self.start({"gate": self.gated()}, json_lines=True)
        with socket.create_connection((server.host, server.json_lines_port), timeout=PATIENCE) as connection:
            lines = connection.makefile("rw")
            lines.write(json.dumps({**SHORT, "id": "x", "model": "gate", "stream": False}) + "\n")
            lines.flush()
            eventually(lambda: self.waiting(server) == 1, "it waits")
            time.sleep(0.3)
            self.open_gate()
            timing = json.loads(lines.readline())["timing"]
        self.assertGreaterEqual(timing["queue_ms"], 300)
        self.assertGreaterEqual(timing["total_ms"], timing["queue_ms"])

    def test_a_client_that_goes_away_waits_no_longer(self):
        server = self.start({"gate": self.gated(), "a": {"model": model}})
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        connection.request("POST", "/v1/completions", json.dumps({**SHORT, "model": "gate"}),
                           {"Content-Type": "application/json"})
        eventually(lambda: self.waiting(server) == 1, "it waits")
        connection.close()
        eventually(lambda: self.waiting(server) == 0, "it does not wait any more")
        self.open_gate()

    def test_a_waiting_line_is_cancelled_at_once(self):
        server = self.start({"gate": self.gated(), "a": {"model": model}}, json_lines=True)
        with socket.create_connection((server.host, server.json_lines_port), timeout=PATIENCE) as connection:
            lines = connection.makefile("rw")
            lines.write(json.dumps({"id": "x", "model": "gate", "prompt": PROMPT, "n": 2}) + "\n")
            lines.flush()
            eventually(lambda: self.waiting(server) == 1, "it waits")
            lines.write(json.dumps({"op": "cancel", "id": "x"}) + "\n")
            lines.flush()
            done = json.loads(lines.readline())
        self.assertEqual(done["event"], "done")
        self.assertEqual([output["finish_reason"] for output in done["outputs"]], ["abort", "abort"])
        self.open_gate()

    def test_the_line_for_a_model_is_bounded(self):
        server = self.start({"gate": self.gated(), "a": {"model": model}})
        answers = [self.in_background(lambda: server.request("POST", "/v1/completions",
                                                             {**SHORT, "model": "gate", "max_tokens": 1}))
                   for _ in range(260)]
        eventually(lambda: self.waiting(server) == 256, "the line is full")
        eventually(lambda: True, "")
        self.open_gate()
        codes = [answer()[0] for answer in answers]
        self.assertEqual((codes.count(200), codes.count(503)), (256, 4))

    def test_sigterm_ends_a_server_whose_model_loads(self):
        access = self.path("access.log")
        server = self.start({"gate": self.gated(), "a": {"model": model}}, "--access-log", access)
        answer = self.in_background(lambda: server.request("POST", "/v1/completions", {**SHORT, "model": "gate"}))
        eventually(lambda: self.waiting(server) == 1, "it waits")
        server.process.send_signal(signal.SIGTERM)
        status, _, body = answer()
        self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "shutting_down"))
        self.assertEqual(server.process.wait(PATIENCE), 0)
        with open(access) as file:
            last = [line for line in map(json.loads, file) if line["route"] == "/v1/completions"]
        self.assertEqual([line["status"] for line in last], [503], "the log has what was answered last")

    def test_sigterm_lets_every_model_finish(self):
        server = self.start({"slow": self.slow(), "a": {"model": model}}, "--drain-timeout", str(PATIENCE))
        stream = self.in_background(lambda: server.complete("slow", max_tokens=150))
        eventually(lambda: server.facts("slow")["requests_running"] == 1, "the slow model runs")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(stream()["usage"]["completion_tokens"], 150)
        self.assertEqual(server.process.wait(PATIENCE), 0)


class ChaosTest(Several):
    """Models come and go under load, while clients cancel and leave, workers die and files are not there for a while."""

    SECONDS = 3
    NAMES = ("moves", "in-a-process", "goes-at-once")
    BODY = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True}
    ERRORS = {"timeout", "queue_full", "internal"}  # of a load that failed, say

    def setUp(self):
        super().setUp()
        self.problems, self.ends = [], collections.Counter()
        self.until = time.monotonic() + self.SECONDS

    def client(self, server, seed):
        chance = random.Random(seed)
        for number in itertools.count():
            if time.monotonic() > self.until:
                return
            with socket.create_connection((server.host, server.json_lines_port), timeout=PATIENCE) as connection:
                lines = connection.makefile("rw")
                live = {}
                for k in range(chance.choice((1, 3, 8))):
                    body = {**self.BODY, "id": f"{number}-{k}", "model": chance.choice(self.NAMES), "stream": False,
                            "max_tokens": chance.choice((1, 5, 60)), "n": chance.choice((1, 1, 3))}
                    if chance.random() < 0.2:
                        body["timeout_ms"] = chance.choice((1, 50, 500))
                    live[body["id"]] = body
                    lines.write(json.dumps(body) + "\n")
                cancelled = {name for name in live if chance.random() < 0.15}
                for name in cancelled:
                    lines.write(json.dumps({"op": "cancel", "id": name}) + "\n")
                lines.flush()
                if chance.random() < 0.2:
                    time.sleep(chance.random() * 0.05)
                    continue  # it leaves
                while live:
                    event = json.loads(lines.readline())
                    if event["event"] == "error" and event["error"]["code"] == "unknown_id":
                        continue  # what was to be cancelled has ended
                    self.judge(live.pop(event["id"]), event, event["id"] in cancelled)

    def judge(self, body, event, is_cancelled):
        self.ends[event["event"]] += 1
        if event["event"] == "error":
            if event["error"]["code"] not in self.ERRORS:
                self.problems.append(event)
            return
        for output in event["outputs"]:
            ids = output["token_ids"]
            if ids != self.tokens[:len(ids)] or len(ids) < body["max_tokens"] and not is_cancelled:
                self.problems.append((body, event))

    def disturb(self, server, folder):
        chance = random.Random(5)
        while time.monotonic() < self.until:
            time.sleep(chance.random() * 0.4)
            if chance.random() < 0.4:
                os.rename(folder, folder + "-away")
                time.sleep(chance.random() * 0.2)
                os.rename(folder + "-away", folder)
            else:
                for pid, _ in worker_load.children(server.process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)))

    def test_every_request_ends_with_its_own_tokens_or_an_error(self):
        folder = self.path("moves")
        shutil.copytree(model, folder)
        models = {"moves": {"model": folder}, "in-a-process": {"model": model, "worker_processes": True},
                  "goes-at-once": {"model": model, "keep_alive": 0}}
        server = self.start(models, "--max-loaded-models", "1", "--model-load-timeout", "20", json_lines=True)
        body = {**self.BODY, "model": "goes-at-once", "max_tokens": 60, "return_token_ids": True}
        self.tokens = server.json("POST", "/v1/completions", body)["choices"][0]["token_ids"]
        self.assertEqual(len(self.tokens), 60)
        self.until = time.monotonic() + self.SECONDS
        joins = [self.in_background(lambda seed=seed: self.client(server, seed)) for seed in range(4)]
        joins.append(self.in_background(lambda: self.disturb(server, folder)))
        for join in joins:
            join()
        self.assertEqual(self.problems, [])
        self.assertGreater(self.ends["done"], 20 if worker_load.SLOWNESS == 1 else 0, self.ends)
        for name in self.NAMES:
            self.assertEqual(server.complete(name)["usage"]["completion_tokens"], SHORT["max_tokens"])


if __name__ == "__main__":
    _, model = several_models_case.read_arguments()
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
