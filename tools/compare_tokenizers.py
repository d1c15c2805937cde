#!/usr/bin/env python3
"""Compares the speed of pagoda's encoding with the Hugging Face `tokenizers` package: one thread each, interleaved.

    python3 tools/compare_tokenizers.py --model DIR [--model DIR ...] [--text FILE] [--rounds 5]

DIR has a tokenizer.json. Without --text, the text is 1 MB of English stories (tools/demo_corpus.py). Each round takes
the fastest of a few runs of both; prints a table of the medians of the rounds. The ids must be equal.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

TOOLS = pathlib.Path(__file__).resolve().parent


def stories(size):
    sys.path.insert(0, str(TOOLS))
    from demo_corpus import make_story
    rng = random.Random(1)
    parts = []
    while sum(map(len, parts)) < size:
        parts.append(make_story(rng) + "\n\n")
    return "".join(parts)[:size]


def run(command, text):
    done = subprocess.run(command, input=text.encode(), capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.decode()[-2000:]}")
    return json.loads(done.stdout)


def pagoda_speed(args, model, text):
    command = [args.pagoda, "bench", "tokenizer", "--model", model, "--num-iters", str(args.iterations), "--json"]
    return run(command, text)["encode_mb_per_s"]


def package_speed(args, tokenizer, text):
    best = float("inf")
    for _ in range(args.iterations):
        start = time.perf_counter()
        tokenizer.encode(text, add_special_tokens=False)
        best = min(best, time.perf_counter() - start)
    return len(text.encode()) / 1e6 / best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=3)
    args = parser.parse_args()
    text = pathlib.Path(args.text).read_text(encoding="utf-8") if args.text else stories(1_000_000)

    print(f"{len(text.encode()):,} bytes, tokenizers {tokenizers.__version__}\n")
    print("| tokenizer | pagoda MB/s | tokenizers MB/s | ratio |\n|---|---|---|---|")
    for model in args.model:
        tokenizer = tokenizers.Tokenizer.from_file(f"{model}/tokenizer.json")
        ids = run([args.pagoda, "tokenize", "--model", model, "--no-add-special-tokens"], text)
        if ids != tokenizer.encode(text, add_special_tokens=False).ids:
            sys.exit(f"{model}: the ids differ")
        rounds = [(pagoda_speed(args, model, text), package_speed(args, tokenizer, text)) for _ in range(args.rounds)]
        ours, theirs = (statistics.median(side) for side in zip(*rounds))
        print(f"| {pathlib.Path(model).name} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
