#!/usr/bin/env python3
"""Measures pagoda beside llama.cpp on the same weights and machine, interleaved, and prints a table of medians and ratios.

    python3 tools/compare_llama_cpp.py --pagoda build/release/bin/pagoda --llama-bin DIR FILE...
    python3 tools/compare_llama_cpp.py --pagoda build/release/bin/pagoda --llama-bin DIR --model DIR \\
        --gguf FILE --gguf-q8-0 FILE --gguf-q4-0 FILE

FILEs alone are GGUF files of any weights, which both programs run as stored. With --model, DIR is a Hugging Face folder
(tools/make_random_model.py --preset llama-1.1b), and the FILEs are its weights as GGUF in BF16, Q8_0 and Q4_0
(llama-quantize or the gguf Python package makes them). They are compared with the stored weights, --quantize int8 and
--quantize int4; any of them can be left out. --llama-bin is the folder of llama-bench and llama-batched-bench. Needs
only the standard library. Run it on a quiet machine.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import namedtuple

Kind = namedtuple("Kind", "name model quantize gguf")  # weights: for pagoda and for llama.cpp


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def pagoda(args, kind, streams, input_len, output_len):
    out = run([args.pagoda, "bench", "throughput", "--model", kind.model, "--threads", str(args.threads), "--json",
               "--num-prompts", str(streams), "--input-len", str(input_len), "--output-len", str(output_len),
               "--no-enable-prefix-caching", "--max-chunk-ms", "0", "--kv-cache-memory", "2",
               *(["--cpu-isa", args.cpu_isa] if args.cpu_isa else []), *(["--quantize", kind.quantize] if kind.quantize else [])])
    return json.loads(out)


def pagoda_prefill(args, kind, length):
    return length * 1000 / pagoda(args, kind, 1, length, 1)["ttft_ms"]["p50"]


def pagoda_decode(args, kind, streams):
    return streams * 1000 / pagoda(args, kind, streams, args.context, args.tokens)["itl_ms"]["p50"]


def llama_prefill(args, kind, length):
    out = run([f"{args.llama_bin}/llama-bench", "-m", kind.gguf, "-p", str(length), "-n", "0", "-t", str(args.threads),
               "-r", "1", "-o", "json"])
    return json.loads(out)[0]["avg_ts"]


def llama_decode(args, kind, streams):
    out = run([f"{args.llama_bin}/llama-batched-bench", "-m", kind.gguf, "-c", "8192", "-npp", str(args.context), "-ntg",
               str(args.tokens), "-npl", str(streams), "-t", str(args.threads), "--output-format", "jsonl"])
    rows = [json.loads(line) for line in out.splitlines() if re.match(r"^\{.*\"speed_tg\"", line)]
    return rows[-1]["speed_tg"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("files", nargs="*", metavar="FILE", help="GGUF, for both")
    parser.add_argument("--model")
    parser.add_argument("--llama-bin", required=True)
    parser.add_argument("--gguf", help="BF16")
    parser.add_argument("--gguf-q8-0")
    parser.add_argument("--gguf-q4-0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--context", type=int, default=96, help="prompt tokens of each stream before decoding")
    parser.add_argument("--tokens", type=int, default=32, help="tokens decoded by each stream")
    parser.add_argument("--prompts", default="128,512")
    parser.add_argument("--streams", default="1,4,8,16,32")
    parser.add_argument("--cpu-isa", default="", help="of pagoda; llama.cpp is built for one")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    kinds = [Kind("BF16", args.model, "none", args.gguf), Kind("int8 / Q8_0", args.model, "int8", args.gguf_q8_0),
             Kind("int4 / Q4_0", args.model, "int4", args.gguf_q4_0)]
    kinds = [kind for kind in kinds if kind.gguf]
    if kinds and not args.model:
        parser.error("--gguf, --gguf-q8-0 and --gguf-q4-0 are measured beside --model")
    kinds += [Kind(os.path.basename(file), file, "", file) for file in args.files]
    if not kinds:
        parser.error("a FILE or one of --gguf, --gguf-q8-0 and --gguf-q4-0 is needed")
    cases = [(f"prefill {n} tokens", n, pagoda_prefill, llama_prefill) for n in map(int, args.prompts.split(","))]
    cases += [(f"decode {n} streams", n, pagoda_decode, llama_decode) for n in map(int, args.streams.split(","))]
    rows = []
    for kind, (name, n, ours, theirs) in [(kind, case) for kind in kinds for case in cases]:
        mine, peer = [], []
        for _ in range(args.rounds):
            mine.append(ours(args, kind, n))
            peer.append(theirs(args, kind, n))
            if sys.stderr.isatty():
                print(f"{kind.name} {name}: {mine[-1]:.1f} / {peer[-1]:.1f} tokens/s", file=sys.stderr)
        a, b = statistics.median(mine), statistics.median(peer)
        rows.append({"weights": kind.name, "case": name, "pagoda": round(a, 1), "llama_cpp": round(b, 1), "ratio": round(a / b, 2)})
    if args.json:
        print(json.dumps(rows))
        return
    print("| weights | tokens/s | pagoda | llama.cpp | ratio |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['weights']} | {row['case']} | {row['pagoda']} | {row['llama_cpp']} | {row['ratio']} |")


if __name__ == "__main__":
    main()
