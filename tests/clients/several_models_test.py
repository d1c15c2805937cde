#!/usr/bin/env python3
"""pagoda serve --models: models that are loaded when a request names them and unloaded when others need their place, at
a real server. A model whose trace goes to a pipe loads for as long as nobody reads that, so tests know what waits for
what. Standard library only.

usage: several_models_test.py PAGODA MODEL_DIR MODELS_DIR [unittest arguments]
"""
import collections
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import exposition
import worker_load
from server import CHATML, Server, slow_model

PROMPT = "Once upon a time"
SHORT = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
PATIENCE = 120 * float(os.environ.get("PAGODA_SLOWNESS", "1"))
pagoda = model = models_dir = None


class PoolServer(Server):
    def __init__(self, file, *flags, json_lines=False):
        super().__init__(pagoda, model, *flags, json_lines=json_lines)
        at = self.command.index("--model")
        self.command[at:at + 2] = ["--models", file]

    def complete(self, name, **fields):
        return self.json("POST", "/v1/completions", {**SHORT, "model": name, **fields})

    def states(self):
        return {entry["id"]: entry["state"] for entry in self.json("GET", "/v1/models")["data"]}

    def facts(self, name):
        """What /stats tells of a model."""
        return next(each for each in self.stats()["models"] if each["model"] == name)


def eventually(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.01)


class Several(unittest.TestCase):
    def setUp(self):
        self.kept = contextlib.ExitStack()
        self.addCleanup(self.kept.close)
        self.folder = self.kept.enter_context(tempfile.TemporaryDirectory())

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, models):
        path = self.path("models.json")
        with open(path, "w") as file:
            json.dump(models, file)
        return path

    def start(self, models, *flags, **more):
        small = {"num_device_blocks": 64}
        models = {name: {**small, **entry} for name, entry in models.items()}
        return self.kept.enter_context(PoolServer(self.file(models), "--threads", "1", *flags, **more))

    def slow(self):
        folder = self.path("slow")
        os.mkdir(folder)
        slow_model(model, folder)
        return {"model": folder, "load_format": "dummy"}

    def other(self, which="qwen2-gqa-f32"):
        """A model of another architecture, with random weights and the demo model's tokenizer."""
        folder = self.path(which)
        os.mkdir(folder)
        slow_model(model, folder)
        with open(os.path.join(model, "config.json")) as file:
            vocab_size = json.load(file)["vocab_size"]
        with open(os.path.join(models_dir, which, "config.json")) as file:
            config = {**json.load(file), "vocab_size": vocab_size}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        return {"model": folder, "load_format": "dummy"}

    def gated(self, name="gate"):
        """An entry whose load ends when open_gate(NAME) is called."""
        os.mkfifo(self.path(name))
        return {"model": model, "trace": self.path(name)}

    def open_gate(self, name="gate"):
        """Reads the trace from now on, or it would block the engine."""
        def read():
            with open(self.path(name), "rb") as pipe:
                while pipe.read(1 << 16):
                    pass
        threading.Thread(target=read, daemon=True).start()

    def in_background(self, call):
        result = {}

        def run():
            try:
                result["value"] = call()
            except Exception as error:  # for the test's thread
                result["error"] = error
        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def join():
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "a request has no answer")
            if "error" in result:
                raise result["error"]
            return result["value"]
        return join


class OnDemandTest(Several):
    def test_a_model_is_loaded_by_the_first_request_that_names_it(self):
        with Server(pagoda, model, "--threads", "1") as single:
            expected = single.json("POST", "/v1/completions", SHORT)["choices"][0]["text"]
        server = self.start({"stories": {"model": model, "aliases": ["tales"]},
                             "other": self.other()})
        self.assertEqual(server.states(), {"stories": "unloaded", "tales": "unloaded", "other": "unloaded"})
        answer = server.complete("tales")
        self.assertEqual(answer["choices"][0]["text"], expected)
        self.assertEqual(answer["model"], "stories")
        self.assertEqual(server.states(), {"stories": "loaded", "tales": "loaded", "other": "unloaded"})
        self.assertEqual(server.complete("other")["model"], "other")
        self.assertEqual(server.facts("stories")["loads_total"], 1)
        self.assertEqual(server.request("GET", "/health")[0], 200)

    def test_a_name_is_needed_and_must_exist(self):
        server = self.start({"a": {"model": model}, "b": {"model": model}})
        status, _, body = server.request("POST", "/v1/completions", {**SHORT, "model": "c"})
        error = json.loads(body)["error"]
        self.assertEqual((status, error["code"], error["param"]), (404, "model_not_found", "model"))
        self.assertIn("`a`, `b`", error["message"])
        status, _, body = server.request("POST", "/v1/completions", SHORT)
        error = json.loads(body)["error"]
        self.assertEqual((status, error["param"]), (400, "model"))
        self.assertIn("`a`, `b`", error["message"])
        self.assertEqual(server.request("GET", "/v1/models/c")[0], 404)
        self.assertEqual(server.json("GET", "/v1/models/b")["state"], "unloaded")
        self.assertEqual(set(server.states().values()), {"unloaded"})

    def test_every_api_names_its_model(self):
        server = self.start({"a": {"model": model}, "b": self.other()}, json_lines=True)
        chat = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0}
        self.assertEqual(server.json("POST", "/v1/chat/completions", chat)["model"], "a")
        self.assertEqual(server.json("POST", "/v1/messages", chat)["model"], "a")
        self.assertGreater(server.json("POST", "/v1/messages/count_tokens",
                                       {k: chat[k] for k in ("model", "messages")})["input_tokens"], 0)
        response = {"model": "a", "input": "hi", "max_output_tokens": 3}
        self.assertEqual(server.json("POST", "/v1/responses", response)["model"], "a")
        lengths = {name: server.json("GET", "/v1/models/" + name)["max_model_len"] for name in "ab"}
        self.assertNotEqual(lengths["a"], lengths["b"])
        for name in "ab":
            tokenized = server.json("POST", "/tokenize", {"model": name, "prompt": PROMPT})
            self.assertEqual(tokenized["max_model_len"], lengths[name])
        tokens = tokenized["tokens"]
        self.assertIn("Once", server.json("POST", "/detokenize", {"model": "b", "tokens": tokens})["prompt"])
        self.assertIn("hi", server.json("POST", "/apply_template",
                                        {"model": "a", "messages": chat["messages"]})["prompt"])
        ollama = {"model": "b:latest", "prompt": PROMPT, "stream": False, "options": {"num_predict": 3}}
        self.assertEqual(server.json("POST", "/api/generate", ollama)["model"], "b:latest")
        self.assertEqual(server.json("POST", "/api/show", {"model": "b"})["model_info"]["general.basename"], "b")
        self.assertEqual(server.request("POST", "/api/show", {"model": "c"})[0], 404)
        self.assertEqual([each["name"] for each in server.json("GET", "/api/tags")["models"]],
                         ["a:latest", "b:latest"])
        with socket.create_connection((server.host, server.json_lines_port), timeout=PATIENCE) as connection:
            lines = connection.makefile("rw")

            def ask(**fields):
                lines.write(json.dumps(fields) + "\n")
                lines.flush()
                return json.loads(lines.readline())
            done = ask(id="1", model="b", prompt=PROMPT, max_tokens=3, stream=False)
            self.assertEqual(done["event"], "done")
            self.assertEqual(ask(op="tokenize", id="2", model="b", text=PROMPT)["token_ids"], tokens)
            self.assertEqual(ask(op="model", id="3", model="a")["name"], "a")
            self.assertEqual(ask(op="stats", id="4", model="a")["health"], "ok")
            self.assertEqual(ask(op="ping", id="5")["event"], "pong")
            for wrong in ({"model": "c"}, {}):
                refused = ask(id="6", prompt=PROMPT, **wrong)
                self.assertEqual((refused["event"], refused["error"]["param"]), ("error", "model"), refused)
                self.assertIn("`a`, `b`", refused["error"]["message"])

    def test_a_model_may_be_preloaded(self):
        server = self.start({"a": {"model": model, "preload": True}, "b": {"model": model}})
        eventually(lambda: server.states() == {"a": "loaded", "b": "unloaded"}, "a is loaded, and b is not")

    def test_stats_are_of_each_and_of_all(self):
        server = self.start({"a": {"model": model}, "b": {"model": model}, "c": {"model": model}})
        for name in "aab":
            server.complete(name)
        stats = server.stats()
        self.assertEqual([each["requests_finished_total"] for each in stats["models"]], [2, 1, 0])
        self.assertEqual(stats["requests_finished_total"], 3)
        self.assertEqual(stats["device_blocks_total"], sum(each["device_blocks_total"] for each in stats["models"]))
        self.assertEqual((stats["health"], stats["overloaded"]), ("ok", False))
        self.assertEqual(server.json("GET", "/load")["max_num_seqs"] % 3, 0)

    def test_admins_see_and_cancel_the_requests_of_each_model(self):
        key = self.path("admin.key")
        with open(key, "w") as file:
            file.write("a-key-of-an-admin-that-is-long\n")
        server = self.start({"slow model": self.slow(), "a": {"model": model}}, "--admin-key-file", key)

        def ctl(*arguments):
            return subprocess.run([pagoda, "ctl", "--base-url", server.url, "--admin-key-file", key, *arguments],
                                  capture_output=True, text=True, timeout=PATIENCE)
        stream = self.in_background(lambda: server.complete("slow model", max_tokens=1000))
        eventually(lambda: server.facts("slow model")["requests_running"] == 1, "the slow model runs")
        listed = json.loads(ctl("requests", "--output", "json").stdout)["requests"]
        self.assertEqual([each["model"] for each in listed], ["slow model"])
        number = str(listed[0]["id"])
        self.assertIn(", slow model\n", ctl("requests").stdout)
        self.assertIn("add ?model=NAME", ctl("cancel", number).stderr)
        self.assertIn("no live request", ctl("cancel", number, "--model", "a").stderr)
        self.assertEqual(ctl("cancel", number, "--model", "slow model").stdout, f"cancelled {number}\n")
        self.assertEqual(stream()["choices"][0]["finish_reason"], "abort")
        self.assertIn("ok", ctl("status").stdout)

    def test_metrics_and_the_access_log_tell_of_each_model(self):
        log = self.path("access.log")
        server = self.start({"a": {"model": model}, "b": {"model": model}}, "--access-log", log)
        server.complete("a")
        status, _, text = server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        metrics = exposition.Metrics(text.decode())
        samples = {(name, dict(labels).get("model_name")): value for (name, labels), value in metrics.samples.items()
                   if name.startswith("pagoda:")}
        self.assertEqual(samples["pagoda:model_loaded", "a"], 1)
        self.assertEqual(samples["pagoda:model_loaded", "b"], 0)
        self.assertEqual(samples["pagoda:model_loads_total", "a"], 1)
        self.assertEqual(samples["pagoda:generation_tokens_total", "a"], 4)
        self.assertEqual(samples["pagoda:generation_tokens_total", "b"], 0)
        self.assertGreater(samples["pagoda:model_load_seconds", "a"], 0)
        docs = os.path.join(os.path.dirname(__file__), "../../docs/metrics.md")
        with open(docs) as file:
            section = re.search(r"### Several models.*?(?=^## )", file.read(), re.DOTALL | re.MULTILINE)[0]
        listed = dict(re.findall(r"^\| `([a-z0-9_:]+)` \| (\w+) \|", section, re.MULTILINE))
        told = {name: kind for name, kind in metrics.types.items() if "model_" in name or name.endswith("for_model")}
        self.assertEqual(listed, told)
        eventually(lambda: os.path.getsize(log) > 0, "a line of the access log")
        with open(log) as lines:
            self.assertEqual(json.loads(lines.readline())["model"], "a")


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


class BrokenTest(Several):
    def test_a_model_whose_files_break_fails_its_own_requests_and_may_be_mended(self):
        folder = self.path("copy")
        shutil.copytree(model, folder)
        weights = os.path.join(folder, "model.safetensors")
        server = self.start({"copy": {"model": folder}, "a": {"model": model}})
        with open(weights, "rb") as file:
            whole = file.read()
        os.remove(weights)
        with open(weights, "wb") as file:
            file.write(whole[:len(whole) // 2])
        for _ in range(2):
            status, _, body = server.request("POST", "/v1/completions", {**SHORT, "model": "copy"})
            self.assertEqual(status, 500)
            self.assertEqual(json.loads(body)["error"]["message"],
                             "the model copy cannot be loaded; the server's log says why")
        self.assertEqual(server.complete("a")["model"], "a")
        self.assertEqual(server.request("GET", "/health")[0], 200)
        self.assertEqual(server.facts("copy")["load_failures_total"], 2)
        os.remove(weights)
        with open(weights, "wb") as file:
            file.write(whole)
        self.assertEqual(server.complete("copy")["model"], "copy")

    def test_every_mistake_of_the_file_is_told_at_once(self):
        path = self.file([{"name": "a", "model": model, "threads": "many"},
                          {"name": "b", "model": self.path("nowhere")},
                          {"name": "a", "model": model, "colour": "red"},
                          {"model": model},
                          {"name": "c", "model": model, "aliases": ["b"], "keep_alive": "long"}])
        ended = subprocess.run([pagoda, "serve", "--models", path, "--http", "127.0.0.1:0", "--listen", "none"],
                               capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        for words in ("a: threads must be an integer", 'unknown key "colour"', "name is required", "keep_alive must be"):
            self.assertIn(words, ended.stderr)
        path = self.file([{"name": "a", "model": model}, {"name": "b", "model": self.path("nowhere")},
                          {"name": "c", "model": model, "aliases": ["b"]},
                          {"name": "d", "model": model, "max_model_len": 10**6}])
        ended = subprocess.run([pagoda, "serve", "--models", path, "--http", "127.0.0.1:0", "--listen", "none"],
                               capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        for words in ("b: ", "nowhere", "the name b is already the name of", "d: max_model_len"):
            self.assertIn(words, ended.stderr)

    def test_what_is_of_one_model_is_refused_beside_a_file_of_them(self):
        path = self.file({"a": {"model": model}})
        for flags in (["--model", model], ["--trace", self.path("t")], ["--served-model-name", "x"],
                      ["--recover", self.path("j")]):
            ended = subprocess.run([pagoda, "serve", "--models", path, *flags], capture_output=True, text=True,
                                   timeout=PATIENCE)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertIn("belongs to one model", ended.stderr)
        ended = subprocess.run([pagoda, "serve", "--model", model, "--max-loaded-models", "2"], capture_output=True,
                               text=True, timeout=PATIENCE)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("max_loaded_models needs models", ended.stderr)


class KeysTest(Several):
    def key(self, name, *flags):
        line = subprocess.run([pagoda, "key", name, "--file", self.path("keys"), *flags], capture_output=True, text=True,
                              timeout=60, check=True).stdout.strip()
        return {"Authorization": "Bearer " + line}

    def ask(self, server, name, key, **fields):
        status, _, body = server.request("POST", "/v1/completions", {**SHORT, "model": name, **fields}, key)
        return status, json.loads(body).get("error", {}).get("code")

    def test_limits_of_a_key_hold_over_all_models(self):
        busy, few = self.key("busy", "--max-concurrent-requests", "1"), self.key("few", "--requests-per-minute", "2")
        root = self.key("root", "--admin")
        server = self.start({"a": self.slow(), "b": {"model": model}}, "--keys-file", self.path("keys"))
        self.assertEqual([self.ask(server, name, few) for name in "aba"],
                         [(200, None), (200, None), (429, "rate_limit_exceeded")])
        body = json.dumps({**SHORT, "model": "a", "max_tokens": 100_000, "stream": True})
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", body, {**busy, "Content-Type": "application/json"})
        self.assertEqual(connection.getresponse().status, 200)
        self.assertEqual(self.ask(server, "b", busy)[0], 429)
        self.assertEqual(self.ask(server, "b", root)[0], 200)
        connection.close()
        eventually(lambda: self.ask(server, "b", busy)[0] == 200, "the place of a request that has gone is free")


class WorkerProcessTest(Several):
    def test_a_model_may_live_in_a_process_of_its_own_and_die_there(self):
        server = self.start({"a": {"model": model, "worker_processes": True}, "b": {"model": model}})
        before = server.complete("a")["choices"][0]["text"]
        server.complete("b")
        pid, = server.facts("a")["worker_pids"]
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(server.complete("a")["choices"][0]["text"], before)
        self.assertEqual(server.facts("a")["worker_deaths_total"], 1)
        self.assertEqual(server.facts("b")["worker_deaths_total"], 0)


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
        self.assertGreater(self.ends["done"], 20, self.ends)
        for name in self.NAMES:
            self.assertEqual(server.complete(name)["usage"]["completion_tokens"], SHORT["max_tokens"])


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR MODELS_DIR [unittest arguments]")
    pagoda, model, models_dir = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
