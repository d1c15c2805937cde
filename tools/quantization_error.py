#!/usr/bin/env python3
"""Measures the loss of accuracy by --quantize: log-likelihoods of text that the unquantised model wrote.

    python3 tools/quantization_error.py --model examples/models/pagoda-stories
    python3 tools/quantization_error.py --model examples/models/pagoda-stories --kv-cache-dtype fp8_e4m3,int8
    python3 tools/quantization_error.py --model examples/models/pagoda-stories --cpu-isa avx512_vnni,avx512_bf16

The model writes stories at temperature 1. Then every kind of weights (or of the KV cache, or of the processor's
instructions) scores them. The first kind is the reference. Prints the change of the mean log-likelihood of a token (of
its perplexity), the root mean square of the change of a token's log-probability, the mean absolute error of the
log-probabilities of the 8 most likely tokens at each position, and how often the most likely token stays the same.
Needs only the standard library.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile

PROMPTS = ["Once upon a time", "The little", "One day,", "It was", "There was a", "Mom", "In the", "A big"]
TOP = 8


def generate(args, requests, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)
        file.flush()
        command = [args.pagoda, "generate", "--model", args.model, "--prompts", file.name, "--output", "json",
                   "--log-level", "warn", *flags]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def scores(args, texts, *flags):
    """Returns for each token its log-probability, and those of the most likely tokens by id."""
    requests = [{"prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP} for text in texts]
    entries = []
    for result in generate(args, requests, *flags):
        for entry in result["prompt_logprobs"]:
            if entry is not None:
                entries.append((entry["logprob"], {top["token_id"]: top["logprob"] for top in entry["top"]}))
    return entries


def compare(plain, other):
    count = len(plain)
    change = [b[0] - a[0] for a, b in zip(plain, other)]
    top_errors = [abs(b[1][token] - logprob) for a, b in zip(plain, other) for token, logprob in a[1].items()
                  if token in b[1]]
    same = sum(max(a[1], key=a[1].get) == max(b[1], key=b[1].get) for a, b in zip(plain, other))
    return {"tokens": count, "mean_change": sum(change) / count,
            "perplexity": math.exp(-sum(entry[0] for entry in other) / count),
            "rms_change": math.sqrt(sum(x * x for x in change) / count),
            "top_error": sum(top_errors) / len(top_errors), "same_likeliest": same / count}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--stories", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=160, help="of each story")
    parser.add_argument("--kv-cache-dtype", metavar="TYPE,...", help="compare types of the KV cache instead of weights")
    parser.add_argument("--cpu-isa", metavar="SET,...", help="compare instruction sets instead")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    requests = [{"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": args.tokens, "temperature": 1.0, "seed": i + 1}
                for i in range(args.stories)]
    stories = generate(args, requests)
    texts = [request["prompt"] + story["outputs"][0]["text"] for request, story in zip(requests, stories)]
    if args.kv_cache_dtype:
        kind, flag, names = "KV cache", "--kv-cache-dtype", ["auto", *args.kv_cache_dtype.split(",")]
    elif args.cpu_isa:
        kind, flag, names = "instructions", "--cpu-isa", args.cpu_isa.split(",")
    else:
        kind, flag, names = "weights", "--quantize", ["none", "int8", "int4"]
    plain = scores(args, texts, flag, names[0])
    rows = [{kind: name, **compare(plain, scores(args, texts, flag, name))} for name in names]
    if args.json:
        print(json.dumps(rows))
        return
    print(f"| {kind} | tokens | perplexity | mean change of log-likelihood | rms change | error of the 8 likeliest | "
          "same likeliest |\n|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row[kind]} | {row['tokens']} | {row['perplexity']:.4f} | {row['mean_change']:+.5f} | "
              f"{row['rms_change']:.4f} | {row['top_error']:.4f} | {100 * row['same_likeliest']:.2f} % |")


if __name__ == "__main__":
    main()
