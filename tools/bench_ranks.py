#!/usr/bin/env python3
"""Measures what ranks cost on one CPU socket: one rank with all threads, beside ranks that share each layer and the threads,
and stages that have some of the layers and of the threads.

    python3 tools/make_random_model.py --preset llama-1.1b --out build/models/llama-1.1b
    python3 tools/bench_ranks.py --model build/models/llama-1.1b --ranks 2 --threads 2
    python3 tools/bench_ranks.py --model build/models/llama-1.1b --ranks 1 --stages 2 --threads 2

Runs `pagoda bench throughput` for each load (--streams: so many requests at a time) in turn for these cases, in each
round in the opposite order:

    one        one rank
    ranks      --tensor-parallel-size and --pipeline-parallel-size in one process
    processes  the same, each rank in a worker process (--processes)
    joined     stages on workers that join over TLS (--joined); bytes to and from one of them take --delay-ms each way.
               Needs the program openssl

Prints one JSON object: tokens a second of each case, as medians over the rounds, and its ratio to `one`, as the median of
the ratios in each round. Flags behind -- go to all cases. Needs only the standard library. Run it on a quiet machine.
"""
import argparse
import contextlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
import joined_workers
from ports import free_port


def throughput(options, streams, flags):
    command = [options.pagoda, "bench", "throughput", "--model", options.model, "--threads", str(options.threads),
               "--kv-cache-memory", "1", "--input-len", str(options.input_len), "--output-len", str(options.output_len),
               "--num-prompts", str(streams * options.waves), "--concurrency", str(streams), "--json", *options.flags,
               *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def joined_throughput(options, streams):
    """As throughput(), with a worker for each stage that joins."""
    joined_workers.pagoda = options.pagoda
    files = joined_workers.make_certificates()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, files)
        port = free_port()
        threads = str(options.threads // options.stages)
        ports = [port] * options.stages
        if options.delay_ms > 0:
            ports[0] = stack.enter_context(joined_workers.LongWay(port, options.delay_ms / 1000)).port
        for its in ports:
            stack.callback(joined_workers.Worker(its, "--threads", threads, "--log-level", "warn").end)
        return throughput(options, streams, ["--worker-processes", "--pipeline-parallel-size", str(options.stages),
                                             *joined_workers.engine_flags(port)])


def measure(options, streams, flags):
    return joined_throughput(options, streams) if flags is None else throughput(options, streams, flags)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pagoda", default=str(ROOT / "build" / "release" / "bin" / "pagoda"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--ranks", type=int, default=2, help="of each stage")
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of all ranks together")
    parser.add_argument("--streams", default="1,16", help="requests at a time, separated by commas")
    parser.add_argument("--waves", type=int, default=1, help="requests of each stream")
    parser.add_argument("--input-len", type=int, default=32)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", action="store_true", help="also with worker processes")
    parser.add_argument("--joined", action="store_true", help="also with workers that join")
    parser.add_argument("--delay-ms", type=float, default=0, help="of bytes to and from one of the workers that join")
    parser.add_argument("flags", nargs="*", help="flags of pagoda bench, behind --")
    options = parser.parse_args()
    share = ["--tensor-parallel-size", str(options.ranks), "--pipeline-parallel-size", str(options.stages)]
    cases = {"one": [], "ranks": share}
    if options.processes:
        cases["processes"] = [*share, "--worker-processes"]
    if options.joined:
        cases["joined"] = None
    results = {}
    for streams in map(int, options.streams.split(",")):
        rounds = []
        for number in range(options.rounds):
            order = list(cases) if number % 2 == 0 else list(reversed(cases))
            rounds.append({case: measure(options, streams, cases[case])["generation_tokens_per_s"] for case in order})
            print(f"{streams} streams, round {number + 1} of {options.rounds}", file=sys.stderr)
        results[f"{streams} streams"] = {
            case: {"generation_tokens_per_s": round(statistics.median(one[case] for one in rounds), 1),
                   "of_one": round(statistics.median(one[case] / one["one"] for one in rounds), 3)} for case in cases}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
