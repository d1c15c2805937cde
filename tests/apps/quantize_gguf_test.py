#!/usr/bin/env python3
"""`pagoda quantize` to GGUF files, of folders and of GGUF files: what is in them, how near the model stays, what is refused.

usage: quantize_gguf_test.py PAGODA MODEL_DIR SHARED_DIR
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import gguf_files
from quantize_test import bfloat16s, divergence_from, read_json, read_safetensors

PAGODA = MODEL = SHARED = None

TEXTS = ["Once upon a time", "", " ", "   a\n\n\t b  \r\n", "naïve café Ελλάδα 漢字 עברית", "👩‍🚀🏽🇩🇪 e\u0301 \u200b\ufeff",
         "<|begin_of_text|>x<|end_of_text|> <|end_of_text|", "1234567 3.14 -5", "don't WE'LL \u017ft", "\u0000\u0001\ud7ff\uffff"]


def run(*arguments, text=""):
    return subprocess.run([PAGODA, *arguments], capture_output=True, text=True, input=text, timeout=500)


class QuantizeGguf(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "out.gguf")

    def quantize(self, *flags, model=None, out=None):
        ended = run("quantize", "--model", model or MODEL, "--out", out or self.out, "--calibration-tokens", "4096", "--json",
                    *flags)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def refused(self, *words, flags=(), model=None, out=None, code=2):
        ended = run("quantize", "--model", model or MODEL, "--out", out or self.out, "--calibration-tokens", "512", *flags)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        for word in words:
            self.assertIn(word, ended.stderr)
        self.assertEqual(ended.stdout, "")

    def changed_model(self, file, change):
        model = os.path.join(self.folder, "model")
        shutil.copytree(MODEL, model)
        content = read_json(os.path.join(model, file))
        change(content)
        with open(os.path.join(model, file), "w") as out:
            json.dump(content, out)
        return model

    def plain_gguf(self, path):
        """The model as a GGUF file without quantised weights, made of one with them and of the folder."""
        keys, tensors = gguf_files.read_gguf(self.out)
        keys["general.file_type"] = (4, 32)
        weights = read_safetensors(os.path.join(MODEL, "model.safetensors"))
        for name, (dtype, shape, data) in weights.items():
            if ".layers." not in name or len(shape) != 2:
                continue
            heads = {"q": 8, "k": 4}.get(name.split(".")[-2][0]) if "self_attn" in name else None
            rows = [data[i:i + 2 * shape[1]] for i in range(0, len(data), 2 * shape[1])]
            rows = gguf_files.interleaved(rows, heads) if heads else rows
            tensors[self.gguf_name(name)] = (gguf_files.BF16, shape, b"".join(rows))
        gguf_files.write_gguf(path, keys, tensors)

    @staticmethod
    def gguf_name(name):
        layer, module = name.split(".")[2], name.split(".")[-2]
        parts = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
                 "up_proj": "ffn_up", "down_proj": "ffn_down"}
        return f"blk.{layer}.{parts[module]}.weight"

    def test_a_folder_becomes_a_file_with_the_same_model(self):
        report = self.quantize()
        self.assertEqual(report["num_modules"], 6 * 7)
        self.assertEqual(report["bits_per_weight"], 5)
        self.assertEqual(report["written_bytes"], os.path.getsize(self.out))
        self.assertEqual(os.listdir(self.folder), ["out.gguf"])
        keys, tensors = gguf_files.read_gguf(self.out)
        values = {key: value for key, (kind, value) in keys.items()}
        self.assertEqual(next(iter(keys)), "general.architecture")
        for key, value in (("general.architecture", "llama"), ("general.file_type", 3), ("general.quantization_version", 2),
                           ("llama.block_count", 6), ("llama.attention.head_count", 8), ("llama.attention.head_count_kv", 4),
                           ("llama.rope.dimension_count", 16), ("llama.vocab_size", 1024), ("tokenizer.ggml.model", "gpt2"),
                           ("tokenizer.ggml.pre", "smaug-bpe"), ("tokenizer.ggml.bos_token_id", 0),
                           ("tokenizer.ggml.eos_token_id", 1), ("tokenizer.ggml.add_bos_token", True),
                           ("tokenizer.ggml.add_eos_token", False)):
            self.assertEqual(values[key], value, key)
        self.assertEqual(keys["llama.rope.freq_base"], (6, 10000.0))
        self.assertAlmostEqual(values["general.sampling.temp"], 0.8, places=6)
        template = read_json(os.path.join(MODEL, "tokenizer_config.json"))["chat_template"]
        self.assertEqual(values["tokenizer.chat_template"], template)
        before = read_safetensors(os.path.join(MODEL, "model.safetensors"))
        self.assertEqual(len(tensors), len(before))
        self.assertEqual(tensors["token_embd.weight"], (gguf_files.BF16, [1024, 128], before["model.embed_tokens.weight"][2]))
        self.assertEqual(tensors["blk.3.attn_norm.weight"][:2], (gguf_files.F32, [128]))
        self.assertEqual({kind for name, (kind, shape, data) in tensors.items() if name.startswith("blk.") and len(shape) == 2},
                         {gguf_files.Q4_1})
        for text in TEXTS:
            ids = [run("tokenize", "--model", model, text=text).stdout for model in (MODEL, self.out)]
            self.assertEqual(*ids, text)

    def test_written_models_are_about_as_near_as_one_of_more_bits_that_is_rounded_at_load(self):
        rounded = divergence_from(MODEL, MODEL, "--quantize", "int4", pagoda=PAGODA)
        for bits, flags, most in ((5, [], 1.5), (4.5, ["--no-zero-points"], 2), (8.5, ["--bits", "8"], 0.05)):
            out = os.path.join(self.folder, f"{bits}.gguf")
            self.assertEqual(self.quantize(*flags, out=out)["bits_per_weight"], bits)
            self.assertLess(divergence_from(MODEL, out, pagoda=PAGODA), most * rounded, flags)

    def test_layers_that_need_them_are_q8_0(self):
        self.quantize()
        nearness = divergence_from(MODEL, self.out, pagoda=PAGODA)
        self.out = os.path.join(self.folder, "mixed.gguf")
        report = self.quantize("--bits-per-weight", "5.5")
        self.assertLessEqual(report["bits_per_weight"], 5.5)
        self.assertGreater(report["bits_per_weight"], 5.3)
        self.assertLess(divergence_from(MODEL, self.out, pagoda=PAGODA), 0.8 * nearness)
        keys, tensors = gguf_files.read_gguf(self.out)
        self.assertEqual(keys["general.file_type"], (4, 3), "mostly Q4_1")
        kinds = [kind for name, (kind, *_) in tensors.items() if name.startswith("blk.") and "norm" not in name]
        self.assertEqual(set(kinds), {gguf_files.Q4_1, gguf_files.Q8_0})
        self.assertEqual(kinds.count(gguf_files.Q8_0), report["num_8bit_modules"])
        self.out = os.path.join(self.folder, "wide.gguf")
        self.assertGreater(self.quantize("--bits-per-weight", "8")["num_8bit_modules"], 30)
        self.assertEqual(gguf_files.read_gguf(self.out)[0]["general.file_type"], (4, 7), "mostly Q8_0")
        self.refused("must be 5.0 to 8.5 here", out=self.out + "2.gguf", flags=("--bits-per-weight", "4.9"))
        self.refused("must be 4.5 to 8.5 here", out=self.out + "2.gguf", flags=("--bits-per-weight", "9", "--no-zero-points"))

    def test_blocks_stand_for_the_weights(self):
        before = read_safetensors(os.path.join(MODEL, "model.safetensors"))
        for kind, flags, most in ((gguf_files.Q4_1, [], 0.02), (gguf_files.Q4_0, ["--no-zero-points"], 0.02),
                                  (gguf_files.Q8_0, ["--bits", "8"], 0.0002)):
            out = os.path.join(self.folder, f"{kind}.gguf")
            self.quantize(*flags, out=out)
            tensors = gguf_files.read_gguf(out)[1]
            for module, heads in (("self_attn.q_proj", 8), ("self_attn.k_proj", 4), ("mlp.down_proj", None)):
                name = f"model.layers.2.{module}.weight"
                shape, data = before[name][1:]
                rows = [bfloat16s(data[i:i + 2 * shape[1]]) for i in range(0, len(data), 2 * shape[1])]
                weights = [x for row in (gguf_files.interleaved(rows, heads) if heads else rows) for x in row]
                written = tensors[self.gguf_name(name)]
                self.assertEqual(written[:2], (kind, shape))
                errors = sum((a - b) ** 2 for a, b in zip(weights, gguf_files.dequantized(kind, written[2])))
                self.assertLess(errors / sum(x ** 2 for x in weights), most, (kind, module))

    def test_a_gguf_file_becomes_what_its_folder_does(self):
        self.quantize()
        plain = os.path.join(self.folder, "plain.gguf")
        self.plain_gguf(plain)
        again = os.path.join(self.folder, "again.gguf")
        self.quantize(model=plain, out=again)
        self.assertEqual(gguf_files.read_gguf(again), gguf_files.read_gguf(self.out))
        self.assertEqual(list(gguf_files.read_gguf(again)[0]), list(gguf_files.read_gguf(plain)[0]))
        self.refused("already exists", model=plain, out=plain)
        self.refused("quantised already (Q4_1)", model=self.out, out=plain + "2.gguf")

    def test_a_gguf_file_becomes_the_folder_that_its_folder_does(self):
        self.quantize()
        plain = os.path.join(self.folder, "plain.gguf")
        self.plain_gguf(plain)
        straight, folder = os.path.join(self.folder, "straight"), os.path.join(self.folder, "folder")
        self.quantize(out=straight)
        self.quantize(model=plain, out=folder)
        self.assertEqual(sorted(os.listdir(folder)), ["config.json", "generation_config.json", "model.safetensors",
                                                      "tokenizer.json", "tokenizer_config.json"])
        wanted, written = [read_safetensors(os.path.join(model, "model.safetensors")) for model in (straight, folder)]
        self.assertEqual(written.keys(), wanted.keys())
        for name, tensor in written.items():
            if len(tensor[1]) > 1:
                self.assertEqual(tensor, wanted[name], name)
            elif tensor[0] == "F32":  # vectors of a GGUF file
                self.assertEqual(list(struct.unpack(f"<{tensor[1][0]}f", tensor[2])), bfloat16s(wanted[name][2]), name)
        config = read_json(os.path.join(folder, "config.json"))
        for key, value in read_json(os.path.join(MODEL, "config.json")).items():
            if key in ("hidden_size", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_theta", "model_type",
                       "architectures", "torch_dtype", "tie_word_embeddings", "vocab_size", "hidden_act"):
                self.assertEqual(config[key], value, key)
        generation = read_json(os.path.join(folder, "generation_config.json"))
        self.assertEqual((generation["temperature"], generation["do_sample"]), (0.8, True))
        before = read_json(os.path.join(MODEL, "tokenizer_config.json"))
        after = read_json(os.path.join(folder, "tokenizer_config.json"))
        for key in ("bos_token", "eos_token", "chat_template"):
            self.assertEqual(after[key], before[key], key)
        for text in TEXTS:
            ids = [run("tokenize", "--model", model, text=text).stdout for model in (MODEL, folder)]
            self.assertEqual(*ids, text)
        said = [run("generate", "--model", model, "--temperature", "0", "--max-tokens", "40", "--prompt", "Once upon a time")
                for model in (straight, folder)]
        self.assertEqual(said[0].stdout, said[1].stdout)
        self.assertGreater(len(said[0].stdout), 80, said[0].stderr)
        self.refused("is not empty", model=plain, out=folder)
        self.refused("quantised already (Q4_1)", model=self.out, out=os.path.join(self.folder, "another"))

    def test_what_a_file_cannot_hold_is_refused(self):
        self.refused("--group-size must be 32", flags=["--group-size", "64"])
        self.refused("--rotate is not for a GGUF file", flags=["--rotate"])
        self.refused("--zero-points is not for 8 bits", flags=["--bits", "8", "--zero-points"])
        self.refused("its folder does not exist", out=os.path.join(self.folder, "nowhere", "out.gguf"))
        model = self.changed_model("tokenizer.json", lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="a+"))
        self.refused("tokenizer.json: pre_tokenizer: ", model=model)
        shutil.rmtree(model)
        model = self.changed_model("tokenizer_config.json", lambda t: t["added_tokens_decoder"]["1"].update(rstrip=True))
        self.refused("tokenizer.json: added_tokens: ", "<|end_of_text|>", model=model)
        shutil.rmtree(model)
        model = self.changed_model("generation_config.json", lambda t: t.update(eos_token_id=[1, 2, 3, 4]))
        self.refused("generation_config.json: GGUF cannot express the id 4 of eos_token_id", model=model)
        shutil.rmtree(model)
        model = self.changed_model("config.json", lambda c: c.update(rope_scaling={"rope_type": "dynamic", "factor": 2.0}))
        self.refused("config.json: rope_scaling: ", model=model)
        self.assertEqual(os.listdir(self.folder), ["model"])
        open(self.out, "w").close()
        self.refused("already exists")
        self.assertEqual(os.path.getsize(self.out), 0)

    def test_frequencies_of_llama3_become_factors(self):
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 256}
        model = self.changed_model("config.json", lambda config: config.update(rope_scaling=scaling))
        self.quantize("--bits", "8", model=model)
        kind, shape, data = gguf_files.read_gguf(self.out)[1]["rope_freqs.weight"]
        self.assertEqual((kind, shape), (gguf_files.F32, [8]))
        factors = struct.unpack("<8f", data)
        self.assertEqual((factors[0], factors[7]), (1, 8))
        ended = run("bench", "accuracy", "--reference", model, "--model", self.out, "--text", __file__, "--max-tokens", "1024", "--json")
        self.assertLess(json.loads(ended.stdout)["kld_mean"], 0.01, ended.stderr)

    def test_columns_that_are_no_whole_blocks_are_refused(self):
        model = os.path.join(SHARED, "models", "stories260k")
        if not os.path.isdir(model):
            self.skipTest(f"no {model}")
        self.refused("groups of 32 do not divide the 172 columns of model.layers.0.mlp.down_proj", model=model)

    def test_what_cannot_be_finished_leaves_nothing(self):
        ended = subprocess.run(["bash", "-c", 'ulimit -f 200; exec "$@"', "bash", PAGODA, "quantize", "--model", MODEL,
                                "--out", self.out, "--calibration-tokens", "512"], capture_output=True, text=True, timeout=500,
                               preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn(self.out + ".part: File too large", ended.stderr)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    PAGODA, MODEL, SHARED = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
