#!/usr/bin/env python3
"""Tests of tools/gguf_to_huggingface.py with small files that are made here. Standard library only.

usage: gguf_to_huggingface_test.py REPOSITORY [unittest arguments]
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(sys.argv[1], "tools", "gguf_to_huggingface.py")
F32, F16, Q4_0, Q4_1, Q8_0, Q6_K, BF16 = 0, 1, 2, 3, 8, 14, 30
HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 64, 32, 2, 1, 32
TOKENS = ["<|end|>", "a", "b", "ab", "<note>"]


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item):
    """The type of a metadata value and its bytes."""
    if isinstance(item, bool):
        return 7, struct.pack("<?", item)
    if isinstance(item, int):
        return 4, struct.pack("<I", item)
    if isinstance(item, float):
        return 6, struct.pack("<f", item)
    if isinstance(item, str):
        return 8, text(item)
    kind = value(item[0])[0]
    return 9, struct.pack("<IQ", kind, len(item)) + b"".join(value(one)[1] for one in item)


def gguf(metadata, tensors):
    """tensors: (name, shape with the outermost size first, type, bytes)."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, item in metadata.items():
        kind, data = value(item)
        header += text(key) + struct.pack("<I", kind) + data
    body = b""
    for name, shape, kind, data in tensors:
        sizes = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        header += text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
    return header + b"\0" * (-len(header) % 32) + body


def metadata():
    return {
        "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 128,
        "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS, "llama.rope.freq_base": 10000.0, "llama.vocab_size": len(TOKENS),
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": HEAD_DIM,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 4], "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.chat_template": "{{ messages }}",
    }


def rows(count):
    """A matrix in which every weight is the number of its row."""
    return struct.pack(f"<{count * HIDDEN}f", *(row for row in range(count) for _ in range(HIDDEN)))


# 4-bit integers of a block: 0 to 15 in the low halves of its bytes, 15 to 0 in the high ones.
NIBBLES = bytes(i | (15 - i) << 4 for i in range(16))
COUNTED = [*range(16), *reversed(range(16))]


def tensors():
    layer = "blk.0."
    q4_1 = struct.pack("<ee", 0.5, -2.0) + NIBBLES
    q4_0 = struct.pack("<e", -0.25) + NIBBLES
    q8_0 = struct.pack("<e32b", 0.125, *range(-128, 0, 4))
    return {
        "token_embd.weight": ((len(TOKENS), HIDDEN), Q8_0, q8_0 * 2 * len(TOKENS)),
        "output_norm.weight": ((HIDDEN,), F32, struct.pack(f"<{HIDDEN}f", *range(HIDDEN))),
        layer + "attn_norm.weight": ((HIDDEN,), F16, struct.pack(f"<{HIDDEN}e", *(i / 8 for i in range(HIDDEN)))),
        layer + "ffn_norm.weight": ((HIDDEN,), BF16, struct.pack("<2H", 0x3F80, 0xC040) * (HIDDEN // 2)),  # 1, -3
        layer + "attn_q.weight": ((HIDDEN, HIDDEN), F32, rows(HIDDEN)),
        layer + "attn_k.weight": ((HEAD_DIM, HIDDEN), F32, rows(HEAD_DIM)),
        layer + "attn_v.weight": ((HEAD_DIM, HIDDEN), F32, rows(HEAD_DIM)),
        layer + "attn_output.weight": ((HIDDEN, HIDDEN), F32, rows(HIDDEN)),
        layer + "ffn_gate.weight": ((FFN, HIDDEN), Q4_1, q4_1 * 2 * FFN),
        layer + "ffn_up.weight": ((FFN, HIDDEN), Q4_0, q4_0 * 2 * FFN),
        layer + "ffn_down.weight": ((HIDDEN, FFN), F32, struct.pack("<f", 1 + 3 / 256) * HIDDEN * FFN),
    }


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = os.path.join(folder.name, "model.gguf")
        self.folder = os.path.join(folder.name, "model")

    def run_tool(self, content, *flags):
        with open(self.source, "wb") as file:
            file.write(content)
        return subprocess.run([sys.executable, TOOL, self.source, "--out", self.folder, *flags], capture_output=True,
                              text=True, timeout=120)

    def convert(self, *flags):
        done = self.run_tool(gguf(metadata(), [(name, *rest) for name, rest in tensors().items()]), *flags)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def json_of(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)

    def weights(self):
        """name: (type, shape, bytes)."""
        with open(os.path.join(self.folder, "model.safetensors"), "rb") as file:
            content = file.read()
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        del header["__metadata__"]
        return {name: (entry["dtype"], entry["shape"], content[begin:][slice(*entry["data_offsets"])])
                for name, entry in header.items()}

    def floats(self, name):
        data = self.weights()[name][2]
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def test_each_type_is_read_as_its_formula_says(self):
        self.convert()
        layer = "model.layers.0."
        self.assertEqual(self.floats("model.norm.weight"), [float(i) for i in range(HIDDEN)])
        self.assertEqual(self.floats(layer + "input_layernorm.weight"), [i / 8 for i in range(HIDDEN)])
        self.assertEqual(self.floats(layer + "post_attention_layernorm.weight"), [1.0, -3.0] * (HIDDEN // 2))
        self.assertEqual(self.floats(layer + "mlp.gate_proj.weight"), [0.5 * i - 2 for i in COUNTED] * 2 * FFN)
        self.assertEqual(self.floats(layer + "mlp.up_proj.weight"), [-0.25 * (i - 8) for i in COUNTED] * 2 * FFN)
        self.assertEqual(self.floats("model.embed_tokens.weight"),
                         [0.125 * i for i in range(-128, 0, 4)] * 2 * len(TOKENS))

    def test_queries_and_keys_get_the_row_order_of_hugging_face_and_nothing_else_does(self):
        self.convert()
        one_head = [*range(0, HEAD_DIM, 2), *range(1, HEAD_DIM, 2)]
        first_of_rows = lambda name: self.floats(f"model.layers.0.self_attn.{name}_proj.weight")[::HIDDEN]
        self.assertEqual(first_of_rows("q"), [*one_head, *(HEAD_DIM + row for row in one_head)])
        self.assertEqual(first_of_rows("k"), one_head)
        self.assertEqual(first_of_rows("v"), list(range(HEAD_DIM)))
        self.assertEqual(first_of_rows("o"), list(range(HIDDEN)))

    def test_bfloat16_rounds_to_nearest_even(self):
        self.convert("--dtype=bfloat16")
        kind, shape, data = self.weights()["model.layers.0.mlp.down_proj.weight"]
        self.assertEqual((kind, shape), ("BF16", [HIDDEN, FFN]))
        self.assertEqual(set(struct.unpack(f"<{HIDDEN * FFN}H", data)), {0x3F82})  # 1 + 3/256 lies between two
        self.assertEqual(self.json_of("config.json")["torch_dtype"], "bfloat16")

    def test_config_and_tokenizer_say_what_the_metadata_says(self):
        self.convert()
        config = self.json_of("config.json")
        wanted = {"hidden_size": HIDDEN, "head_dim": HEAD_DIM, "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5,
                  "tie_word_embeddings": True, "vocab_size": len(TOKENS), "eos_token_id": 0}
        self.assertEqual({key: config[key] for key in wanted}, wanted)
        self.assertEqual(self.json_of("generation_config.json"), {"eos_token_id": 0})
        tokenizer = self.json_of("tokenizer.json")
        self.assertEqual(tokenizer["model"]["vocab"], {token: i for i, token in enumerate(TOKENS)})
        self.assertEqual(tokenizer["model"]["merges"], [["a", "b"]])
        self.assertEqual([(token["id"], token["special"]) for token in tokenizer["added_tokens"]], [(0, True), (4, False)])
        settings = self.json_of("tokenizer_config.json")
        self.assertEqual((settings["eos_token"], settings["chat_template"]), ("<|end|>", "{{ messages }}"))

    def test_what_is_not_supported_is_refused_by_name_and_nothing_is_written(self):
        def changed(**keys):
            return {**metadata(), **{key.replace("__", "."): item for key, item in keys.items()}}
        parts = [(name, *rest) for name, rest in tensors().items()]
        whole = gguf(metadata(), parts)
        for content, message in (
                (b"", "empty"), (b"GGML" + whole[4:], "not a GGUF file"), (whole[:200], "damaged or cut off"),
                (whole[:-5000], "blk.0.ffn_down.weight goes beyond the end"),
                (gguf(changed(general__architecture="mamba"), parts), "general.architecture is 'mamba'"),
                (gguf(changed(llama__expert_count=8), parts), "llama.expert_count is not supported"),
                (gguf(changed(tokenizer__ggml__model="llama"), parts), "tokenizer.ggml.model is 'llama'"),
                (gguf(changed(tokenizer__ggml__pre="tekken"), parts), "the pre-tokenizer tekken is not supported"),
                (gguf(metadata(), [*parts, ("rope_freqs.weight", (4,), F32, bytes(16))]), "tensor rope_freqs.weight"),
                (gguf(metadata(), [("output.weight", (1, 256), Q6_K, bytes(210))]), "tensor output.weight is Q6_K")):
            with self.subTest(message):
                done = self.run_tool(content)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertFalse(os.path.exists(self.folder))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
