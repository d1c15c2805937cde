#!/usr/bin/env python3
"""Measures what LoRA adapters cost a server: equal streams of completions, which name no adapter, one, or each another.

    python3 tools/make_random_model.py --preset llama-1.1b --out build/models/llama-1.1b
    python3 tools/bench_lora.py --model build/models/llama-1.1b --adapters 64 --rank 16

The tool writes random adapters of the model's linear layers as peft does (--folder keeps them for the next run), starts
two servers, and runs these cases in turn, in each round in the opposite order:

    plain   no adapters, from a server without --enable-lora
    base    no adapters, from a server with --enable-lora, as all that follow
    one     all streams name the same adapter
    each    each stream names another adapter, and the next ones with its next requests
    load    as base, while --loads adapters are loaded one after the other with POST /v1/load_lora_adapter

Prints one JSON object: for each case tokens a second, time to the first token and time between tokens, as medians over
the rounds; and ratios of two cases, as medians of the ratios in each round. With --url another server is measured, for
example vLLM, which must serve the model and its adapters as lora-0, lora-1 and so on: --write-only writes them before.
Needs only the standard library. Run it on a quiet machine.
"""
import argparse
import asyncio
import contextlib
import json
import math
import os
import pathlib
import random
import re
import statistics
import struct
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from server import Server  # noqa: E402

CASES = ["plain", "base", "one", "each", "load"]
RATIOS = [("base", "plain"), ("one", "base"), ("each", "base"), ("each", "one"), ("load", "base")]
LAYERS = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
          "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp"}


# ---- adapters ----


def shapes_of(config):
    """Returns (outputs, inputs) of each linear layer of a Llama, Mistral or Qwen."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    return {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
            "o_proj": (hidden, queries), "gate_proj": (ffn, hidden), "up_proj": (ffn, hidden), "down_proj": (hidden, ffn)}


def random_bfloat16(rng, count):
    """Returns the bytes of numbers between 0.0078 and 0.0156 of either sign."""
    data = bytearray(rng.randbytes(2 * count))
    data[1::2] = data[1::2].translate(bytes(0x3C | byte & 0x80 for byte in range(256)))
    data[0::2] = data[0::2].translate(bytes(byte & 0x7F for byte in range(256)))
    return data


def write_adapter(folder, args, config, seed):
    rng, shapes = random.Random(seed), shapes_of(config)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for target in args.targets:
            outputs, inputs = shapes[target]
            module = f"base_model.model.model.layers.{layer}.{LAYERS[target]}.{target}"
            tensors[module + ".lora_A.weight"] = (args.rank, inputs)
            tensors[module + ".lora_B.weight"] = (outputs, args.rank)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            file.write(random_bfloat16(rng, math.prod(shape)))
    peft_config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": args.rank, "lora_alpha": args.rank,
                   "bias": "none", "target_modules": args.targets, "base_model_name_or_path": str(args.model)}
    (folder / "adapter_config.json").write_text(json.dumps(peft_config, indent=2) + "\n")


def write_adapters(folder, args):
    """Writes adapters into lora-0, lora-1, ... Adapters of an earlier run with equal flags are kept. Returns their
    folders."""
    config = json.loads((pathlib.Path(args.model) / "config.json").read_text())
    wanted = json.dumps({"rank": args.rank, "targets": args.targets, "model": config})
    stamp = folder / "made_for.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        for old in folder.glob("lora-*/adapter_config.json"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        stamp.write_text(wanted)
    folders = [folder / f"lora-{i}" for i in range(args.adapters)]
    for i, adapter in enumerate(folders):
        if not (adapter / "adapter_config.json").exists():  # which is written last
            write_adapter(adapter, args, config, i)
    return folders, config


# ---- clients ----


class Target:
    """Address of a server, and the names that its requests use."""

    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.key = f"Authorization: Bearer {key}\r\n" if key else ""
        self.model = None

    async def request(self, method, path, body=None):
        """Returns (reader, writer), and the status when the head of the answer has come."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        text = b"" if body is None else json.dumps(body).encode()
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n{self.key}"
                     f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        head = await reader.readuntil(b"\r\n\r\n")
        return reader, writer, int(head.split(b" ", 2)[1])

    async def call(self, method, path, body=None):
        """Returns the body of an answer that is 200."""
        reader, writer, status = await self.request(method, path, body)
        answer = await reader.read()
        writer.close()
        if status != 200:
            sys.exit(f"{method} {path}: {status} {answer[:500].decode(errors='replace')}")
        return answer

    async def find_model(self):
        models = await self.call("GET", "/v1/models")
        self.model = json.loads(models[models.index(b"{"):models.rindex(b"}") + 1])["data"][0]["id"]


class Times:
    """Times and tokens of the streams of a round, in seconds."""

    def __init__(self):
        self.ttft, self.itl, self.tokens = [], [], 0


async def complete(target, body, times):
    """Runs one completion and notes its times. Each event with a choice counts as a token in `itl`."""
    sent = last = time.perf_counter()
    reader, writer, status = await target.request("POST", "/v1/completions", body)
    tail, first, tokens = b"", True, None
    while data := await reader.read(1 << 16):
        now = time.perf_counter()
        if status != 200:
            sys.exit(f"/v1/completions: {status} {data[:500].decode(errors='replace')}")
        *lines, tail = (tail + data).split(b"\n")
        for line in lines:
            if usage := re.search(rb'"completion_tokens": ?(\d+)', line):
                tokens = int(usage[1])
            if not line.startswith(b"data: {") or b'"choices":[{' not in line.replace(b" ", b""):
                continue
            if first:
                times.ttft.append(now - sent)
            else:
                times.itl.append(now - last)
            first, last = False, now
        if b"data: [DONE]" in lines or b"data: [DONE]\r" in lines:
            break
    writer.close()
    if tokens != body["max_tokens"]:
        sys.exit(f"/v1/completions: {tokens} tokens and not {body['max_tokens']}")
    times.tokens += tokens


async def stream(target, args, number, model_of, seed, wait_for, times):
    """Sends the requests of one stream one after the other, and goes on until `wait_for` is done."""
    rng, turn = random.Random(f"{seed} {number}"), 0
    while turn < args.requests or not (wait_for is None or wait_for.done()):
        prompt = [rng.randrange(3, args.vocab) for _ in range(args.input_tokens)]
        # Streams differ in length, so that they do not run in step.
        length = args.output_tokens + (5 * number + 3 * turn) % 16
        await complete(target, {"model": model_of(number, turn), "prompt": prompt, "max_tokens": length,
                                "temperature": 0, "ignore_eos": True, "stream": True,
                                "stream_options": {"include_usage": True}}, times)
        turn += 1


async def load_adapters(target, args, folders):
    """Loads --loads adapters under new names. Returns the milliseconds of each."""
    spent = []
    for i in range(args.loads):
        began = time.perf_counter()
        await target.call("POST", "/v1/load_lora_adapter", {
            "lora_name": f"loaded-{i}", "lora_path": str(folders[i % len(folders)].resolve())})
        spent.append(1000 * (time.perf_counter() - began))
    return spent


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def one_round(case, target, args, folders, seed):
    models = {"one": lambda number, turn: "lora-0",
              "each": lambda number, turn: f"lora-{(number + turn * args.streams) % args.adapters}"}
    model_of = models.get(case, lambda number, turn: target.model)
    times, loads = Times(), None
    start = time.perf_counter()
    loading = asyncio.create_task(load_adapters(target, args, folders)) if case == "load" else None
    await asyncio.gather(*(stream(target, args, i, model_of, seed, loading, times) for i in range(args.streams)))
    seconds = time.perf_counter() - start
    result = {"tokens_per_s": times.tokens / seconds, "ttft_p50_ms": 1000 * statistics.median(times.ttft),
              "itl_p50_ms": 1000 * statistics.median(times.itl), "itl_p99_ms": 1000 * percentile(times.itl, 0.99)}
    if loading:
        loads = loading.result()
        result |= {"load_p50_ms": statistics.median(loads), "load_max_ms": max(loads)}
        for i in range(args.loads):
            await target.call("POST", "/v1/unload_lora_adapter", {"lora_name": f"loaded-{i}"})
    return result


# ---- rounds ----


def server_flags(args, folder, folders):
    flags = ["--max-num-seqs", str(args.streams), "--no-enable-prefix-caching", *args.pagoda_args.split()]
    modules = ",".join(f"{path.name}={path}" for path in folders)
    lora = ["--enable-lora", "--max-loras", str(min(args.streams, args.adapters)), "--max-cpu-loras",
            str(args.adapters), "--max-lora-rank", str(args.rank), "--lora-modules", modules, *args.lora_args.split()]
    if "load" in args.cases:
        lora += ["--enable-lora-updates", "--lora-root", str(folder.resolve())]
    return flags, flags + lora


async def measure(args, targets, folders):
    for target in {id(t): t for t in targets.values()}.values():
        await target.find_model()
    rounds = {case: [] for case in args.cases}
    for number in range(args.rounds + 1):
        for case in args.cases if number % 2 == 0 else reversed(args.cases):
            result = await one_round(case, targets[case], args, folders, number)
            if number > 0:  # the first is a warm-up
                rounds[case].append(result)
            if sys.stderr.isatty():
                print(f"round {number} of {args.rounds}, {case}: {result['tokens_per_s']:.1f} tokens/s",
                      file=sys.stderr)
    return rounds


def report(args, rounds):
    medians = {case: {name: round(statistics.median(r[name] for r in results), 2) for name in results[0]}
               for case, results in rounds.items()}
    ratios = {}
    for case, reference in RATIOS:
        if case in rounds and reference in rounds:
            ratios[f"{case} / {reference}"] = {
                name: round(statistics.median(a[name] / b[name] for a, b in zip(rounds[case], rounds[reference])), 3)
                for name in ("tokens_per_s", "ttft_p50_ms", "itl_p50_ms", "itl_p99_ms")}
    return {"model": str(args.model), "streams": args.streams, "adapters": args.adapters, "rank": args.rank,
            "targets": args.targets, "rounds": args.rounds, "cases": medians, "ratios": ratios}


def main():
    names = lambda allowed: lambda text: [n for n in text.split(",") if n in allowed or sys.exit(f"there is no {n!r}")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default=str(ROOT / "build/release/bin/pagoda"))
    parser.add_argument("--model", required=True, help="a folder with config.json; with weights, or --pagoda-args "
                        "'--load-format dummy'")
    parser.add_argument("--adapters", type=int, default=64)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", type=names(LAYERS), default=list(LAYERS), help="layers (default all)")
    parser.add_argument("--folder", type=pathlib.Path, help="folder of the adapters (default: a temporary one)")
    parser.add_argument("--write-only", action="store_true", help="only write the adapters")
    parser.add_argument("--cases", type=names(CASES), help="(default all; with --url base,one,each)")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--requests", type=int, default=2, help="of a stream in a round, one after the other")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--input-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=48, help="0 to 15 more for some requests")
    parser.add_argument("--loads", type=int, default=100)
    parser.add_argument("--pagoda-args", default="", help="more flags of both servers")
    parser.add_argument("--lora-args", default="", help="more flags of the server with adapters")
    parser.add_argument("--url", help="another server, which is not started here")
    parser.add_argument("--api-key", default="")
    args = parser.parse_args()
    args.cases = args.cases or (["base", "one", "each"] if args.url else CASES)
    with contextlib.ExitStack() as stack:
        folder = args.folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders, config = write_adapters(folder, args)
        args.vocab = config["vocab_size"]
        if args.write_only:
            return print(f"{folder}: {len(folders)} adapters of "
                         f"{os.path.getsize(folders[0] / 'adapter_model.safetensors') / 1e6:.1f} MB")
        if args.url:
            with_lora = plain = Target(args.url, args.api_key)
        else:
            start = lambda flags: Target(stack.enter_context(Server(args.pagoda, args.model, *flags)).url, "")
            flags, lora_flags = server_flags(args, folder, folders)
            plain = start(flags) if "plain" in args.cases else None
            with_lora = start(lora_flags) if args.cases != ["plain"] else None
        targets = {case: plain if case == "plain" else with_lora for case in args.cases}
        rounds = asyncio.run(measure(args, targets, folders))
    print(json.dumps(report(args, rounds), indent=2))


if __name__ == "__main__":
    main()
