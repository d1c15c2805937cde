#!/usr/bin/env python3
"""Writes a GGUF file of plain weights for comparisons of formats (tools/compare_formats.py): of random weights, or of a
model that is only available with quantised weights.

    python3 tools/make_gguf_source.py random build/models/llama-1.1b --out build/models/llama-1.1b.gguf
    python3 tools/make_gguf_source.py permuted build/models/smollm2.gguf --out build/models/smollm2-permuted.gguf
    python3 tools/make_gguf_source.py permuted build/models/smollm2.gguf --hidden 768 --out build/models/smollm2-768.gguf
    python3 tools/make_gguf_source.py dequantized build/models/smollm2.gguf --out build/models/smollm2-f32.gguf

random: a folder of tools/make_random_model.py, in its own type. Rows of q_proj and k_proj stay in place, since no order
of random rows is better than another.

permuted: the dequantised weights of a GGUF file of a Llama in float32, with the columns of all matrices in another
order: those of the hidden state, of each layer's feed-forward dimension and of each head's values. The rows that
compute them are permuted accordingly. The model's results do not change, but its weights no longer lie on the grid of
the file's groups, which a quantiser would find again; outliers stay. --hidden makes the hidden state wider, for formats
whose blocks are 256 columns: with entries that stay zero, spread evenly, heads that give nothing, and norms that divide
by as much as before. Again the results do not change.

dequantized: the weights of any GGUF file in float32, as gguf-py computes them.

Needs numpy and the Python package gguf (pip install gguf==0.19.0).
"""
import argparse
import json
import re
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TYPES = {"BF16": gguf.GGMLQuantizationType.BF16, "F16": gguf.GGMLQuantizationType.F16, "F32": gguf.GGMLQuantizationType.F32}
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4}


def gguf_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.weight", name).groups()
    return f"blk.{layer}.{NAMES[part]}.weight"


def add_random_model(writer: gguf.GGUFWriter, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        raise SystemExit(f"{folder}: model_type {config['model_type']}; only llama is written")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])

    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        data = np.memmap(file, dtype=np.uint8, mode="r")
        length = int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8 : 8 + length].tobytes())
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            first, last = (8 + length + offset for offset in tensor["data_offsets"])
            rows = data[first:last].reshape(*tensor["shape"][:-1], tensor["shape"][-1] * WIDTHS[tensor["dtype"]])
            if len(tensor["shape"]) == 1:  # norms, which llama.cpp needs in float32
                assert tensor["dtype"] == "BF16", tensor["dtype"]
                widened = rows.view(np.uint16).astype(np.uint32) << 16
                writer.add_tensor(gguf_name(name), widened.view(np.float32))
            else:
                writer.add_tensor(gguf_name(name), rows, raw_dtype=TYPES[tensor["dtype"]])


def spread(values: np.ndarray, to: int) -> np.ndarray:
    """Returns each value once, among -1s at equal distances."""
    places = np.arange(to) * len(values) // to
    return np.where(np.diff(places, prepend=-1) > 0, values[places], -1)


def taken(weights: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """Returns the elements at `indices`; zeros for indices of -1."""
    shape = [1] * weights.ndim
    shape[axis] = -1
    return weights.take(np.maximum(indices, 0), axis) * (indices >= 0).astype(np.float32).reshape(shape)


def copy_fields(writer: gguf.GGUFWriter, reader: gguf.GGUFReader, changed: dict) -> None:
    for key, value in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind = value.types[0]
        contents = changed.get(key, value.contents())
        writer.add_key_value(key, contents, kind, value.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def add_dequantized(writer: gguf.GGUFWriter, reader: gguf.GGUFReader) -> None:
    copy_fields(writer, reader, {})
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype(np.float32))


def add_permuted(writer: gguf.GGUFWriter, reader: gguf.GGUFReader, file: Path, seed: int, new_hidden: int | None) -> None:
    field = lambda key: reader.fields[key].contents()  # noqa: E731
    if field("general.architecture") != "llama":
        raise SystemExit(f"{file}: architecture {field('general.architecture')}; only llama is permuted")
    hidden, heads, kv_heads = (field(f"llama.{key}") for key in ("embedding_length", "attention.head_count", "attention.head_count_kv"))
    ffn, head_dim = field("llama.feed_forward_length"), hidden // heads
    new_hidden = new_hidden or hidden
    new_heads = new_hidden // head_dim
    new_kv_heads = new_heads * kv_heads // heads
    if new_hidden < hidden or new_hidden % head_dim != 0 or new_heads * kv_heads % heads != 0:
        raise SystemExit(f"--hidden {new_hidden}: want at least {hidden}, in heads of {head_dim}, {heads // kv_heads} for each of keys")
    changed = {"llama.embedding_length": new_hidden, "llama.attention.head_count": new_heads,
               "llama.attention.head_count_kv": new_kv_heads,
               "llama.attention.layer_norm_rms_epsilon": field("llama.attention.layer_norm_rms_epsilon") * hidden / new_hidden}
    copy_fields(writer, reader, changed)

    random = np.random.default_rng(seed)
    of_hidden = spread(random.permutation(hidden), new_hidden)
    of_queries = np.append(np.arange(hidden), np.full(new_hidden - hidden, -1))
    of_keys = of_queries[: new_kv_heads * head_dim]
    of_keys = np.where(of_keys < kv_heads * head_dim, of_keys, -1)
    in_layer: dict = {}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        in_block = re.fullmatch(r"blk\.(\d+)\.(.*)\.weight", tensor.name)
        layer, part = in_block.groups() if in_block else (None, tensor.name)
        if layer is not None:
            if layer not in in_layer:
                in_layer[layer] = (random.permutation(ffn), [random.permutation(head_dim) for _ in range(kv_heads)])
            of_ffn, of_values = in_layer[layer]
            rows_of_values = np.concatenate([h * head_dim + order for h, order in enumerate(of_values)])
            columns_of_heads = np.concatenate([h * head_dim + of_values[h * kv_heads // heads] for h in range(heads)])
            rows_of_values = np.append(rows_of_values, np.full((new_kv_heads - kv_heads) * head_dim, -1))
            columns_of_heads = np.append(columns_of_heads, np.full(new_hidden - hidden, -1))
        rows = None  # unchanged
        match part:
            case "attn_norm" | "ffn_norm" | "output_norm.weight":
                columns, weights = of_hidden, weights * np.float32(np.sqrt(hidden / new_hidden))
            case "token_embd.weight" | "output.weight":
                columns = of_hidden
            case "attn_q":
                rows, columns = of_queries, of_hidden
            case "attn_k":
                rows, columns = of_keys, of_hidden
            case "attn_v":
                rows, columns = rows_of_values, of_hidden
            case "attn_output":
                rows, columns = of_hidden, columns_of_heads
            case "ffn_gate" | "ffn_up":
                rows, columns = of_ffn, of_hidden
            case "ffn_down":
                rows, columns = of_hidden, of_ffn
            case _:
                raise SystemExit(f"{file}: tensor {tensor.name} is none of a Llama's")
        weights = taken(weights, columns, -1)
        if rows is not None:
            weights = taken(weights, rows, 0)
        writer.add_tensor(tensor.name, np.ascontiguousarray(weights))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["random", "permuted", "dequantized"])
    parser.add_argument("source", type=Path, help="the folder, or the GGUF file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the order of columns")
    parser.add_argument("--hidden", type=int, help="entries of the hidden state, if more than there are; with permuted")
    args = parser.parse_args()
    if args.kind == "random":
        writer = gguf.GGUFWriter(args.out, "llama")
        add_random_model(writer, args.source)
    else:
        reader = gguf.GGUFReader(args.source)
        writer = gguf.GGUFWriter(args.out, reader.fields["general.architecture"].contents())
        if args.kind == "permuted":
            add_permuted(writer, reader, args.source, args.seed, args.hidden)
        else:
            add_dequantized(writer, reader)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
