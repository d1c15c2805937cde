#!/usr/bin/env python3
"""What the HTTP API costs over JSON lines: one server that speaks both, the same requests by each in turn.

    python3 tools/http_overhead.py --model build/models/smollm2.gguf --clients 16

Prints one JSON object: for each interface the tokens a second, the time to the first token and the processor time of the
server for a token, medians over the rounds; and the ratios. The clients look at bytes only, so that they take little of the
cores that they share with the server. Standard library only; run it on a quiet machine.
"""
import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    """Sends one request and reads to its end; notes when the first token came."""

    def __init__(self, request, first, end):
        self.request, self.first, self.end = request, first, end
        self.done = asyncio.get_running_loop().create_future()
        self.ttft = None
        self.tail = b""

    def connection_made(self, transport):
        self.transport = transport
        self.start = time.perf_counter()
        transport.write(self.request)

    def data_received(self, data):
        seen = self.tail + data
        if self.ttft is None and self.first in seen:
            self.ttft = time.perf_counter() - self.start
        if self.end in seen:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(self.ttft)
        self.tail = seen[-64:]

    def connection_lost(self, _):
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the connection ended before the answer: {self.tail!r}"))


def requests_of(kind, args):
    for i in range(args.clients):
        prompt = f"Story {i}: " + "word " * args.input_words
        body = {"prompt": prompt, "max_tokens": args.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        if kind == "lines":
            yield json.dumps({"id": "a", **body}).encode() + b"\n", b'"event":"delta"', b'"event":"done"'
        else:
            text = json.dumps(body).encode()
            head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(text)}\r\n\r\n").encode()
            yield head + text, b"data: {", b"data: [DONE]"


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def one_round(kind, port, pid, args):
    loop = asyncio.get_running_loop()
    cpu, start = cpu_seconds(pid), time.perf_counter()
    clients = [client for _, client in await asyncio.gather(
        *(loop.create_connection(lambda r=request: Client(*r), "127.0.0.1", port) for request in requests_of(kind, args)))]
    ttft = await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - start
    tokens = args.clients * args.output_tokens
    return {"tokens_per_s": tokens / seconds, "ttft_ms": 1000 * statistics.median(ttft),
            "cpu_us_per_token": 1e6 * (cpu_seconds(pid) - cpu) / tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pagoda-args", default="", help="more flags of pagoda serve")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--input-words", type=int, default=16)
    parser.add_argument("--output-tokens", type=int, default=64)
    args = parser.parse_args()
    server = subprocess.Popen([args.pagoda, "serve", "--model", args.model, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                               "--no-enable-prefix-caching", "--no-touch-memory", "--log-level", "warn",
                               *args.pagoda_args.split()], stdout=subprocess.PIPE, text=True)
    ports = [int(re.search(r":(\d+)$", server.stdout.readline()).group(1)) for _ in range(2)]
    rounds = {"lines": [], "http": []}
    try:
        for kind, port in zip(rounds, ports):
            asyncio.run(one_round(kind, port, server.pid, args))  # warm
        for i in range(args.rounds):
            order = list(zip(rounds, ports))
            for kind, port in order if i % 2 == 0 else reversed(order):
                rounds[kind].append(asyncio.run(one_round(kind, port, server.pid, args)))
                print(".", end="", file=sys.stderr, flush=True) if sys.stderr.isatty() else None
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
    medians = {kind: {name: round(statistics.median(r[name] for r in results), 2) for name in results[0]}
               for kind, results in rounds.items()}
    lines, http = medians["lines"], medians["http"]
    print(json.dumps({"clients": args.clients, **medians,
                      "tokens_per_s_percent": round(100 * (http["tokens_per_s"] / lines["tokens_per_s"] - 1), 2),
                      "ttft_ms_more": round(http["ttft_ms"] - lines["ttft_ms"], 2)}))


if __name__ == "__main__":
    main()
