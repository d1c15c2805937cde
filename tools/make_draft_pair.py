#!/usr/bin/env python3
"""Makes models that bound what a draft model gains: one whose draft model is always right, and one that never is.

    python3 tools/make_draft_pair.py build/models/draft-pair
    python3 tools/bench_speculation.py --model build/models/draft-pair/model --workloads free \\
        --config '{"model": "build/models/draft-pair/right"}'

Writes four folders in Hugging Face's format, with random weights in bfloat16: `model`, whose layers behind the first
--draft-layers add nothing to their input; `right`, which has only those first layers and so the same logits; `wrong`, of
the size of `right` with other weights; and `head`, an EAGLE-3 head for `model` that is never right (use it with
'{"method": "eagle3", "model": "build/models/draft-pair/head"}'). The tokenizer is that of the demo model. Texts mean
nothing; no sequence ends by itself. Needs only the standard library.
"""
import argparse
import array
import json
import pathlib
import random
import shutil
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples" / "models" / "pagoda-stories"
TILE = 1_000_003  # numbers; a prime, so that no two rows of a matrix are alike


def bfloat16(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def tile(seed, scale):
    """Bytes of many random numbers between -scale and scale."""
    words = [bfloat16(scale * (i - 127.5) / 127.5) for i in range(256)]
    return array.array("H", (words[byte] for byte in random.Random(seed).randbytes(TILE))).tobytes()


def tensors_of(config, num_working):
    """(name, shape, kind) of all tensors: kind is a standard deviation's inverse square, "one" or "zero"."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden), hidden
    for i in range(config["num_hidden_layers"]):
        layer, output = f"model.layers.{i}.", "zero" if i >= num_working else None
        yield layer + "input_layernorm.weight", (hidden,), "one"
        yield layer + "self_attn.q_proj.weight", (hidden, hidden), hidden
        yield layer + "self_attn.k_proj.weight", (kv, hidden), hidden
        yield layer + "self_attn.v_proj.weight", (kv, hidden), hidden
        yield layer + "self_attn.o_proj.weight", (hidden, hidden), output or hidden
        yield layer + "post_attention_layernorm.weight", (hidden,), "one"
        yield layer + "mlp.gate_proj.weight", (inner, hidden), hidden
        yield layer + "mlp.up_proj.weight", (inner, hidden), hidden
        yield layer + "mlp.down_proj.weight", (hidden, inner), output or inner
    yield "model.norm.weight", (hidden,), "one"


def tensors_of_head(config):
    """Does for an EAGLE-3 head what tensors_of does for a model."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    yield "fc.weight", (hidden, 3 * hidden), 3 * hidden
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        yield f"midlayer.{name}.weight", (hidden,), "one"
    for name, width in (("q_proj", hidden), ("k_proj", kv), ("v_proj", kv)):
        yield f"midlayer.self_attn.{name}.weight", (width, 2 * hidden), 2 * hidden
    yield "midlayer.self_attn.o_proj.weight", (hidden, hidden), hidden
    yield "midlayer.mlp.gate_proj.weight", (inner, hidden), hidden
    yield "midlayer.mlp.up_proj.weight", (inner, hidden), hidden
    yield "midlayer.mlp.down_proj.weight", (hidden, inner), inner
    yield "norm.weight", (hidden,), "one"
    yield "lm_head.weight", (config["vocab_size"], hidden), hidden


def write_model(folder, config, tensors, seed):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, end = {}, 0
    tensors = list(tensors)
    for name, shape, _ in tensors:
        count = 1
        for size in shape:
            count *= size
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end := end + 2 * count]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    tiles = {}
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, (name, _, kind) in enumerate(tensors):
            begin, end = header[name]["data_offsets"]
            if kind == "one":
                piece = struct.pack("<H", bfloat16(1.0)) * 4096
            elif kind == "zero":
                piece = bytes(8192)
            else:
                piece = tiles.setdefault(kind, tile(f"{seed} {kind}", (3 / kind) ** 0.5))
            # Each tensor begins elsewhere in the tile, the same in `model` and `right`.
            at = number * 7919 * 2 % len(piece) if kind not in ("one", "zero") else 0
            while begin < end:
                part = piece[at:at + end - begin]
                file.write(part)
                begin, at = begin + len(part), 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--hidden", type=int, default=2048, help="hidden size, a multiple of 128 (default %(default)s)")
    parser.add_argument("--layers", type=int, default=22, help="of the model (default %(default)s)")
    parser.add_argument("--draft-layers", type=int, default=2, help="of the draft models (default %(default)s)")
    args = parser.parse_args()
    config = json.loads((DEMO / "config.json").read_text())
    config |= {"hidden_size": args.hidden, "intermediate_size": args.hidden * 11 // 4, "head_dim": 64,
               "num_attention_heads": args.hidden // 64, "num_key_value_heads": args.hidden // 128,
               "max_position_embeddings": 8192, "eos_token_id": None}
    for name, layers, seed in (("model", args.layers, 1), ("right", args.draft_layers, 1),
                               ("wrong", args.draft_layers, 2)):
        of_model = config | {"num_hidden_layers": layers}
        write_model(args.folder / name, of_model, tensors_of(of_model, args.draft_layers), seed)
    head = config | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "tie_word_embeddings": False}
    write_model(args.folder / "head", head, tensors_of_head(head), 3)


if __name__ == "__main__":
    main()
