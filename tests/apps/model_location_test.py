#!/usr/bin/env python3
"""Tests of how the pagoda command finds a model: folders of the hub's cache, their names, slashes, folders of GGUF files.
Standard library only.

usage: model_location_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

PAGODA, MODEL = sys.argv[1:3]
VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


class Location(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {k: v for k, v in os.environ.items() if k not in VARIABLES} | {"HOME": self.folder}

    def add_to_cache(self, cache, name="models--acme--tiny", commit="0123abc"):
        """Files as the hub's programs lay them out: symlinks to blobs."""
        repository = os.path.join(cache, name)
        snapshot = os.path.join(repository, "snapshots", commit)
        for part in (snapshot, os.path.join(repository, "blobs"), os.path.join(repository, "refs")):
            os.makedirs(part)
        with open(os.path.join(repository, "refs", "main"), "w", encoding="utf-8") as file:
            file.write(commit)
        for number, file in enumerate(sorted(os.listdir(MODEL))):
            if os.path.isfile(os.path.join(MODEL, file)):
                shutil.copy(os.path.join(MODEL, file), os.path.join(repository, "blobs", str(number)))
                os.symlink(f"../../blobs/{number}", os.path.join(snapshot, file))
        return repository

    def run_command(self, *args, stdin="", **variables):
        done = subprocess.run([PAGODA, *args], input=stdin, capture_output=True, text=True, timeout=120,
                              env=self.environment | variables, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def text_of(self, model, **variables):
        code, out, err = self.run_command("generate", "--model", model, "--prompt", "Once", "--max-tokens", "8",
                                          "--temperature", "0", "--threads", "1", **variables)
        self.assertEqual(code, 0, err)
        return out

    def test_a_slash_behind_the_folder_changes_nothing(self):
        self.assertEqual(self.text_of(MODEL + "/"), self.text_of(MODEL))

    def test_a_folder_of_the_cache_and_its_snapshot_are_models(self):
        repository = self.add_to_cache(os.path.join(self.folder, "hub"))
        expected = self.text_of(MODEL)
        for model in (repository, repository + "/", os.path.join(repository, "snapshots", "0123abc", "")):
            self.assertEqual(self.text_of(model), expected)

    def test_a_name_is_looked_for_where_the_variables_say(self):
        expected = self.text_of(MODEL)
        for place, variables in {"a": {"HF_HUB_CACHE": os.path.join(self.folder, "a")},
                                 "b/hub": {"HF_HOME": os.path.join(self.folder, "b")},
                                 "c/huggingface/hub": {"XDG_CACHE_HOME": os.path.join(self.folder, "c")},
                                 ".cache/huggingface/hub": {}, "d/hub": {"HF_HOME": "~/d"}}.items():
            with self.subTest(place=place):
                self.add_to_cache(os.path.join(self.folder, place))
                self.assertEqual(self.text_of("acme/tiny", **variables), expected)
                code, out, err = self.run_command("tokenize", "--model", "acme/tiny", stdin="Once", **variables)
                self.assertEqual((code, out[:1]), (0, "["), err)
                shutil.rmtree(os.path.join(self.folder, place))

    def test_a_path_wins_over_a_name(self):
        self.add_to_cache(os.path.join(self.folder, ".cache/huggingface/hub"))
        os.makedirs(os.path.join(self.folder, "acme", "tiny"))
        code, _, err = self.run_command("generate", "--model", "acme/tiny", "--prompt", "a")
        self.assertEqual(code, 2)
        self.assertIn("acme/tiny/config.json", err)

    def test_a_name_that_is_not_there_says_where_it_was_looked_for(self):
        for command in (["generate", "--prompt", "a"], ["serve"], ["inspect"], ["tokenize"], ["doctor"]):
            code, out, err = self.run_command(*command, "--model", "acme/other", HF_HOME="/nowhere")
            self.assertIn(code, (1, 2), command)
            self.assertIn("/nowhere/hub/models--acme--other", out + err, command)
            self.assertIn("local cache only", out + err, command)

    def test_warnings_about_files_go_to_standard_error(self):
        model = shutil.copytree(MODEL, os.path.join(self.folder, "model"))
        os.remove(os.path.join(model, "tokenizer_config.json"))  # its added_tokens_decoder would be all that counts
        with open(os.path.join(model, "added_tokens.json"), "w", encoding="utf-8") as file:
            json.dump({"<new>": 100000}, file)
        code, out, err = self.run_command("tokenize", "--model", model, stdin="Once<new>")
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out.splitlines()), 1, out)
        self.assertIn("added token \"<new>\"", err)
        self.assertLess(json.loads(out)[-1], 100000)

    def test_a_server_calls_the_model_by_its_name_in_the_hub(self):
        self.add_to_cache(os.path.join(self.folder, "hub"))
        models = os.path.join(self.folder, "models.json")
        with open(models, "w", encoding="utf-8") as file:
            json.dump({"a": {"model": "acme/tiny", "kv_cache_memory": 0.01}}, file)
        for flags, name in ((["acme/tiny"], "acme/tiny"), (["--models", models], "a")):
            server = subprocess.Popen([PAGODA, "serve", *flags, "--http", "127.0.0.1:0", "--listen", "none", "--threads", "1"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                      env=self.environment | {"HF_HOME": self.folder})
            try:
                port = re.search(r":(\d+)$", server.stdout.readline().strip()).group(1)
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30) as answer:
                    self.assertEqual(json.load(answer)["data"][0]["id"], name)
                body = {"model": name, "prompt": "Once", "max_tokens": 2}
                request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self.assertEqual(json.load(answer)["model"], name)
            finally:
                server.terminate()
                server.wait(60)
                server.stdout.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
