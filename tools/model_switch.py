#!/usr/bin/env python3
"""Measures how long it takes to replace one model by another: pagoda serve with memory for one model, and requests for
one token that name two models in turn.

    python3 tools/model_switch.py --models A B --rounds 10

A and B are folders or GGUF files. Prints one JSON object: the median and the longest time of a request that switches,
of a request to the loaded model, and the time that the switch added, in milliseconds. The first round, which reads the
files, does not count. Needs only the standard library.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from server import Server  # noqa: E402


class TwoModels(Server):
    def __init__(self, pagoda, models_file, flags):
        self.json_lines = False
        self.command = [pagoda, "serve", "--models", models_file, "--max-loaded-models", "1", "--http", "127.0.0.1:0",
                        "--listen", "none", "--log-level", "warn", *flags]

    def ask(self, name):
        """Returns the milliseconds until the answer."""
        began = time.perf_counter()
        body = {"model": name, "prompt": "Once", "max_tokens": 1, "temperature": 0}
        status, _, answer = self.request("POST", "/v1/completions", body, timeout=600)
        assert status == 200, answer
        return 1000 * (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default=str(ROOT / "build/release/bin/pagoda"))
    parser.add_argument("--models", nargs=2, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pagoda-args", default="--kv-cache-memory 0.25", help="more flags of pagoda serve")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({name: {"model": os.path.abspath(model)} for name, model in zip("ab", args.models)}, file)
        file.flush()
        with TwoModels(args.pagoda, file.name, args.pagoda_args.split()) as server:
            switches, stays = [], []
            for number in range(2 * (args.rounds + 1)):
                name = "ab"[number % 2]
                switch, stay = server.ask(name), server.ask(name)
                if number >= 2:
                    switches.append(switch)
                    stays.append(stay)
    median = statistics.median
    print(json.dumps({"switch_ms": round(median(switches), 1), "longest_switch_ms": round(max(switches), 1),
                      "request_ms": round(median(stays), 1), "added_ms": round(median(switches) - median(stays), 1)}))


if __name__ == "__main__":
    main()
