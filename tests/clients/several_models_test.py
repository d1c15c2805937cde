#!/usr/bin/env python3
"""pagoda serve --models: the APIs of a server with several models, what is told of each, mistakes in their files, keys, and
a model with a process of its own. Standard library only.

usage: several_models_test.py PAGODA MODEL_DIR MODELS_DIR [unittest arguments]
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest

import exposition
import several_models_case
from server import Server
from several_models_case import PATIENCE, PROMPT, SHORT, Several, eventually

pagoda = model = None


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


if __name__ == "__main__":
    pagoda, model = several_models_case.read_arguments()
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
