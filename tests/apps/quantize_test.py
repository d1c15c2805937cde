#!/usr/bin/env python3
"""`pagoda quantize`: what it writes, read by a reader of its own; how near the model stays; what it refuses.

usage: quantize_test.py PAGODA MODEL_DIR
"""
import array
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PAGODA = MODEL = None


def run(*arguments):
    return subprocess.run([PAGODA, *arguments], capture_output=True, text=True, timeout=500)


def divergence_from(reference, *model, pagoda):
    """KLD of a model (its flags) from the reference, over this project's README."""
    text = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
    ended = subprocess.run([pagoda, "bench", "accuracy", "--reference", reference, "--text", text, "--max-tokens", "2048",
                            "--json", "--model", *model], capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)["kld_mean"]


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

    def test_the_written_model_is_about_as_near_as_one_of_more_bits_that_is_rounded_at_load(self):
        report = self.quantize()
        self.assertEqual(report["num_modules"], 6 * 7)
        self.assertEqual(report["calibration_tokens"], 4096)
        self.assertLess(report["written_bytes"], report["model_bytes"] / 2)
        # That one has 8 bits in k_proj and v_proj, and minimums that are no whole steps.
        rounded = divergence_from(MODEL, MODEL, "--quantize", "int4", pagoda=PAGODA)
        self.assertLess(divergence_from(MODEL, self.out, pagoda=PAGODA), 1.5 * rounded)

    def written_weight(self, tensors, name, rows, columns, bits, group_size):
        """What the tensors of a module stand for, as compressed-tensors defines it."""
        per_word, groups, mask = 32 // bits, columns // group_size, (1 << bits) - 1
        kind, shape, data = tensors[name + ".weight_packed"]
        self.assertEqual((kind, shape), ("I32", [rows, columns // per_word]))
        words = array.array("I", data)
        kind, shape, data = tensors[name + ".weight_scale"]
        self.assertEqual((kind, shape), ("BF16", [rows, groups]))
        scales = bfloat16s(data)
        self.assertEqual(struct.unpack("<2q", tensors[name + ".weight_shape"][2]), (rows, columns))
        self.assertNotIn(name + ".weight", tensors)
        zeros = [1 << (bits - 1)] * (rows * groups)
        if name + ".weight_zero_point" in tensors:
            kind, shape, data = tensors[name + ".weight_zero_point"]
            self.assertEqual((kind, shape), ("I32", [rows // per_word, groups]))
            packed = array.array("I", data)
            zeros = [packed[r // per_word * groups + g] >> (r % per_word * bits) & mask
                     for r in range(rows) for g in range(groups)]
        weights = [((words[i // per_word] >> (i % per_word * bits) & mask) - zeros[i // group_size])
                   * scales[i // group_size] for i in range(rows * columns)]
        if name + ".R_input.weight" not in tensors:
            return weights
        kind, shape, data = tensors[name + ".R_input.weight"]
        self.assertEqual((kind, shape), ("F32", [32, 32]))
        matrix = array.array("f", data)
        back = []
        for begin in range(0, len(weights), 32):  # a block w' = w R / sqrt(32), so w = w' R^T / sqrt(32)
            block = weights[begin:begin + 32]
            back += [sum(a * b for a, b in zip(block, matrix[32 * i:32 * i + 32])) / 32 ** 0.5 for i in range(32)]
        return back

    def test_integers_and_scales_stand_for_the_weights(self):
        before = read_safetensors(os.path.join(MODEL, "model.safetensors"))
        name = "model.layers.2.mlp.down_proj"
        rows, columns = before[name + ".weight"][1]
        weights = bfloat16s(before[name + ".weight"][2])
        squares = sum(weight ** 2 for weight in weights)
        for bits, group_size, flags in ((4, 32, []), (4, 16, ["--no-rotate"]), (4, 32, ["--no-zero-points"]),
                                        (4, 32, ["--no-rotate", "--no-zero-points"]), (8, 16, ["--no-rotate"]), (8, 32, [])):
            self.out = os.path.join(self.folder, str(bits) + "".join(flags))
            self.quantize("--bits", str(bits), "--group-size", str(group_size), *flags)
            after = read_safetensors(os.path.join(self.out, "model.safetensors"))
            self.assertEqual(name + ".R_input.weight" in after, "--no-rotate" not in flags)
            self.assertEqual(name + ".weight_zero_point" in after, "--no-zero-points" not in flags)
            written = self.written_weight(after, name, rows, columns, bits, group_size)
            errors = sum((a - b) ** 2 for a, b in zip(weights, written))
            self.assertLess(errors / squares, 0.02 if bits == 4 else 0.0002, flags)
            for other in ("model.embed_tokens.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight"):
                self.assertEqual(after[other], before[other])
            config = read_json(os.path.join(self.out, "config.json"))["quantization_config"]
            self.assertEqual("transform_config" in config, "--no-rotate" not in flags)

    def test_layers_that_need_them_have_8_bits(self):
        plain = self.quantize()
        nearness = divergence_from(MODEL, self.out, pagoda=PAGODA)
        self.assertEqual((plain["bits_per_weight"], plain["num_8bit_modules"]), (4.625, 0))
        self.out = os.path.join(self.folder, "mixed")
        mixed = self.quantize("--bits-per-weight", "5.5")
        self.assertLessEqual(mixed["bits_per_weight"], 5.5)
        self.assertGreater(mixed["bits_per_weight"], 5.3)
        self.assertLess(divergence_from(MODEL, self.out, pagoda=PAGODA), 0.8 * nearness)

        groups = read_json(os.path.join(self.out, "config.json"))["quantization_config"]["config_groups"]
        named = {group["weights"]["num_bits"]: set(group["targets"]) for group in groups.values()}
        self.assertEqual(sorted(named), [4, 8])
        self.assertEqual(len(named[8]), mixed["num_8bit_modules"])
        inspected = [json.loads(run("inspect", "--model", model, "--json").stdout)["model"]["num_parameters"]
                     for model in (MODEL, self.out)]
        self.assertEqual(*inspected)
        tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
        weights = read_safetensors(os.path.join(MODEL, "model.safetensors"))
        bits = {}
        for name in tensors:
            module, _, ending = name.rpartition(".")
            if ending == "weight_packed":
                rows, columns = weights[module + ".weight"][1]
                bits[module] = tensors[name][1][1] * 32 // columns
                if not module.endswith("5.mlp.down_proj") and not module.endswith("3.self_attn.k_proj"):
                    continue
                written = self.written_weight(tensors, module, rows, columns, bits[module], 32)
                right = bfloat16s(weights[module + ".weight"][2])
                errors = sum((a - b) ** 2 for a, b in zip(right, written)) / sum(weight ** 2 for weight in right)
                self.assertLess(errors, 0.03 if bits[module] == 4 else 0.0003, module)
        self.assertEqual({count: {module for module in bits if bits[module] == count} for count in (4, 8)}, named)
        for layer in range(6):  # layers of one input are alike
            def of(*names):
                return {bits[f"model.layers.{layer}.{name}"] for name in names}
            self.assertEqual(len(of("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")), 1)
            self.assertEqual(len(of("mlp.gate_proj", "mlp.up_proj")), 1)
        # The limits give all layers the one number of bits or the other.
        for limit, count in (("4.625", 0), ("8.75", 42)):
            self.out = os.path.join(self.folder, limit)
            self.assertEqual(self.quantize("--bits-per-weight", limit)["num_8bit_modules"], count)

    def test_the_folder_is_a_model_with_all_of_its_files(self):
        model = os.path.join(self.folder, "model")
        shutil.copytree(MODEL, model)
        os.mkdir(os.path.join(model, "additional_chat_templates"))
        with open(os.path.join(model, "additional_chat_templates", "tool_use.jinja"), "w") as file:
            file.write("{{ messages }}")
        os.symlink("/nowhere", os.path.join(model, "README"))
        self.quantize("--bits", "8", "--group-size", "32", "--no-zero-points", model=model)
        self.assertEqual(sorted(os.listdir(self.out)), sorted(set(os.listdir(model)) - {"README"}))
        self.assertEqual(os.listdir(os.path.join(self.out, "additional_chat_templates")), ["tool_use.jinja"])
        config = read_json(os.path.join(self.out, "config.json"))
        weights = config.pop("quantization_config")["config_groups"]["group_0"]["weights"]
        self.assertEqual((weights["num_bits"], weights["group_size"], weights["symmetric"]), (8, 32, True))
        self.assertEqual(config, read_json(os.path.join(MODEL, "config.json")))
        # In float32, because some processors round what meets bfloat16 weights.
        prompt = ["--prompt", "Once upon a time", "--max-tokens", "20", "--temperature", "0", "--dtype", "float32"]
        texts = [run("generate", "--model", model, *prompt).stdout for model in (MODEL, self.out)]
        self.assertEqual(texts[0], texts[1])

    def test_a_text_may_be_given_to_calibrate_with(self):
        text = os.path.join(self.folder, "text")
        with open(text, "w") as file:
            file.write("Once upon a time there was a fox who lived in a small house. " * 200)
        self.assertEqual(self.quantize("--calibration", text)["calibration_tokens"], 3584)
        own = self.out + "1"
        self.assertEqual(json.loads(run("quantize", "--model", MODEL, "--out", own, "--calibration-tokens", "3300", "--json")
                                    .stdout)["calibration_tokens"], 3584)
        self.assertNotEqual(*(read_safetensors(os.path.join(out, "model.safetensors")) for out in (self.out, own)))
        self.refused("Is a directory", "--out", self.out + "2", "--calibration", "/", code=1)
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

    def test_another_rotation_is_refused(self):
        self.quantize()
        path = os.path.join(self.out, "model.safetensors")
        with open(path, "rb") as file:
            data = bytearray(file.read())
        length = struct.unpack("<Q", data[:8])[0]
        name = "model.layers.1.self_attn.o_proj.R_input.weight"
        begin = 8 + length + json.loads(data[8:8 + length])[name]["data_offsets"][0]
        data[begin + 4 * 33:begin + 4 * 34] = struct.pack("<f", -struct.unpack_from("<f", data, begin + 4 * 33)[0])
        with open(path, "wb") as file:
            file.write(data)
        ended = run("generate", "--model", self.out, "--prompt", "Once")
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn(name, ended.stderr)
        self.assertIn("is not the rotation that pagoda quantize writes", ended.stderr)

    def test_one_that_was_killed_can_be_begun_again(self):
        started = subprocess.Popen([PAGODA, "quantize", "--model", MODEL, "--out", self.out])
        part = os.path.join(self.out, "model.safetensors.part")
        deadline = time.monotonic() + 120
        while not os.path.exists(part) and time.monotonic() < deadline and started.poll() is None:
            time.sleep(0.01)
        started.kill()
        started.wait()
        self.assertEqual(os.listdir(self.out), ["model.safetensors.part"])
        self.quantize()
        self.assertEqual(sorted(os.listdir(self.out)), sorted(os.listdir(MODEL)))

    def test_a_model_may_know_more_positions_than_memory_holds(self):
        model = os.path.join(self.folder, "model")
        shutil.copytree(MODEL, model)
        config = read_json(os.path.join(model, "config.json"))
        config["max_position_embeddings"] = 1 << 28
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump(config, file)
        self.quantize(model=model)

    def test_what_cannot_be_finished_leaves_nothing(self):
        ended = subprocess.run(["bash", "-c", 'ulimit -f 200; exec "$@"', "bash", PAGODA, "quantize", "--model", MODEL,
                                "--out", self.out, "--calibration-tokens", "512"], capture_output=True, text=True, timeout=500,
                               preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("File too large", ended.stderr)
        self.assertFalse(os.path.exists(self.out))

    def test_bad_wishes_are_refused(self):
        self.refused("--out is required")
        self.refused("--bits", "--out", self.out, "--bits", "5")
        self.refused("must be 4.625 to 8.75 here, not 4.5", "--out", self.out, "--bits-per-weight", "4.5")
        self.refused("must be 4.3125 to 8.375 here", "--out", self.out, "--bits-per-weight", "8.5", "--group-size", "64")
        self.refused("needs --bits 4", "--out", self.out, "--bits-per-weight", "5", "--bits", "8")
        self.refused("--bits-per-weight", "--out", self.out, "--bits-per-weight", "nan")
        self.refused("multiple of 16", "--out", self.out, "--group-size", "20")
        self.refused("do not divide", "--out", self.out, "--group-size", "256")
        self.refused("multiple of 32", "--out", self.out, "--group-size", "16")
        self.refused("--calibration-tokens", "--out", self.out, "--calibration-tokens", "1000000000000")
        self.assertFalse(os.path.exists(self.out))
        self.refused("not a folder", "--out", os.path.join(MODEL, "config.json"))
        os.mkdir(self.out)
        open(os.path.join(self.out, "mine"), "w").close()
        self.refused("not empty", "--out", self.out)
        self.assertEqual(os.listdir(self.out), ["mine"])
        os.remove(os.path.join(self.out, "mine"))
        self.quantize()
        again = run("quantize", "--model", self.out, "--out", self.out + "2")
        self.assertEqual(again.returncode, 2, again.stderr)
        self.assertIn("quantised already", again.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PAGODA, MODEL = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
