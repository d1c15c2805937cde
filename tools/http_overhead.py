#!/usr/bin/env python3
"""Measures the cost of the HTTP API over JSON lines: one server serves both, and both get equal requests in turn.

    python3 tools/http_overhead.py --model build/models/smollm2.gguf --clients 16

With --requests, times to the first token are those of requests that come while others run, not all at once.

Prints one JSON object: for each interface the tokens a second, the time to the first token and the processor time of
the server for a token, as medians over the rounds; and the ratios. The clients only look at bytes, so that they take
little of the cores that they share with the server. Needs only the standard library. Run it on a quiet machine.
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
    """Sends requests one after the other and reads each to its end. Notes when the first token of each came."""

    def __init__(self, requests, first, end):
        self.requests, self.first, self.end = list(reversed(requests)), first, end
        self.done = asyncio.get_running_loop().create_future()
        self.ttfts = []
        self.tail = b""

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        self.waits = True
        self.start = time.perf_counter()
        self.transport.write(self.requests.pop())

    def data_received(self, data):
        seen = self.tail + data
        if self.waits and self.first in seen:
            self.waits = False
            self.ttfts.append(time.perf_counter() - self.start)
        self.tail = seen[-64:]
        if self.end not in seen:
            return
        self.tail = b""
        if self.requests:
            return self.send()
        self.transport.close()
        if not self.done.done():
            self.done.set_result(self.ttfts)

    def connection_lost(self, _):
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the connection ended before the answer: {self.tail!r}"))


def output_tokens(client, turn, args):
    """Returns the output length of a request. Later requests vary in length, so that clients do not run in step."""
    return args.output_tokens + (7 * client + 5 * turn) % args.output_tokens if turn else args.output_tokens


def requests_of(kind, args):
    for client in range(args.clients):
        requests = []
        for turn in range(args.requests):
            prompt = f"Story {client}.{turn}: " + "word " * args.input_words
            body = {"prompt": prompt, "max_tokens": output_tokens(client, turn, args), "temperature": 0, "ignore_eos": True,
                    "stream": True}
            if kind == "lines":
                requests.append(json.dumps({"id": "a", **body}).encode() + b"\n")
                continue
            text = json.dumps(body).encode()
            requests.append((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             f"Content-Length: {len(text)}\r\n\r\n").encode() + text)
        # An HTTP answer ends with its last chunk, which is empty.
        yield (requests, b'"event":"delta"', b'"event":"done"') if kind == "lines" else (requests, b"data: {", b"\r\n0\r\n\r\n")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def one_round(kind, port, pid, args):
    loop = asyncio.get_running_loop()
    cpu, start = cpu_seconds(pid), time.perf_counter()
    clients = [client for _, client in await asyncio.gather(
        *(loop.create_connection(lambda r=request: Client(*r), "127.0.0.1", port) for request in requests_of(kind, args)))]
    ttfts = await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - start
    tokens = sum(output_tokens(client, turn, args) for client in range(args.clients) for turn in range(args.requests))
    # The first requests of all clients come at once, so they are left out if there are later ones.
    ttft = [value for of_client in ttfts for value in (of_client[1:] or of_client)]
    return {"tokens_per_s": tokens / seconds, "ttft_ms": 1000 * statistics.median(ttft),
            "cpu_us_per_token": 1e6 * (cpu_seconds(pid) - cpu) / tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pagoda-args", default="", help="more flags of pagoda serve")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1, help="of a client, one after the other on its connection")
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
            asyncio.run(one_round(kind, port, server.pid, args))  # warm-up
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
