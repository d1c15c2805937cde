#!/usr/bin/env python3
"""`pagoda quantize`: what it writes, read by a reader of its own; how near the model stays; what it refuses.

usage: quantize_test.py PAGODA MODEL_DIR
"""
import array
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PAGODA = MODEL = None


def run(*arguments):
    return subprocess.run([PAGODA, *arguments], capture_output=True, text=True, timeout=500)


def read_json(path):
    with open(path) as file:
        return json.load(file)


def read_safetensors(path):
    """name -> (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


def bfloat16s(data):
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


class Quantize(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "out")

    def quantize(self, *flags, model=None):
        ended = run("quantize", "--model", model or MODEL, "--out", self.out, "--calibration-tokens", "4096", "--json", *flags)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def refused(self, word, *flags, code=2):
        ended = run("quantize", "--model", MODEL, *flags)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertIn(word, ended.stderr)
        self.assertEqual(ended.stdout, "")

    def divergence(self, *model):
        text = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
        ended = run("bench", "accuracy", "--reference", MODEL, "--text", text, "--max-tokens", "2048", "--json", "--model", *model)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)["kld_mean"]

    def test_the_written_model_is_nearer_than_one_that_is_rounded_at_load(self):
        report = self.quantize()
        self.assertEqual(report["num_modules"], 6 * 7)
        self.assertEqual(report["calibration_tokens"], 4096)
        self.assertLess(report["written_bytes"], report["model_bytes"] / 2)
        self.assertLess(self.divergence(self.out), 0.75 * self.divergence(MODEL, "--quantize", "int4"))

    def test_integers_and_scales_stand_for_the_weights(self):
        for bits in (4, 8):
            self.out = os.path.join(self.folder, str(bits))
            self.quantize("--bits", str(bits), "--group-size", "16")
            before = read_safetensors(os.path.join(MODEL, "model.safetensors"))
            after = read_safetensors(os.path.join(self.out, "model.safetensors"))
            name = "model.layers.2.mlp.down_proj"
            rows, columns = before[name + ".weight"][1]
            self.assertEqual(after[name + ".weight_packed"][:2], ("I32", [rows, columns * bits // 32]))
            self.assertEqual(after[name + ".weight_scale"][:2], ("F16", [rows, columns // 16]))
            self.assertEqual(struct.unpack("<2q", after[name + ".weight_shape"][2]), (rows, columns))
            self.assertNotIn(name + ".weight", after)
            weights = bfloat16s(before[name + ".weight"][2])
            words = array.array("I", after[name + ".weight_packed"][2])
            scales = struct.unpack(f"<{rows * columns // 16}e", after[name + ".weight_scale"][2])
            per_word = 32 // bits
            squares = errors = 0
            for i, weight in enumerate(weights):
                q = (words[i // per_word] >> (i % per_word * bits) & ((1 << bits) - 1)) - (1 << (bits - 1))
                squares += weight ** 2
                errors += (weight - q * scales[i // 16]) ** 2
            self.assertLess(errors / squares, 0.02 if bits == 4 else 0.0001)
            for other in ("model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight"):
                self.assertEqual(after[other], before[other])

    def test_the_folder_is_a_model_with_all_of_its_files(self):
        self.quantize("--bits", "8", "--group-size", "32")
        self.assertEqual(sorted(os.listdir(self.out)), sorted(os.listdir(MODEL)))
        config = read_json(os.path.join(self.out, "config.json"))
        weights = config.pop("quantization_config")["config_groups"]["group_0"]["weights"]
        self.assertEqual((weights["num_bits"], weights["group_size"], weights["symmetric"]), (8, 32, True))
        self.assertEqual(config, read_json(os.path.join(MODEL, "config.json")))
        prompt = ["--prompt", "Once upon a time", "--max-tokens", "20", "--temperature", "0"]
        texts = [run("generate", "--model", model, *prompt).stdout for model in (MODEL, self.out)]
        self.assertEqual(texts[0], texts[1])

    def test_a_text_may_be_given_to_calibrate_with(self):
        text = os.path.join(self.folder, "text")
        with open(text, "w") as file:
            file.write("Once upon a time there was a fox who lived in a small house. " * 200)
        self.assertEqual(self.quantize("--calibration", text)["calibration_tokens"] % 512, 0)
        self.refused("/nowhere", "--out", self.out + "2", "--calibration", "/nowhere", code=1)
        with open(text, "w") as file:
            file.write("Once")
        self.refused("fewer than", "--out", self.out + "2", "--calibration", text)
        open(text, "w").close()
        self.refused("empty", "--out", self.out + "2", "--calibration", text)
        self.assertFalse(os.path.exists(self.out + "2"))

    def test_the_same_model_gives_the_same_bytes(self):
        self.quantize("--threads", "1")
        first = read_safetensors(os.path.join(self.out, "model.safetensors"))
        shutil.rmtree(self.out)
        self.quantize("--threads", "2")
        self.assertEqual(first, read_safetensors(os.path.join(self.out, "model.safetensors")))

    def test_bad_wishes_are_refused(self):
        self.refused("--out is required")
        self.refused("--bits", "--out", self.out, "--bits", "5")
        self.refused("multiple of 16", "--out", self.out, "--group-size", "20")
        self.refused("do not divide", "--out", self.out, "--group-size", "256")
        self.assertFalse(os.path.exists(self.out))
        os.mkdir(self.out)
        open(os.path.join(self.out, "mine"), "w").close()
        self.refused("not empty", "--out", self.out)
        self.assertEqual(os.listdir(self.out), ["mine"])
        os.remove(os.path.join(self.out, "mine"))
        gguf = os.path.join(self.folder, "model.gguf")
        open(gguf, "w").close()
        ended = run("quantize", "--model", gguf, "--out", self.out)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn("not a Hugging Face folder", ended.stderr)
        self.quantize()
        again = run("quantize", "--model", self.out, "--out", self.out + "2")
        self.assertEqual(again.returncode, 2, again.stderr)
        self.assertIn("quantised already", again.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PAGODA, MODEL = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
