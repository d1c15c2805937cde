#!/usr/bin/env python3
r"""Makes a Hugging Face model folder of a GGUF file: a Llama with its tokenizer and chat template.

    python3 tools/gguf_to_huggingface.py MODEL.gguf --out build/models/my-model

Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and model.safetensors. Standard library
only; 135 million parameters take about 20 seconds. Tensors may be F32, F16, BF16, Q8_0, Q4_1 and Q4_0; what the tool does
not know, in the metadata of the model or among its tensors, is refused by name rather than left out.
"""

import argparse
import json
import math
import re
import sys
import time
from array import array
from pathlib import Path

from gguf_file import GgufError, GgufFile, Tensor

# Names of tensors, with N for a layer.
TENSOR_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "blk.N.attn_norm.weight": "model.layers.N.input_layernorm.weight",
    "blk.N.attn_q.weight": "model.layers.N.self_attn.q_proj.weight",
    "blk.N.attn_k.weight": "model.layers.N.self_attn.k_proj.weight",
    "blk.N.attn_v.weight": "model.layers.N.self_attn.v_proj.weight",
    "blk.N.attn_output.weight": "model.layers.N.self_attn.o_proj.weight",
    "blk.N.ffn_norm.weight": "model.layers.N.post_attention_layernorm.weight",
    "blk.N.ffn_gate.weight": "model.layers.N.mlp.gate_proj.weight",
    "blk.N.ffn_up.weight": "model.layers.N.mlp.up_proj.weight",
    "blk.N.ffn_down.weight": "model.layers.N.mlp.down_proj.weight",
}
MODEL_KEYS = {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
              "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.key_length",
              "attention.value_length", "rope.freq_base", "rope.dimension_count", "vocab_size"}
# What a pre-tokenizer's name in GGUF stands for in tokenizer.json.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS = {
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # tokenizer.ggml.token_type
DTYPES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}


class Metadata:
    def __init__(self, values: dict):
        self.values = values

    def get(self, key: str, default=None):
        value = self.values.get(key, default)
        if value is None:
            raise GgufError(f"the metadata has no {key}")
        return value

    def expect(self, key: str, wanted, default=None) -> None:
        """What the folder says by other means, or not at all, must be as it is taken to be."""
        value = self.get(key, default)
        if value != wanted:
            raise GgufError(f"{key} is {value!r}; only {wanted!r} is supported")


def short_float(value: float) -> float:
    """The float of fewest digits for one that was stored with 32 bits: 1e-05, not 9.999999747378752e-06."""
    return float(f"{value:.7g}")


def config_json(metadata: Metadata, num_tokens: int, tie: bool, dtype: str) -> dict:
    metadata.expect("general.architecture", "llama")
    for key in metadata.values:
        if key.startswith("llama.") and key.removeprefix("llama.") not in MODEL_KEYS:
            raise GgufError(f"{key} is not supported")
    hidden, heads = metadata.get("llama.embedding_length"), metadata.get("llama.attention.head_count")
    head_dim = metadata.get("llama.attention.key_length", hidden // heads)
    metadata.expect("llama.attention.value_length", head_dim, head_dim)
    metadata.expect("llama.rope.dimension_count", head_dim, head_dim)
    metadata.expect("llama.vocab_size", num_tokens, num_tokens)
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": dtype,
        "vocab_size": num_tokens, "hidden_size": hidden, "head_dim": head_dim,
        "intermediate_size": metadata.get("llama.feed_forward_length"),
        "num_hidden_layers": metadata.get("llama.block_count"), "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("llama.attention.head_count_kv", heads),
        "hidden_act": "silu", "rms_norm_eps": short_float(metadata.get("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": short_float(metadata.get("llama.rope.freq_base", 10000.0)), "rope_scaling": None,
        "max_position_embeddings": metadata.get("llama.context_length"), "tie_word_embeddings": tie,
        "attention_bias": False, "mlp_bias": False, **special_ids(metadata),
    }


def special_ids(metadata: Metadata) -> dict:
    """bos_token_id and so on, of those that the file names."""
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {f"{name}_token_id": metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()
            if f"tokenizer.ggml.{key}_token_id" in metadata.values}


def tokenizer_json(metadata: Metadata) -> dict:
    metadata.expect("tokenizer.ggml.model", "gpt2")
    metadata.expect("tokenizer.ggml.add_bos_token", False, False)
    metadata.expect("tokenizer.ggml.add_eos_token", False, False)
    metadata.expect("tokenizer.ggml.add_space_prefix", False, False)
    pre = metadata.get("tokenizer.ggml.pre")
    if pre not in PRE_TOKENIZERS:
        raise GgufError(f"the pre-tokenizer {pre} is not supported; {', '.join(PRE_TOKENIZERS)} is")
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    for token, kind in zip(tokens, types, strict=True):
        if kind not in (NORMAL, CONTROL, USER_DEFINED):
            raise GgufError(f"token {token!r} has the type {kind}, which is not supported")
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": kind == CONTROL} for i, (token, kind) in enumerate(zip(tokens, types)) if kind != NORMAL]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[pre], "post_processor": None, "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in metadata.get("tokenizer.ggml.merges")]},
    }


def tokenizer_config_json(metadata: Metadata) -> dict:
    tokens = metadata.get("tokenizer.ggml.tokens")
    config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
              "model_max_length": metadata.get("llama.context_length")}
    for name, token_id in special_ids(metadata).items():
        config[name.removesuffix("_id")] = tokens[token_id]
    if "tokenizer.ggml.unknown_token_id" in metadata.values:
        config["unk_token"] = tokens[metadata.get("tokenizer.ggml.unknown_token_id")]
    if "tokenizer.chat_template" in metadata.values:
        config["chat_template"] = metadata.get("tokenizer.chat_template")
    return config


def hugging_face_name(name: str) -> str:
    """"N" in the table stands for the number of the layer."""
    layer = re.search(r"\.(\d+)\.", name)
    number = layer.group(1) if layer else "N"
    known = TENSOR_NAMES.get(re.sub(r"\.\d+\.", ".N.", name))
    if known is None:
        raise GgufError(f"tensor {name} is not supported")
    return known.replace("N", number)


def row_order(tensor: Tensor, heads: dict, head_dim: int):
    """Rows of the file in the order of Hugging Face's. GGUF rotates neighbours (2i, 2i + 1) of a head's queries and keys
    where Hugging Face rotates (i, i + head_dim / 2), so their rows lie interleaved in the file."""
    num_heads = heads.get(tensor.name.split(".")[-2])
    if num_heads is None:
        return range(tensor.num_rows)
    if tensor.num_rows != num_heads * head_dim:
        raise GgufError(f"tensor {tensor.name} has {tensor.num_rows} rows, not {num_heads} heads of {head_dim}")
    return [head * head_dim + 2 * i + half for head in range(num_heads) for half in range(2) for i in range(head_dim // 2)]


def row_bytes(values: array, dtype: str) -> bytes:
    if dtype == "float32":
        return values.tobytes()
    bits = array("I", values.tobytes())
    return array("H", [(b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits]).tobytes()  # to nearest even


class Progress:
    """One line that is rewritten on a terminal; nothing elsewhere."""

    def __init__(self, total: int):
        self.total, self.done, self.shown = total, 0, 0.0

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self.shown > 0.1 or self.done == self.total):
            self.shown = now
            end = "\n" if self.done == self.total else ""
            print(f"\rconverting weights: {100 * self.done // self.total} %{end}", end="", file=sys.stderr, flush=True)


def write_weights(path: Path, model: GgufFile, config: dict, dtype: str) -> None:
    """The safetensors format: length of the header (u64), header in JSON, then the tensors' bytes."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    code, width = DTYPES[dtype]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in model.tensors.values():
        size = math.prod(tensor.shape) * width
        header[hugging_face_name(tensor.name)] = {"dtype": code, "shape": list(tensor.shape),
                                                  "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    progress = Progress(offset)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in model.tensors.values():
            for row in row_order(tensor, heads, config["head_dim"]):
                progress.add(file.write(row_bytes(tensor.row(row), dtype)))


def convert(source: Path, folder: Path, dtype: str) -> None:
    model = GgufFile(source)
    metadata = Metadata(model.metadata)
    tokenizer = tokenizer_json(metadata)
    config = config_json(metadata, len(tokenizer["model"]["vocab"]), "output.weight" not in model.tensors, dtype)
    files = {"config.json": config, "generation_config.json": special_ids(metadata), "tokenizer.json": tokenizer,
             "tokenizer_config.json": tokenizer_config_json(metadata)}
    for name in model.tensors:
        hugging_face_name(name)  # refused before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        indent = None if name == "tokenizer.json" else 2
        (folder / name).write_text(json.dumps(content, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
    write_weights(folder / "model.safetensors", model, config, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="FILE.gguf")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; made when missing")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the weights (default float32, exact)")
    args = parser.parse_args()
    try:
        convert(args.source, args.out, args.dtype)
    except (GgufError, OSError) as problem:
        sys.exit(f"gguf_to_huggingface.py: {args.source}: {problem}")


if __name__ == "__main__":
    main()
