#!/usr/bin/env python3
"""Measures the cost of serving over the bare kernels: serves decoding clients from `pagoda serve --trace`, and compares
the time between tokens that they see through the socket with the time of these steps on the device, which is the time
of the model's kernels and the sampler, one after the other.

    python3 tools/serving_overhead.py --model DIR --clients 16

Prints one JSON object. Times are medians in ms over the steps in which all clients decode. Needs only the standard
library. Run it on a quiet machine.
"""
import argparse
import asyncio
import json
import signal
import statistics
import tempfile

from compare_llama_server import Pagoda, load


def decode_steps_us(path, clients):
    """Returns the times of the device's steps with one token of each client, and those from the start of a step to the
    next."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    steps = sorted((e for e in events if e["ph"] == "X" and e["name"] == "step" and rows[e["tid"]] == "device"),
                   key=lambda e: e["ts"])
    full = [(step["dur"], after["ts"] - step["ts"]) for step, after in zip(steps, steps[1:])
            if step["args"]["tokens"] == clients and after["args"]["tokens"] == clients]
    return [duration for duration, _ in full], [period for _, period in full]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pagoda-args", default="", help="more flags of pagoda serve")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--input-len", type=int, default=16)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=32000)
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        args.pagoda_args += f" --trace {trace.name}"
        server = Pagoda(args)
        seen = asyncio.run(load(server, args, 1))
        server.process.send_signal(signal.SIGINT)
        server.process.wait(60)
        steps, periods = decode_steps_us(trace.name, args.clients)
    step_ms, period_ms = (statistics.median(times) / 1000 for times in (steps, periods))
    print(json.dumps({"clients": args.clients, "steps": len(steps), "device_step_ms": round(step_ms, 2),
                      "step_period_ms": round(period_ms, 2), "itl_p50_ms": round(seen["itl_p50_ms"], 2),
                      "overhead_percent": round(100 * (seen["itl_p50_ms"] / step_ms - 1), 2)}))


if __name__ == "__main__":
    main()
