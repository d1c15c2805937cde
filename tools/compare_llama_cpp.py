#!/usr/bin/env python3
"""Measures pagoda beside llama.cpp on the same weights and machine, interleaved, and prints a table of medians and ratios.

    python3 tools/compare_llama_cpp.py --pagoda build/release/bin/pagoda --model DIR --llama-bin DIR --gguf FILE

DIR is a Hugging Face folder (tools/make_random_model.py --preset llama-1.1b), FILE the same weights as GGUF, and --llama-bin
the folder that holds llama-bench and llama-batched-bench. Standard library only. Run it on a quiet machine.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def pagoda(args, streams, input_len, output_len):
    out = run([args.pagoda, "bench", "throughput", "--model", args.model, "--threads", str(args.threads), "--json",
               "--num-prompts", str(streams), "--input-len", str(input_len), "--output-len", str(output_len),
               "--no-enable-prefix-caching", "--kv-cache-memory", "2"])
    return json.loads(out)


def pagoda_prefill(args, length):
    return length * 1000 / pagoda(args, 1, length, 1)["ttft_ms"]["p50"]


def pagoda_decode(args, streams):
    return streams * 1000 / pagoda(args, streams, args.context, args.tokens)["itl_ms"]["p50"]


def llama_prefill(args, length):
    out = run([f"{args.llama_bin}/llama-bench", "-m", args.gguf, "-p", str(length), "-n", "0", "-t", str(args.threads),
               "-r", "1", "-o", "json"])
    return json.loads(out)[0]["avg_ts"]


def llama_decode(args, streams):
    out = run([f"{args.llama_bin}/llama-batched-bench", "-m", args.gguf, "-c", "8192", "-npp", str(args.context), "-ntg",
               str(args.tokens), "-npl", str(streams), "-t", str(args.threads), "--output-format", "jsonl"])
    rows = [json.loads(line) for line in out.splitlines() if re.match(r"^\{.*\"speed_tg\"", line)]
    return rows[-1]["speed_tg"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama-bin", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--context", type=int, default=96, help="prompt tokens of each stream before decoding")
    parser.add_argument("--tokens", type=int, default=32, help="tokens decoded by each stream")
    parser.add_argument("--prompts", default="128,512")
    parser.add_argument("--streams", default="1,8,16")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    cases = [(f"prefill {n} tokens", n, pagoda_prefill, llama_prefill) for n in map(int, args.prompts.split(","))]
    cases += [(f"decode {n} streams", n, pagoda_decode, llama_decode) for n in map(int, args.streams.split(","))]
    rows = []
    for name, n, ours, theirs in cases:
        mine, peer = [], []
        for _ in range(args.rounds):
            mine.append(ours(args, n))
            peer.append(theirs(args, n))
            if sys.stderr.isatty():
                print(f"{name}: {mine[-1]:.1f} / {peer[-1]:.1f} tokens/s", file=sys.stderr)
        a, b = statistics.median(mine), statistics.median(peer)
        rows.append({"case": name, "pagoda": round(a, 1), "llama_cpp": round(b, 1), "ratio": round(a / b, 2)})
    if args.json:
        print(json.dumps(rows))
        return
    print("| tokens/s | pagoda | llama.cpp | ratio |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['case']} | {row['pagoda']} | {row['llama_cpp']} | {row['ratio']} |")


if __name__ == "__main__":
    main()
