#!/usr/bin/env python3
"""Measures the effects of KV memory management on a served model. Starts `pagoda serve` a few times and prints one JSON
object:

  prefix   time to first token of a cached prompt against an equal prompt that is not cached, at several lengths
  slots    token slots that are allocated but empty, over a mixed load
  preempt  two requests that do not fit together: seconds until both are done, by preemption mode

Times are medians in milliseconds. The machine should be quiet.
"""
import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time


class Server:
    """A running `pagoda serve` and one connection to it."""

    def __init__(self, options, *flags):
        command = [options.pagoda, "serve", "--model", options.model, "--listen=127.0.0.1:0", "--log-level=error",
                   f"--threads={options.threads}", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit("pagoda serve did not start")
        host, port = line.split()[-1].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.lines = self.socket.makefile("r", encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.process.stdout.close()

    def send(self, **message):
        self.socket.sendall((json.dumps(message) + "\n").encode())

    def read(self):
        event = json.loads(self.lines.readline())
        if event["event"] == "error":
            sys.exit(f"pagoda says: {event['error']['message']}")
        return event

    def ask(self, **message):
        self.send(**message)
        return self.read()

    def generate(self, id, prompt, max_tokens):
        self.send(op="generate", id=str(id), prompt_token_ids=prompt, max_tokens=max_tokens, stream=False,
                  temperature=0, ignore_eos=True)


def measure_prefix(options, draw):
    """The first run of a prompt fills the cache. The second finds all blocks but the last one there."""
    report = {}
    with Server(options) as server:
        longest = server.ask(op="model")["max_model_len"]
        for length in options.prefix_lengths:
            if length + 1 > longest:
                continue
            cold, hit = [], []
            for repeat in range(options.repeats + 1):  # the first is a warm-up
                prompt = draw(length)
                for times in (cold, hit):
                    server.generate(repeat, prompt, 1)
                    done = server.read()
                    if repeat > 0:
                        times.append(done["timing"]["ttft_ms"])
            cached = done["usage"]["cached_tokens"]
            report[length] = {"cold_ttft_ms": round(statistics.median(cold), 3),
                              "hit_ttft_ms": round(statistics.median(hit), 3), "cached_tokens": cached,
                              "hit_percent_of_cold": round(100 * statistics.median(hit) / statistics.median(cold), 2)}
    return report


def measure_slots(options, draw, rng):
    """Polls stats while requests of mixed lengths run. Returns means over the samples with allocated blocks."""
    with Server(options, "--block-size=16", "--max-num-seqs=32", "--no-enable-prefix-caching") as server:
        longest = server.ask(op="model")["max_model_len"]
        for i in range(options.slot_requests):
            length = min(round(rng.lognormvariate(5.3, 0.7)) + 8, longest // 2)
            server.generate(i, draw(length), min(rng.randrange(16, 256), longest - length))
        allocated, used, left = [], [], options.slot_requests
        while left > 0:
            server.send(op="stats")
            while (event := server.read())["event"] != "stats":
                left -= 1
            if event["allocated_slots"] > 0:
                allocated.append(event["allocated_slots"])
                used.append(event["used_slots"])
            time.sleep(0.02)
    return {"block_size": 16, "requests": options.slot_requests, "samples": len(allocated),
            "mean_allocated_slots": round(statistics.mean(allocated)), "mean_used_slots": round(statistics.mean(used)),
            "empty_percent": round(100 * (1 - sum(used) / sum(allocated)), 2)}


def measure_preemption(options, draw):
    """Runs two requests whose prompts fit together but whose outputs do not: the later one is preempted once."""
    report = {}
    for length in options.preempt_lengths:
        output = 64
        blocks = -(-2 * (length + output // 2) // 16) + 1
        by_mode = {}
        for mode in ("recompute", "swap", "auto"):
            flags = ["--block-size=16", f"--num-device-blocks={blocks}", f"--num-host-blocks={2 * blocks}",
                     f"--preemption-mode={mode}", "--no-enable-prefix-caching", "--watermark=0"]
            seconds = []
            with Server(options, *flags) as server:
                if length + output > server.ask(op="model")["max_model_len"]:
                    continue
                for repeat in range(options.repeats + 1):
                    started = time.monotonic()
                    for i in range(2):
                        server.generate(f"{repeat}.{i}", draw(length), output)
                    for i in range(2):
                        server.read()
                    if repeat > 0:
                        seconds.append(time.monotonic() - started)
                stats = server.ask(op="stats")
            by_mode[mode] = {"both_done_ms": round(1000 * statistics.median(seconds), 1),
                             "recomputed": stats["preemptions_recompute_total"],
                             "swapped": stats["preemptions_swap_total"],
                             "swap_mb_per_s": round(stats["swap_bytes_per_s"] / 1e6)}
        if by_mode:
            report[length] = by_mode
    return report


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    lengths = lambda text: [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default=os.path.join(root, "build/release/bin/pagoda"), help="the command to run")
    parser.add_argument("--model", default=os.path.join(root, "examples/models/pagoda-stories"),
                        help="lengths beyond its max_model_len are left out")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prefix-lengths", type=lengths, default=[500, 2000])
    parser.add_argument("--slot-requests", type=int, default=200)
    parser.add_argument("--preempt-lengths", type=lengths, default=[128, 512, 1024, 2048, 4096])
    parser.add_argument("--only", choices=("prefix", "slots", "preempt"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with open(os.path.join(options.model, "config.json"), encoding="utf-8") as file:
        vocab_size = json.load(file)["vocab_size"]
    rng = random.Random(options.seed)
    draw = lambda length: [rng.randrange(10, vocab_size) for _ in range(length)]
    report = {"model": os.path.basename(os.path.normpath(options.model))}
    if options.only in (None, "prefix"):
        report["prefix"] = measure_prefix(options, draw)
    if options.only in (None, "slots"):
        report["slots"] = measure_slots(options, draw, rng)
    if options.only in (None, "preempt"):
        report["preempt"] = measure_preemption(options, draw)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
