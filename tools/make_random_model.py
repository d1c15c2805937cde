r"""Writes a Hugging Face model folder with random weights of a given shape, for benchmarks and load tests in which only
speed and memory matter.

    python tools/make_random_model.py --preset llama-1.1b --out build/models/llama-1.1b
    python tools/make_random_model.py --hidden 256 --layers 4 --heads 8 --kv-heads 2 --ffn 704 --vocab 1024 \
        --out build/models/small

Weights are drawn like those of a fresh model (normal with standard deviation 0.02, norms 1, biases 0) and written piece
by piece, so memory stays small. Needs only numpy. Equal flags, seed and numpy give equal bytes, and sharding does not
change a tensor. The tokenizer has exactly --vocab entries: two special tokens, the 256 bytes, and words of letters in a
fixed order, so that any text can be encoded and every id decodes to text.
"""

import argparse
import itertools
import json
import math
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

PRESETS = {
    "tiny": dict(hidden=64, layers=2, heads=4, kv_heads=2, ffn=176, vocab=512, max_len=512),
    "llama-1.1b": dict(hidden=2048, layers=22, heads=32, kv_heads=4, ffn=5632, vocab=32000, max_len=4096),
    "llama-3b": dict(hidden=3072, layers=28, heads=24, kv_heads=8, ffn=8192, vocab=128256, max_len=8192,
                     rope_theta=500000.0, tie=True),
    "llama-8b": dict(hidden=4096, layers=32, heads=32, kv_heads=8, ffn=14336, vocab=128256, max_len=8192,
                     rope_theta=500000.0),
}
# arch: (architectures[0], model_type, biases of the q, k and v projections)
ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama", False),
    "mistral": ("MistralForCausalLM", "mistral", False),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", True),
}
DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}
INIT_STD = 0.02
CHUNK_ELEMENTS = 1 << 20
SPECIAL_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>"]
MIN_VOCAB = 256 + len(SPECIAL_TOKENS)


def tensors_of(args: argparse.Namespace) -> list:
    """Returns (name, shape) of every tensor, in the order of the file."""
    h, kv = args.heads * args.head_dim, args.kv_heads * args.head_dim
    out = [("model.embed_tokens.weight", (args.vocab, args.hidden))]
    for layer in range(args.layers):
        p = f"model.layers.{layer}."
        out += [(p + "input_layernorm.weight", (args.hidden,)),
                (p + "self_attn.q_proj.weight", (h, args.hidden)), (p + "self_attn.k_proj.weight", (kv, args.hidden)),
                (p + "self_attn.v_proj.weight", (kv, args.hidden)), (p + "self_attn.o_proj.weight", (args.hidden, h))]
        if ARCHITECTURES[args.arch][2]:
            out += [(p + "self_attn.q_proj.bias", (h,)), (p + "self_attn.k_proj.bias", (kv,)),
                    (p + "self_attn.v_proj.bias", (kv,))]
        out += [(p + "post_attention_layernorm.weight", (args.hidden,)),
                (p + "mlp.gate_proj.weight", (args.ffn, args.hidden)), (p + "mlp.up_proj.weight", (args.ffn, args.hidden)),
                (p + "mlp.down_proj.weight", (args.hidden, args.ffn))]
    out.append(("model.norm.weight", (args.hidden,)))
    if not args.tie:
        out.append(("lm_head.weight", (args.vocab, args.hidden)))
    return out


def to_bytes(values: np.ndarray, dtype: str) -> bytes:
    if dtype == "float32":
        return values.astype("<f4", copy=False).tobytes()
    if dtype == "float16":
        return values.astype("<f2").tobytes()
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)  # to nearest even
    return rounded.astype("<u2").tobytes()


def tensor_chunks(name: str, elements: int, seed: int, index: int, dtype: str):
    """Yields the bytes of one tensor. Each tensor has its own random stream, so it depends only on the seed and its
    index."""
    constant = 1.0 if name.endswith("norm.weight") else 0.0 if name.endswith(".bias") else None
    random = np.random.Generator(np.random.SFC64([seed, index]))
    for start in range(0, elements, CHUNK_ELEMENTS):
        count = min(CHUNK_ELEMENTS, elements - start)
        if constant is None:
            values = random.standard_normal(count, dtype=np.float32)
            values *= np.float32(INIT_STD)
        else:
            values = np.full(count, constant, dtype=np.float32)
        yield to_bytes(values, dtype)


class Progress:
    """Prints one line, which is rewritten on a terminal. Prints nothing in a pipe."""

    def __init__(self, total: int):
        self.total, self.done, self.shown, self.start = total, 0, 0.0, time.monotonic()
        self.lock = threading.Lock()

    def add(self, count: int) -> None:
        with self.lock:
            self.show(count)

    def show(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self.shown > 0.1 or self.done == self.total):
            self.shown = now
            filled = 30 * self.done // self.total
            rate = self.done / max(now - self.start, 1e-9) / 1e6
            sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {self.done / 1e9:.2f} of {self.total / 1e9:.2f} GB"
                             f"  {rate:.0f} MB/s\x1b[K" + ("\n" if self.done == self.total else ""))
            sys.stderr.flush()


def split_into_shards(tensors: list, count: int) -> list:
    """Returns consecutive runs of tensors of about equal size, none of them empty."""
    sizes = [math.prod(shape) for _, _, shape in tensors]
    total, before, shards = sum(sizes), 0, [[] for _ in range(count)]
    current = 0
    for i, tensor in enumerate(tensors):
        left = len(tensors) - i
        wanted = min(count - 1, before * count // total)
        if current < wanted and shards[current]:
            current += 1
        elif shards[current] and left <= count - 1 - current:  # the rest is needed to fill the remaining shards
            current += 1
        shards[current].append(tensor)
        before += sizes[i]
    return shards


def write_shard(path: Path, tensors: list, args: argparse.Namespace, progress: Progress) -> None:
    """Writes the safetensors format: header length (u64), JSON header padded to 8 bytes, then the tensors' bytes."""
    code, width = DTYPES[args.dtype]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for _, name, shape in tensors:
        size = math.prod(shape) * width
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    first = 8 + len(text)

    def write_tensor(tensor: tuple) -> None:
        index, name, shape = tensor
        with path.open("r+b") as file:
            file.seek(first + header[name]["data_offsets"][0])
            for chunk in tensor_chunks(name, math.prod(shape), args.seed, index, args.dtype):
                file.write(chunk)
                progress.add(len(chunk))

    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with ThreadPoolExecutor(args.jobs) as pool:
        for _ in pool.map(write_tensor, tensors):
            pass


def write_weights(args: argparse.Namespace) -> int:
    """Writes model.safetensors, or shards and their index. Returns the number of parameters."""
    tensors = [(index, name, shape) for index, (name, shape) in enumerate(tensors_of(args))]
    parameters = sum(math.prod(shape) for _, _, shape in tensors)
    total_bytes = parameters * DTYPES[args.dtype][1]
    progress = Progress(total_bytes)
    if args.shards == 1:
        write_shard(args.out / "model.safetensors", tensors, args, progress)
        return parameters
    weight_map = {}
    for number, shard in enumerate(split_into_shards(tensors, args.shards), 1):
        name = f"model-{number:05}-of-{args.shards:05}.safetensors"
        write_shard(args.out / name, shard, args, progress)
        weight_map.update({tensor: name for _, tensor, _ in shard})
    write_json(args.out / "model.safetensors.index.json",
               {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(weight_map.items()))})
    return parameters


def byte_alphabet() -> list:
    """Returns the printable character for each byte in byte-level BPE files (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for shift, byte in enumerate(b for b in range(256) if b not in table):
        table[byte] = chr(256 + shift)
    return [table[byte] for byte in range(256)]


def tokenizer_json(vocab_size: int) -> dict:
    alphabet = byte_alphabet()
    letters, space = "etaoinshrdlucmfwypvbgkjqxz", alphabet[0x20]
    vocab = {token: i for i, token in enumerate(SPECIAL_TOKENS + alphabet)}
    merges = []
    # Words grow by one letter at a time: " e", " t", ..., "et", "ea", ..., then all words of three letters, and so on.
    words = [space, *letters]
    while len(vocab) < vocab_size:
        pairs = list(itertools.islice(itertools.product(words, letters), vocab_size - len(vocab)))
        words = [left + right for left, right in pairs]
        for (left, right), word in zip(pairs, words):
            vocab[word] = len(vocab)
            merges.append([left, right])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    begin = SPECIAL_TOKENS[0]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": begin, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {begin: {"id": begin, "ids": [0], "tokens": [begin]}},
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }


def config_json(args: argparse.Namespace) -> dict:
    architecture, model_type, _ = ARCHITECTURES[args.arch]
    config = {
        "architectures": [architecture], "model_type": model_type, "torch_dtype": args.dtype, "vocab_size": args.vocab,
        "hidden_size": args.hidden, "intermediate_size": args.ffn, "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads, "num_key_value_heads": args.kv_heads, "head_dim": args.head_dim,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": args.rope_theta,
        "max_position_embeddings": args.max_len, "tie_word_embeddings": args.tie, "initializer_range": INIT_STD,
        "bos_token_id": 0, "eos_token_id": 1,
    }
    if args.arch == "llama":
        config.update(attention_bias=False, mlp_bias=False, rope_scaling=None)
    else:
        config.update(sliding_window=None)
    return config


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; made when missing")
    parser.add_argument("--preset", choices=PRESETS, default="tiny", help="shape to start from (default tiny); flags below win")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="llama")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--kv-heads", type=int)
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--ffn", type=int, help="width of the MLP")
    parser.add_argument("--vocab", type=int, help=f"tokens, at least {MIN_VOCAB}")
    parser.add_argument("--max-len", type=int, help="max_position_embeddings")
    parser.add_argument("--rope-theta", type=float)
    parser.add_argument("--tie", action=argparse.BooleanOptionalAction, help="one matrix for the embeddings and the head")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1, help="number of weight files (default 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tensors that are drawn side by side")
    args = parser.parse_args()
    for name, value in {"rope_theta": 10000.0, "tie": False, **PRESETS[args.preset]}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    for name in ["hidden", "layers", "heads", "kv_heads", "ffn", "max_len", "shards", "jobs"]:
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.head_dim is None:
        if args.hidden % args.heads:
            parser.error(f"--hidden {args.hidden} is not a multiple of --heads {args.heads}: give --head-dim")
        args.head_dim = args.hidden // args.heads
    if args.head_dim < 2 or args.head_dim % 2:
        parser.error(f"the head size is {args.head_dim}: rotary positions need an even one")
    if args.heads % args.kv_heads:
        parser.error(f"--heads {args.heads} is not a multiple of --kv-heads {args.kv_heads}")
    if args.vocab < MIN_VOCAB:
        parser.error(f"--vocab must be at least {MIN_VOCAB}: the 256 bytes and the special tokens")
    if args.seed < 0:
        parser.error("--seed must not be negative")
    if args.shards > len(tensors_of(args)):
        parser.error(f"--shards {args.shards}: there are only {len(tensors_of(args))} tensors")
    return args


def main() -> None:
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    for old in [*args.out.glob("model*.safetensors"), *args.out.glob("model.safetensors.index.json")]:
        old.unlink()
    write_json(args.out / "config.json", config_json(args))
    write_json(args.out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1})
    tokenizer = json.dumps(tokenizer_json(args.vocab), ensure_ascii=False)
    (args.out / "tokenizer.json").write_text(tokenizer + "\n", encoding="utf-8")
    write_json(args.out / "tokenizer_config.json",
               {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL_TOKENS[0],
                "eos_token": SPECIAL_TOKENS[1], "model_max_length": args.max_len})
    parameters = write_weights(args)
    megabytes = parameters * DTYPES[args.dtype][1] / 1e6
    print(f"{args.out}: {parameters / 1e6:.1f} M parameters, {megabytes:,.1f} MB of {args.dtype}")


if __name__ == "__main__":
    main()
