#!/usr/bin/env python3
"""Decodes several streams with each kind of weights and prints tokens a second beside the limits of the machine.

    build/release/bin/pagoda_kernels_bench --benchmark_filter=peaks --benchmark_out=kernels.json
    python3 tools/bench_streams.py --model build/models/llama-1.1b --kernels kernels.json

A step reads every weight once and multiplies it with the row of each stream. So streams / step is limited by the read
bandwidth over the bytes of the weights, and by the arithmetic over two operations for each weight. The arithmetic peaks
are those of the kernels' benchmarks (pagoda_kernels_bench), measured in the same session. The read bandwidth is
measured before and after every run, because other machines on a host may take a part of it; the limit uses the median.
The KV cache's bytes are not counted, so limits are right only for short contexts. --llama-cpp takes the output of
compare_llama_cpp.py --json and adds it to the table. scripts/bench runs all of this. Needs only the standard library.
Run it on a quiet machine.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

# For each kind of weights: the arithmetic peaks that limit it, and its name in compare_llama_cpp.py.
KINDS = {"none": (("bf16_GFLOP/s", "f32_GFLOP/s"), "BF16"), "int8": (("int8_GOP/s",), "int8 / Q8_0"),
         "int4": (("int8_GOP/s",), "int4 / Q4_0")}
EMBEDDING_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def read_peaks(path):
    with open(path, encoding="utf-8") as file:
        for benchmark in json.load(file)["benchmarks"]:
            if benchmark["name"].startswith("peaks"):
                return benchmark
    sys.exit(f"{path} holds no benchmark \"peaks\": run pagoda_kernels_bench with it")


def read_now(args):
    """Returns the bytes a second that all threads together read at this moment."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        done = subprocess.run([args.kernels_bench, "--benchmark_filter=^read/", f"--benchmark_out={out.name}",
                               "--benchmark_out_format=json"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{args.kernels_bench}: exit {done.returncode}\n{done.stderr[-2000:]}")
        with open(out.name, encoding="utf-8") as file:
            return json.load(file)["benchmarks"][0]["read_GB/s"] * 1e9


def weights_of_a_step(args, quantize):
    """Returns (bytes, count) of the weights that a step reads: all but the embeddings, of which it reads a row per
    stream."""
    facts = run(args.pagoda, "inspect", args.model, "--json", "--quantize", quantize, "--kv-cache-memory", args.kv_gib)
    model, memory = facts["model"], facts["memory"]
    apart = 0 if model["tie_word_embeddings"] else model["vocab_size"] * model["hidden_size"]
    return memory["weight_bytes"] - apart * EMBEDDING_BYTES[memory["dtype"]], model["num_parameters"] - apart


def decode(args, quantize, streams):
    """Returns the tokens a second of all streams together, from the median time between tokens; the median TTFT in ms;
    and the read bandwidth before and after."""
    before = read_now(args)
    result = run(args.pagoda, "bench", "throughput", "--model", args.model, "--threads", str(args.threads), "--json",
                 "--num-prompts", str(streams), "--input-len", str(args.context), "--output-len", str(args.tokens),
                 "--no-enable-prefix-caching", "--max-chunk-ms", "0", "--kv-cache-memory", args.kv_gib,
                 "--quantize", quantize)
    return streams * 1000 / result["itl_ms"]["p50"], result["ttft_ms"]["p50"], (before + read_now(args)) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--kernels-bench", default="build/release/bin/pagoda_kernels_bench")
    parser.add_argument("--model", required=True)
    parser.add_argument("--kernels", required=True, help="JSON of pagoda_kernels_bench with at least \"peaks\"")
    parser.add_argument("--llama-cpp", help="JSON of compare_llama_cpp.py")
    parser.add_argument("--weights", default="none,int8,int4")
    parser.add_argument("--streams", default="1,4,8,16,32")
    parser.add_argument("--context", type=int, default=96, help="prompt tokens of each stream")
    parser.add_argument("--tokens", type=int, default=32, help="tokens decoded by each stream")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv-gib", default="2")
    args = parser.parse_args()

    peaks = read_peaks(args.kernels)
    peers = {}
    if args.llama_cpp:
        with open(args.llama_cpp, encoding="utf-8") as file:
            peers = {(row["weights"], row["case"]): row for row in json.load(file)}
    cases = [(kind, int(streams)) for kind in args.weights.split(",") for streams in args.streams.split(",")]
    measured = {case: [] for case in cases}
    for number in range(args.rounds):  # interleaved: a disturbance of the machine affects all cases
        for case in cases:
            measured[case].append(decode(args, *case))
            if sys.stderr.isatty():
                print(f"round {number + 1} of {args.rounds}, {case[0]}, {case[1]} streams: "
                      f"{measured[case][-1][0]:.1f} tokens/s", file=sys.stderr)

    print(f"peaks of this run: {peaks['read_GB/s']:.1f} GB/s read, {peaks['f32_GFLOP/s']:.0f} GFLOP/s in float32, "
          f"{peaks['bf16_GFLOP/s']:.0f} in bfloat16, {peaks['int8_GOP/s']:.0f} GOP/s in int8\n")
    columns = ["weights", "streams", "tokens/s", "limit", "% of it", "set by", "read GB/s", "TTFT ms"]
    columns += ["llama.cpp", "ratio"] if peers else []
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for kind, streams in cases:
        arithmetic, peer_kind = KINDS[kind]
        weight_bytes, count = weights_of_a_step(args, kind)
        rate, ttft, read = (statistics.median(values) for values in zip(*measured[kind, streams]))
        by_memory = streams * read / weight_bytes
        by_arithmetic = max(peaks[name] for name in arithmetic) * 1e9 / (2 * count) or float("inf")  # 0: not known
        limit = min(by_memory, by_arithmetic)
        row = ["as stored" if kind == "none" else kind, streams, f"{rate:.1f}", f"{limit:.1f}", f"{100 * rate / limit:.0f}",
               "memory" if limit == by_memory else "arithmetic", f"{read / 1e9:.1f}", f"{ttft:.1f}"]
        peer = peers.get((peer_kind, f"decode {streams} streams"))
        if peers:
            row += [peer["llama_cpp"], peer["ratio"]] if peer else ["", ""]
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
