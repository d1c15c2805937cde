#!/usr/bin/env python3
"""What files of a model do to the pagoda command: those that are damaged or made to do harm, and the sampling parameters of
generation_config.json. Standard library only.

usage: model_files_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import shutil
import sys
import tempfile
import unittest

from pagoda_command import MODEL, run


class ForeignFiles(unittest.TestCase):
    """Files of models that were damaged, or made to do harm, end the command in one line that names them."""

    DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
    FOLDER_FILES = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors")

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def copy(self, without=()):
        folder = tempfile.mkdtemp(dir=self.folder)
        return shutil.copytree(MODEL, folder, ignore=lambda _, files: [f for f in files if f in without], dirs_exist_ok=True)

    def generate(self, model):
        return run("generate", "--model", model, "--prompt", "Once", "--max-tokens", "2", "--threads", "1")

    def assert_refused(self, model, file):
        code, out, err = self.generate(model)
        self.assertIn(code, (1, 2), err)
        self.assertEqual(out, "")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(file, err)

    def assert_folder_refused(self, file, content, without=()):
        model = self.copy(without)
        with open(os.path.join(model, file), "wb") as written:
            written.write(content)
        self.assert_refused(model, file)

    @staticmethod
    def read(*path):
        with open(os.path.join(*path), "rb") as file:
            return file.read()

    def test_damaged_files_of_a_folder_are_named(self):
        far = (2**63).to_bytes(8, "little")
        for file in self.FOLDER_FILES:
            whole = self.read(MODEL, file)
            damaged = {"empty": b"", "cut": whole[:len(whole) // 2], "zeros": bytes(64), "other": b"\x7fELF" + whole[4:]}
            if file.endswith(".json"):
                damaged |= {"array": b"[]", "deep": b"[" * 100000, "not_utf8": b'{"\xff\xfe": 1}x', "number": b"1e999"}
            else:
                damaged |= {"length": far + whole[8:], "one_byte_less": whole[:-1], "a_byte_more": whole + b"x"}
            for damage, content in damaged.items():
                with self.subTest(file=file, damage=damage):
                    self.assert_folder_refused(file, content)

    def test_damaged_files_of_pytorch_are_named(self):
        whole = self.read(self.DATA, "torch", "module.bin")
        for damage, content in {"empty": b"", "cut": whole[:len(whole) // 2], "zeros": bytes(64), "without_end": whole[:-20],
                                "no_zip": b"\x80\x02" + whole[2:],
                                "other_model": whole, "older": self.read(self.DATA, "torch", "legacy.bin")}.items():
            with self.subTest(damage=damage):
                self.assert_folder_refused("pytorch_model.bin", content, without=["model.safetensors"])

    def test_damaged_gguf_files_are_named(self):
        whole = self.read(self.DATA, "gguf", "llama-gqa-bf16.gguf")
        many = (2**64 - 1).to_bytes(8, "little")
        for damage, content in {"empty": b"", "magic": whole[:4], "cut": whole[:len(whole) // 2], "one_byte_less": whole[:-1],
                                "zeros": bytes(64), "version": whole[:4] + many[:4] + whole[8:],
                                "tensors": whole[:8] + many + whole[16:], "keys": whole[:16] + many + whole[24:],
                                "key": whole[:24] + many + whole[32:]}.items():
            with self.subTest(damage=damage):
                path = os.path.join(self.folder, "damaged.gguf")
                with open(path, "wb") as file:
                    file.write(content)
                self.assert_refused(path, path)

    def test_links_to_nothing_to_themselves_or_to_a_device_are_named(self):
        targets = {"nothing": lambda path: "/nowhere/file", "itself": lambda path: path, "device": lambda path: "/dev/zero"}
        for kind, target in targets.items():
            for file in self.FOLDER_FILES:
                with self.subTest(file=file, kind=kind):
                    model = self.copy(without=[file])
                    path = os.path.join(model, file)
                    os.symlink(target(path), path)
                    self.assert_refused(model, file)
            with self.subTest(file="model.gguf", kind=kind):
                path = os.path.join(tempfile.mkdtemp(dir=self.folder), "model.gguf")
                os.symlink(target(path), path)
                self.assert_refused(path, path)

    def test_a_pipe_is_no_model(self):
        path = os.path.join(self.folder, "pipe")
        os.mkfifo(path)
        self.assert_refused(path, path)

    def test_code_that_comes_with_a_model_is_not_run(self):
        model = self.copy()
        run_file = os.path.join(self.folder, "was_run")
        with open(os.path.join(model, "own.py"), "w", encoding="utf-8") as file:
            file.write(f"open({run_file!r}, 'w')\nclass Own: pass\n")
        for name in ("config.json", "tokenizer_config.json"):
            path = os.path.join(model, name)
            content = {}
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    content = json.load(file)
            content["auto_map"] = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoTokenizer": ["own.Own", None]}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
        code, out, err = self.generate(model)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, self.generate(MODEL)[1])
        self.assertFalse(os.path.exists(run_file))


class GenerationConfig(unittest.TestCase):
    """A model folder whose generation_config.json makes every draw greedy and five tokens long."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = folder.name
        for name in os.listdir(MODEL):
            if name != "generation_config.json":
                os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(self.model, name))
        self.write({"eos_token_id": [1], "do_sample": True, "temperature": 0.9, "top_k": 1, "max_new_tokens": 5})

    def write(self, content):
        with open(os.path.join(self.model, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)

    def tokens(self, *flags, **fields):
        line = json.dumps({"prompt": "Once upon a time", "ignore_eos": True, **fields})
        code, out, err = run("generate", "--model", self.model, "--threads", "1", "--prompts", "-", "--output", "json",
                             *flags, stdin=line + "\n")
        self.assertEqual(code, 0, err)
        done = json.loads(out)
        self.assertEqual(done["event"], "done", out)
        return done["outputs"][0]["token_ids"]

    def test_its_values_fill_what_a_request_leaves_open(self):
        greedy = self.tokens(temperature=0, max_tokens=5)
        self.assertEqual(self.tokens(seed=1), greedy)
        self.assertEqual(self.tokens(seed=2), greedy)

    def test_fields_and_flags_win(self):
        self.assertEqual(len(self.tokens(max_tokens=9)), 9)
        self.assertEqual(len(self.tokens("--max-tokens", "8")), 8)
        drawn = {tuple(self.tokens(seed=seed, top_k=-1, temperature=3.0)) for seed in range(4)}
        self.assertGreater(len(drawn), 1)

    def test_it_can_be_left_out_of_account(self):
        self.assertEqual(len(self.tokens("--generation-config", "vllm")), 16)

    def test_another_folder_may_have_it(self):
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "generation_config.json"), "w", encoding="utf-8") as file:
                json.dump({"max_new_tokens": 3}, file)
            self.assertEqual(len(self.tokens("--generation-config", other)), 3)
        code, _, err = run("generate", "--model", self.model, "--prompt", "a", "--generation-config", "/nowhere")
        self.assertEqual(code, 2)
        self.assertIn("generation_config must be auto, vllm, or a folder", err)

    def test_beam_search_takes_only_its_length(self):
        self.assertEqual(len(self.tokens(use_beam_search=True, n=2, temperature=0)), 5)

    def test_a_wrong_value_is_bad_config_that_names_the_file_and_the_key(self):
        self.write({"temperature": -1})
        code, _, err = run("generate", "--model", self.model, "--prompt", "a")
        self.assertEqual(code, 2)
        self.assertIn("generation_config.json: temperature", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
