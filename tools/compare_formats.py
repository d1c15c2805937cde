#!/usr/bin/env python3
"""Prints a table of weight formats: size, memory, speed and accuracy of each in pagoda and in llama.cpp.

    python3 tools/compare_formats.py --llama-bin DIR --source build/models/smollm2-permuted.gguf --text FILE \\
        --formats Q8_0,Q6_K,Q4_K_M,Q4_0 --quantize int8,int4
    python3 tools/compare_formats.py --llama-bin DIR --source build/models/llama-1.1b.gguf --formats Q8_0,Q4_K_M

--source is a GGUF file of plain weights (tools/make_gguf_source.py). From it, llama-quantize makes a file of each of
--formats, once, under --work. With --quantize, pagoda quantises the source when it loads it. Both programs run the same
files, one after the other in each round. Columns:

    bits       size of the file over the number of parameters
    memory     largest resident memory of a process, MiB: `pagoda bench throughput` with one stream, llama-bench -lm none
    prefill    512 tokens, tokens/s; decode: with this many streams behind 32 tokens each, tokens/s of all
    KLD, top   KL divergence from the source's distributions in the same program (float32 in both), and how often the
               most likely token is the same, over the second halves of windows of 512 tokens; only with --text
    exact      KL divergence of both from the same file's weights in float32 (needs numpy and the Python package gguf);
               only with --exact: the loss by the arithmetic of each program, without the loss by the format

--llama-bin is the folder of llama-bench, llama-batched-bench, llama-quantize and llama-perplexity. With --rounds 0,
only accuracy is measured. Needs only the standard library. Run it on a quiet machine.
"""
import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from compare_llama_cpp import Kind, llama_decode, llama_prefill, pagoda_decode, pagoda_prefill

WINDOW = 512


def run(command: list, cwd: Path | None = None) -> tuple[str, float]:
    """Returns its output, and its largest resident memory in MiB."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {process.returncode}\n{out[-2000:]}")
    return out, usage.ru_maxrss / 1024


def say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def quantized_file(args, name: str) -> Path:
    file = args.work / f"{args.source.stem}-{name}.gguf"
    if not file.exists() or file.stat().st_mtime < args.source.stat().st_mtime:
        say(f"writing {file}")
        part = file.with_suffix(".part")
        run([args.quantize_bin / "llama-quantize", args.source, part, name, args.threads])
        part.rename(file)
    return file


def pagoda_accuracy(args, kind: Kind, reference: Path) -> dict:
    out, _ = run([args.pagoda, "bench", "accuracy", "--model", kind.model, "--reference", reference, "--text", args.text,
                  "--max-tokens", args.max_tokens, "--threads", args.threads, "--json",
                  *(["--cpu-isa", args.cpu_isa] if args.cpu_isa else []), *(["--quantize", kind.quantize] if kind.quantize else [])])
    result = json.loads(out.splitlines()[-1])
    return {"kld": result["kld_mean"], "top": 100 * result["same_top"], "perplexity": 100 * (result["perplexity_ratio"] - 1)}


def llama_accuracy(args, file: Path, reference: Path) -> dict:
    """Returns llama.cpp's accuracy. The reference's distributions are computed once."""
    text = hashlib.sha256(args.text.read_bytes()).hexdigest()[:8]
    base = args.work / f"{reference.stem}-{text}-{args.max_tokens}.distributions"
    common = [args.llama_bin / "llama-perplexity", "-f", args.text, "-c", WINDOW, "--chunks", args.max_tokens // WINDOW, "-t", args.threads]
    if not base.exists():
        part = base.with_suffix(".part")
        run([*common, "-m", reference, "--kl-divergence-base", part])
        part.rename(base)
    out, _ = run([*common, "-m", file, "--kl-divergence-base", base, "--kl-divergence"])
    number = lambda pattern: float(re.search(pattern + r"\s*:?\s*(-?[\d.]+)", out).group(1))  # noqa: E731
    return {"kld": number(r"Mean\s+KLD"), "top": number(r"Same top p:"),
            "perplexity": 100 * (number(r"Mean PPL\(Q\)/PPL\(base\)") - 1)}


def exact(args, kind: Kind, file: Path) -> tuple[dict, dict]:
    reference = args.work / f"{file.stem}-f32.gguf"
    if not reference.exists() or reference.stat().st_mtime < file.stat().st_mtime:
        part = reference.with_suffix(".part")
        run([sys.executable, Path(__file__).parent / "make_gguf_source.py", "dequantized", file, "--out", part])
        part.rename(reference)
    return {"exact": pagoda_accuracy(args, kind, reference)["kld"]}, {"exact": llama_accuracy(args, file, reference)["kld"]}


def pagoda_memory(args, kind: Kind) -> float:
    return run([args.pagoda, "bench", "throughput", "--model", kind.model, "--threads", args.threads, "--num-prompts", 1,
                "--input-len", 512, "--output-len", 2, "--kv-cache-memory", "0.1", "--max-num-seqs", 1, "--max-model-len", 1024,
                *(["--quantize", kind.quantize] if kind.quantize else [])])[1]


def llama_memory(args, file: Path) -> float:
    return run([args.llama_bin / "llama-bench", "-m", file, "-lm", "none", "-p", WINDOW, "-n", 2, "-t", args.threads, "-r", 1])[1]


def measure(args, name: str, kind: Kind, file: Path | None) -> dict:
    ours, theirs = {}, {}
    if args.text:
        ours |= pagoda_accuracy(args, kind, args.source)
        theirs |= llama_accuracy(args, file, args.source) if file else {}
        if args.exact and file:
            of_exact, of_theirs = exact(args, kind, file)
            ours, theirs = ours | of_exact, theirs | of_theirs
    if args.rounds:
        ours["memory"] = pagoda_memory(args, kind)
        theirs |= {"memory": llama_memory(args, file)} if file else {}
        cases = [("prefill", WINDOW, pagoda_prefill, llama_prefill)]
        cases += [(f"decode {n}", n, pagoda_decode, llama_decode) for n in args.streams]
        timing = SimpleNamespace(pagoda=args.pagoda, llama_bin=args.llama_bin, threads=args.threads, context=32, tokens=24,
                                 cpu_isa=args.cpu_isa)
        for case, n, mine, peer in cases:
            rounds = [(mine(timing, kind, n), peer(timing, kind, n) if file else 0) for _ in range(args.rounds)]
            ours[case] = statistics.median(first for first, _ in rounds)
            if file:
                theirs[case] = statistics.median(second for _, second in rounds)
    bits = 8 * os.path.getsize(file) / args.parameters if file else None
    say(f"{name}: {ours} / {theirs}")
    return {"format": name, "bits": bits, "pagoda": ours, "llama_cpp": theirs}


def print_table(rows: list) -> None:
    """Prints `ours / theirs` in every cell."""
    keys = list(dict.fromkeys(key for row in rows for key in row["pagoda"]))
    titles = {"kld": "KLD", "top": "same likeliest %", "perplexity": "perplexity %", "memory": "memory MiB"}
    show = {"kld": "{:.4f}", "exact": "{:.5f}", "perplexity": "{:+.1f}", "memory": "{:.0f}"}
    print("| format | bits | " + " | ".join(titles.get(key, key) for key in keys) + " |\n|---|" + "---|" * (len(keys) + 1))
    for row in rows:
        bits = "" if row["bits"] is None else f"{row['bits']:.2f}"
        cells = [" / ".join(show.get(key, "{:.1f}").format(side[key]) for side in (row["pagoda"], row["llama_cpp"]) if key in side)
                 for key in keys]
        print(f"| {row['format']} | {bits} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--llama-bin", type=Path, required=True)
    parser.add_argument("--quantize-bin", type=Path, help="folder of llama-quantize, where it is another")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/formats"))
    parser.add_argument("--formats", default="Q8_0,Q6_K,Q5_K_M,Q5_1,Q5_0,Q4_K_M,Q4_1,Q4_0,IQ4_NL,IQ4_XS,Q3_K_M,Q2_K")
    parser.add_argument("--quantize", default="int8,int4", help="of pagoda, at load; may be empty")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--exact", action="store_true", help="with --text: also against each file's own weights in float32")
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--streams", type=lambda text: [int(n) for n in text.split(",")], default=[1, 16])
    parser.add_argument("--rounds", type=int, default=1, help="of the speeds; 0: accuracy alone")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cpu-isa", default="", help="of pagoda; llama.cpp is built for one")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.quantize_bin = args.quantize_bin or args.llama_bin
    args.work.mkdir(parents=True, exist_ok=True)
    out = run([args.pagoda, "inspect", "--model", args.source, "--json"])[0]
    args.parameters = json.loads(out.splitlines()[-1])["model"]["num_parameters"]

    rows = [measure(args, "source", Kind("", str(args.source), "", str(args.source)), args.source)] if args.rounds else []
    for name in filter(None, args.formats.split(",")):
        file = quantized_file(args, name)
        rows.append(measure(args, name, Kind("", str(file), "", str(file)), file))
    rows += [measure(args, f"--quantize {name}", Kind("", str(args.source), name, ""), None)
             for name in filter(None, args.quantize.split(","))]
    if args.json:
        print(json.dumps(rows))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
