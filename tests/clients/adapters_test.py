#!/usr/bin/env python3
"""LoRA adapters over one model: names, lists, loading and unloading at a real server, generate and run-batch. The adapters are made
here, with random matrices for the model that is served. Standard library only.

usage: adapters_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import array
import concurrent.futures
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from killed_server import HttpStream, KilledServer
from scripted_model import save_json, save_tensors
from server import Server, slow_model

SHORT = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
ADMIN = {"Authorization": "Bearer admin"}
pagoda = model = None


def make_adapter(folder, seed, rank=4, base=None):
    """A PEFT folder that changes the queries and the output of attention in every layer, enough to change the text."""
    with open(os.path.join(base or model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    hidden, draw = config["hidden_size"], random.Random(seed)
    attention = config["num_attention_heads"] * config["head_dim"]

    def matrix(rows, columns):
        values = array.array("f", (draw.gauss(0, 0.15) for _ in range(rows * columns)))
        return [rows, columns], values.tobytes()

    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, rows, columns in (("q_proj", attention, hidden), ("o_proj", hidden, attention)):
            module = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[module + ".lora_A.weight"] = matrix(rank, columns)
            tensors[module + ".lora_B.weight"] = matrix(rows, rank)
    os.makedirs(folder)
    save_json(folder, "adapter_config.json", {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none",
                                              "target_modules": ["q_proj", "o_proj"]})
    save_tensors(os.path.join(folder, "adapter_model.safetensors"), tensors)
    return folder


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = contextlib.ExitStack()
        cls.addClassCleanup(cls.kept.close)
        cls.folder = cls.kept.enter_context(tempfile.TemporaryDirectory())
        cls.root = os.path.join(cls.folder, "root")
        cls.paths = {name: make_adapter(os.path.join(cls.root, name), seed) for seed, name in enumerate(("sql", "poet", "new"))}
        cls.outside = make_adapter(os.path.join(cls.folder, "outside"), 9)
        os.symlink(cls.outside, os.path.join(cls.root, "link"))
        cls.admin = os.path.join(cls.folder, "admins")
        with open(cls.admin, "w", encoding="utf-8") as file:
            file.write("admin\n")

    def serve(self, *flags, modules=("sql", "poet"), **more):
        named = [f"{name}={self.paths[name]}" for name in modules]
        server = Server(pagoda, model, "--enable-lora", "--served-model-name", "base", "--threads", "1", "--num-device-blocks", "64",
                        *(["--lora-modules", *named] if named else []), *flags, **more)
        return self.kept_here.enter_context(server)

    def updating(self, *flags, **more):
        return self.serve("--enable-lora-updates", "--lora-root", self.root, "--admin-key-file", self.admin, *flags, **more)

    def setUp(self):
        self.kept_here = contextlib.ExitStack()
        self.addCleanup(self.kept_here.close)

    def text(self, server, name, **fields):
        answer = server.json("POST", "/v1/completions", {**SHORT, "model": name, **fields})
        self.assertEqual(answer["model"], name)
        return answer["choices"][0]["text"]

    def refused(self, server, status, method, path, body, headers=None):
        got, _, answer = server.request(method, path, body, headers)
        self.assertEqual(got, status, answer)
        return json.loads(answer)["error"]

    def load(self, server, name, path):
        return server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, ADMIN)

    def unload(self, server, name):
        return server.request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, ADMIN)

    def test_requests_name_adapters(self):
        server = self.serve("--max-loras", "1")
        alone = {name: self.text(server, name) for name in ("base", "sql", "poet")}
        self.assertEqual(len(set(alone.values())), 3, alone)
        names = list(alone) * 6
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            together = list(pool.map(lambda name: self.text(server, name), names))
        self.assertEqual(together, [alone[name] for name in names])
        self.assertEqual(self.text(server, "sql", stream=False), alone["sql"])
        listed = {entry["id"]: entry for entry in server.json("GET", "/v1/models")["data"]}
        self.assertEqual(list(listed), ["base", "sql", "poet"])
        self.assertEqual((listed["sql"]["parent"], listed["sql"]["root"]), ("base", self.paths["sql"]))
        self.assertIsNone(listed["base"]["parent"])
        error = self.refused(server, 404, "POST", "/v1/completions", {**SHORT, "model": "nobody"})
        self.assertIn("`base`, `sql`, `poet`", error["message"])
        # llama-server's number
        numbers = {entry["path"]: entry["id"] for entry in server.json("GET", "/lora-adapters")}
        lora = [{"id": numbers[self.paths["poet"]], "scale": 1}]
        chosen = server.json("POST", "/v1/completions", {**SHORT, "lora": lora})["choices"][0]["text"]
        self.assertEqual(chosen, alone["poet"])
        error = self.refused(server, 400, "POST", "/v1/completions", {**SHORT, "model": "poet", "lora": [{**lora[0], "scale": 0}]})
        self.assertEqual(error["param"], "lora")
        error = self.refused(server, 400, "POST", "/lora-adapters", [{"id": 9, "scale": 0}])
        self.assertIn("the adapters are 0 (`sql`), 1 (`poet`)", error["message"])
        self.assertEqual(server.json("POST", "/lora-adapters", server.json("GET", "/lora-adapters")), {"success": True})
        error = self.refused(server, 400, "POST", "/v1/completions", {**SHORT, "adapter": "poet"})
        self.assertEqual(error["param"], "adapter")
        # The two wrong ways to change the list.
        self.refused(server, 403, "POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "x"})

    def test_admins_load_and_unload(self):
        server = self.updating()
        base = self.text(server, "base")
        self.refused(server, 404, "POST", "/v1/completions", {**SHORT, "model": "new"})
        self.assertEqual(self.load(server, "new", "new")[::2], (200, b"Success: LoRA adapter 'new' added successfully."))
        new = self.text(server, "new")
        self.assertNotEqual(new, base)
        self.assertEqual(self.load(server, "new", "new")[0], 400)
        for path in ("../outside", self.outside, "link", "/etc", "nothing", "..", ""):
            error = self.refused(server, 400, "POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": path}, ADMIN)
            self.assertEqual(error["param"], "lora_path", path)
        self.assertEqual(self.load(server, "base", "new")[0], 400)
        self.assertEqual(self.unload(server, "new")[::2], (200, b"Success: LoRA adapter 'new' removed successfully."))
        self.refused(server, 404, "POST", "/v1/completions", {**SHORT, "model": "new"})
        self.assertEqual(self.unload(server, "new")[0], 404)
        self.assertEqual(self.load(server, "new", os.path.join(self.root, "sql"))[0], 200)  # other files under the name
        self.assertEqual(self.text(server, "new"), self.text(server, "sql"))
        self.assertEqual(self.refused(server, 401, "POST", "/v1/unload_lora_adapter", {"lora_name": "new"})["code"], "missing_api_key")

    def test_damaged_files_are_refused_and_leave_the_name_free(self):
        damaged = os.path.join(self.root, "damaged")
        os.mkdir(damaged)
        save_json(damaged, "adapter_config.json", {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})
        with open(os.path.join(damaged, "adapter_model.safetensors"), "wb") as file:
            file.write(b"no tensors")
        server = self.updating()
        error = self.refused(server, 400, "POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "damaged"}, ADMIN)
        self.assertEqual(error["param"], "lora_path")
        self.assertEqual(self.load(server, "x", "new")[0], 200)

    def test_links_inside_a_folder_stay_below_the_root(self):
        """A folder of links is what huggingface_hub keeps."""
        server = self.updating()
        for name, target, status in (("hub", self.paths["new"], 200), ("leak", self.outside, 400)):
            os.mkdir(os.path.join(self.root, name))
            self.addCleanup(shutil.rmtree, os.path.join(self.root, name))
            for file in os.listdir(target):
                os.symlink(os.path.join(target, file), os.path.join(self.root, name, file))
            self.assertEqual(self.load(server, name, name)[0], status)
        error = self.refused(server, 400, "POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "leak"}, ADMIN)
        self.assertIn("lead out of the server's lora_root", error["message"])

    def moving(self, name, seed, base=None):
        """A function that changes the files of a new adapter, paths[name]."""
        folder = os.path.join(self.root, name)
        self.addCleanup(shutil.rmtree, folder)

        def change(to):
            shutil.rmtree(folder, ignore_errors=True)
            make_adapter(folder, to, base=base)

        change(seed)
        self.paths[name] = folder
        return change

    def assert_cannot_be_used(self, server, name, log, reason):
        error = self.refused(server, 500, "POST", "/v1/completions", {**SHORT, "model": name})
        self.assertNotIn(self.folder, error["message"])
        self.assertIn("log", error["message"])
        log.seek(0)
        self.assertIn(reason, log.read())

    def test_files_that_have_changed_are_not_used_under_the_old_name(self):
        change = self.moving("moving", 40)
        log = self.kept_here.enter_context(tempfile.TemporaryFile("w+"))
        server = self.updating("--worker-processes", modules=("moving", "poet"), log=log)
        before, poet = self.text(server, "moving"), self.text(server, "poet")
        change(41)
        self.assertEqual(self.text(server, "moving"), before)  # it is loaded
        (worker,) = server.stats()["worker_pids"]
        os.kill(worker, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while server.stats()["worker_pids"] in ([], [worker]):
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.text(server, "poet"), poet)
        self.assert_cannot_be_used(server, "moving", log, 'adapter "moving" cannot be loaded: its files have changed')
        change(40)
        self.assertEqual(self.text(server, "moving"), before)  # the next request tries again
        change(41)
        self.assertEqual(self.unload(server, "moving")[0], 200)
        self.assertEqual(self.load(server, "moving", "moving")[0], 200)
        self.assertNotEqual(self.text(server, "moving"), before)

    def test_one_that_was_evicted_is_checked_when_it_comes_back(self):
        change = self.moving("evicted", 42)
        log = self.kept_here.enter_context(tempfile.TemporaryFile("w+"))
        server = self.serve("--max-loras", "1", "--max-cpu-loras", "1", modules=("evicted", "poet"), log=log)
        before = self.text(server, "evicted")
        poet = self.text(server, "poet")
        change(43)
        self.assert_cannot_be_used(server, "evicted", log, 'adapter "evicted" cannot be loaded: its files have changed')
        shutil.rmtree(self.paths["evicted"])
        self.assert_cannot_be_used(server, "evicted", log, "no such adapter")
        self.assertEqual(self.text(server, "poet"), poet)
        change(42)
        self.assertEqual(self.text(server, "evicted"), before)

    def test_recovered_requests_keep_the_adapter_that_a_client_had_loaded(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as slow:
            flags = slow_model(model, slow)
            restore = self.moving("same", 44, slow)
            change = self.moving("changed", 45, slow)
            server = KilledServer(pagoda, slow, *flags, "--enable-lora", "--enable-lora-updates", "--lora-root", self.root, "--admin-key-file",
                                  self.admin, journal=os.path.join(folder, "journal"))
            self.kept_here.callback(server.log.close)
            self.kept_here.callback(server.end)
            server.start()
            body = {"prompt": SHORT["prompt"], "max_tokens": 150, "temperature": 0, "ignore_eos": True}
            expected = {}
            for name in ("same", "changed"):
                self.assertEqual(self.load(server, name, name)[0], 200)
                expected[name] = server.json("POST", "/v1/completions", {**body, "model": name})["choices"][0]["text"]
            streams = {name: HttpStream(server, "/v1/completions", {**body, "model": name}, name) for name in expected}
            while min(len(stream.events) for stream in streams.values()) < 3:
                time.sleep(0.01)
            server.kill()
            self.assertFalse(any(stream.ended.is_set() for stream in streams.values()), "they were too fast")
            change(46)
            server.start()
            for stream in streams.values():
                self.assertTrue(stream.ended.wait(60))
            texts = {name: "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"]
                                   for event in stream.events if "choices" in event) for name, stream in streams.items()}
            self.assertEqual(texts["same"], expected["same"])
            self.assertTrue(expected["changed"].startswith(texts["changed"]))
            self.assertIn("the server's log has the reason", " ".join(streams["changed"].events))
            self.assertIn("other files than when the request began", server.said())
            listed = [entry["id"] for entry in server.json("GET", "/v1/models")["data"]]
            self.assertEqual(sorted(listed[1:]), ["changed", "same"])
            # A stream that has ended needs no adapter, however often its server is killed.
            shutil.rmtree(self.paths["same"])
            for _ in range(2):
                server.kill()
                server.start()
                again = HttpStream(server, "/v1/completions", {**body, "model": "same"}, "same", num_connections=1)
                self.assertTrue(again.ended.wait(60))
                self.assertIsNone(again.problem)
                self.assertEqual(again.events, streams["same"].events)
            restore(44)

    def test_json_lines(self):
        server = self.updating(json_lines=True)
        alone = {name: self.text(server, name) for name in ("base", "poet")}
        with socket.create_connection((server.host, server.json_lines_port)) as connection:
            lines = connection.makefile("rw", encoding="utf-8")

            def ask(**message):
                lines.write(json.dumps(message) + "\n")
                lines.flush()
                return json.loads(lines.readline())

            def text(**fields):
                event = ask(id="g", stream=False, **SHORT, **fields)
                return event["outputs"][0]["text"] if event["event"] == "done" else event["error"]["code"]

            self.assertEqual(text(), alone["base"])
            self.assertEqual(text(adapter="poet"), alone["poet"])
            self.assertEqual(text(model="poet"), alone["poet"])
            self.assertEqual(text(adapter="nobody"), "unknown_adapter")
            self.assertIn("Did you mean `poet`?", ask(id="g", adapter="peot", **SHORT)["error"]["message"])
            self.assertEqual(ask(op="load_adapter", name="new", path="new")["error"]["code"], "unauthorized")
            self.assertEqual(ask(op="auth", key="admin")["event"], "ok")
            self.assertEqual(ask(op="load_adapter", name="new", path="new")["event"], "ok")
            self.assertEqual(text(adapter="new"), self.text(server, "new"))  # HTTP knows it too
            self.assertEqual([each["name"] for each in ask(op="adapters")["adapters"]], ["sql", "poet", "new"])
            self.assertEqual(ask(op="unload_adapter", name="new")["event"], "ok")
            self.assertEqual(text(adapter="new"), "unknown_adapter")
            self.refused(server, 404, "POST", "/v1/completions", {**SHORT, "model": "new"})

    def test_the_access_log_names_the_adapter(self):
        log = os.path.join(self.folder, "access")
        with Server(pagoda, model, "--enable-lora", "--lora-modules", f"sql={self.paths['sql']}", "--access-log", log) as server:
            self.text(server, "sql")
        with open(log, encoding="utf-8") as file:
            self.assertEqual([json.loads(line)["model"] for line in file], ["sql"])

    def run_pagoda(self, *arguments):
        return subprocess.run([pagoda, *arguments], capture_output=True, text=True, timeout=600, check=False)

    def test_generate_and_run_batch(self):
        server = self.serve()
        alone = self.text(server, "sql")
        flags = ["--model", model, "--threads", "1", "--num-device-blocks", "64", "--enable-lora", "--lora-modules",
                 f"sql={self.paths['sql']}"]
        done = self.run_pagoda("generate", *flags, "--adapter", "sql", "--prompt", SHORT["prompt"], "--max-tokens", "12",
                               "--temperature", "0", "--ignore-eos")
        self.assertEqual((done.returncode, done.stdout), (0, alone + "\n"), done.stderr)
        done = self.run_pagoda("generate", *flags, "--adapter", "nobody", "--prompt", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nobody", done.stderr)
        batch, answers = os.path.join(self.folder, "batch"), os.path.join(self.folder, "answers")
        with open(batch, "w", encoding="utf-8") as file:
            file.write(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {**SHORT, "model": "sql"}}) + "\n")
        done = self.run_pagoda("run-batch", *flags, "-i", batch, "-o", answers)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(answers, encoding="utf-8") as file:
            self.assertEqual(json.loads(file.read())["response"]["body"]["choices"][0]["text"], alone)

    def test_chat_and_bench(self):
        template = os.path.join(self.folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{{ messages[0].content }}")
        flags = ["--model", model, "--threads", "1", "--num-device-blocks", "64", "--enable-lora", "--lora-modules",
                 f"sql={self.paths['sql']},poet={self.paths['poet']}"]
        greedy = ["--prompt", SHORT["prompt"], "--max-tokens", "12", "--temperature", "0", "--ignore-eos"]
        texts = {}
        for name in ("sql", "poet", ""):
            adapter = ["--adapter", name] if name else []
            chat = self.run_pagoda("chat", *flags, "--chat-template", template, *greedy, *adapter)
            plain = self.run_pagoda("generate", *flags, "--no-add-special-tokens", *greedy, *adapter)
            self.assertEqual((chat.returncode, chat.stdout), (0, plain.stdout), chat.stderr)
            texts[name] = chat.stdout
        self.assertEqual(len(set(texts.values())), 3, texts)
        shape = ["--num-prompts", "4", "--input-len", "4", "--output-len", "2", "--json"]
        done = self.run_pagoda("bench", "throughput", *flags, *shape, "--adapter", "sql,poet", "--adapter", "sql")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual((result["adapters"], result["generation_tokens"]), (["sql", "poet", "sql"], 8))
        self.assertNotIn("adapters", json.loads(self.run_pagoda("bench", "throughput", *flags, *shape).stdout))
        for command in (["chat", "--prompt", "x", "--chat-template", template], ["bench", "throughput", *shape]):
            done = self.run_pagoda(*command, *flags, "--adapter", "poets")
            self.assertEqual((done.returncode, done.stdout), (2, ""), command)
            self.assertIn("--adapter poets is none of --lora-modules", done.stderr)
            self.assertIn("sql, poet; did you mean poet?", done.stderr)

    def test_several_models(self):
        models = os.path.join(self.folder, "models.json")
        entry = {"model": model, "num_device_blocks": 64, "enable_lora": True}
        with open(models, "w", encoding="utf-8") as file:
            json.dump({"one": {**entry, "lora_modules": f"sql={self.paths['sql']}"},
                       "two": {**entry, "lora_modules": f"poet={self.paths['poet']}"}}, file)
        server = Server(pagoda, model, "--max-loaded-models", "1", "--threads", "1")
        at = server.command.index("--model")
        server.command[at:at + 2] = ["--models", models]
        with server:
            texts = [self.text(server, name) for name in ("one", "sql", "poet", "two", "sql")]
            self.assertEqual(len(set(texts[:3])), 3, texts)
            self.assertEqual((texts[3], texts[4]), (texts[0], texts[1]))
            self.assertEqual([entry["id"] for entry in server.json("GET", "/v1/models")["data"]], ["one", "sql", "two", "poet"])

    def test_a_broken_adapter_of_several_models(self):
        change = self.moving("sometimes", 47)
        models = os.path.join(self.folder, "some.json")
        entry = {"model": model, "num_device_blocks": 64, "enable_lora": True}
        with open(models, "w", encoding="utf-8") as file:
            json.dump({"one": {**entry, "lora_modules": f"sometimes={self.paths['sometimes']}"}, "two": entry}, file)
        log = self.kept_here.enter_context(tempfile.TemporaryFile("w+"))
        server = Server(pagoda, model, "--threads", "1", log=log)
        at = server.command.index("--model")
        server.command[at:at + 2] = ["--models", models]
        with server:
            shutil.rmtree(self.paths["sometimes"])
            base = self.text(server, "one")
            self.assert_cannot_be_used(server, "sometimes", log, "no such adapter")
            change(47)
            self.assertNotEqual(self.text(server, "sometimes"), base)
        shutil.rmtree(self.paths["sometimes"])
        done = self.run_pagoda(*server.command[1:])
        change(47)
        self.assertNotEqual(done.returncode, 0)
        for part in ("one", 'lora_modules: adapter "sometimes" cannot be loaded', "no such adapter"):
            self.assertIn(part, done.stderr)

    def test_a_start_with_wrong_adapters_is_refused(self):
        for flags, word in ((("--lora-modules", f"base={self.paths['sql']}"), "lora_modules"),
                            (("--lora-modules", "sql=/no/such/folder"), "lora_modules"),
                            (("--lora-modules", "sql"), "NAME=PATH"),
                            (("--enable-lora-updates", "--admin-key-file", self.admin), "lora_root"),
                            (("--enable-lora-updates", "--lora-root", self.root), "admin_key_file"),
                            (("--max-loras", "4", "--max-cpu-loras", "2"), "max_cpu_loras")):
            done = self.run_pagoda("serve", "--model", model, "--served-model-name", "base", "--http", "127.0.0.1:0", "--enable-lora", *flags)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
