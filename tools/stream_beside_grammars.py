#!/usr/bin/env python3
"""Measures what the grammars of one client cost the stream of another: the times between the tokens of a greedy stream
alone, beside 60 requests of another connection without grammars, and beside 60 requests with a regex each whose masks
take long. Exits with 1 if the stream's tokens differ.

usage: tools/stream_beside_grammars.py PAGODA MODEL [--tokens N] [--requests N] [-- FLAGS...]

The last line is JSON: for each load the median, 99th percentile and largest time in ms.
Needs only the standard library. Run it on a quiet machine.
"""
import argparse
import json
import socket
import subprocess
import sys
import threading
import time


class Server:
    def __init__(self, program, model, flags):
        self.process = subprocess.Popen([program, "serve", "--model", model, "--listen", "127.0.0.1:0", *flags],
                                        stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "listening on" in line:
                self.address = ("127.0.0.1", int(line.strip().rsplit(":", 1)[1]))
                return
        sys.exit("the server does not start")

    def connect(self):
        connection = socket.create_connection(self.address)
        return connection, connection.makefile("rb")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def send(connection, message):
    connection.sendall(json.dumps(message).encode() + b"\n")


def hostile_regex(k):
    """Returns a regex that passes the trial of a grammar, and has masks that take milliseconds."""
    return f"(.{{0,{12 + k % 40}}}[aeiou]){{2,{4 + k % 7}}}[x-z]{{0,{1 + k}}}"


class Load(threading.Thread):
    """Sends requests over one connection. Each is followed by another until it is stopped."""

    def __init__(self, server, num_requests, with_grammars):
        super().__init__()
        self.connection, self.lines = server.connect()
        self.num_requests, self.with_grammars = num_requests, with_grammars
        self.stops = False

    def ask(self, k):
        request = {"op": "generate", "id": str(k), "prompt": "Write the record.", "max_tokens": 60, "temperature": 1.0,
                   "seed": k, "stream": False}
        if self.with_grammars:
            request["structured_outputs"] = {"regex": hostile_regex(k)}
        send(self.connection, request)

    def run(self):
        for k in range(self.num_requests):
            self.ask(k)
        for line in self.lines:
            if self.stops:
                break
            event = json.loads(line)
            if event["event"] in ("done", "error"):
                self.ask(int(event["id"]))
        self.connection.close()


def stream(server, num_tokens):
    """Returns its token ids, and the times between them in ms."""
    connection, lines = server.connect()
    send(connection, {"op": "generate", "id": "s", "prompt": "Once upon a time there was", "max_tokens": num_tokens,
                      "ignore_eos": True, "temperature": 0})
    tokens, times = [], []
    for line in lines:
        event = json.loads(line)
        if event["event"] == "error":
            sys.exit(f"the stream has failed: {event}")
        if event["event"] != "delta":
            break
        tokens += event["token_ids"]
        times.append(time.perf_counter())
    connection.close()
    return tokens, [(b - a) * 1e3 for a, b in zip(times, times[1:])]


def facts(times):
    times = sorted(times)
    return {"median_ms": round(times[len(times) // 2], 2), "p99_ms": round(times[len(times) * 99 // 100], 2),
            "largest_ms": round(times[-1], 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pagoda")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=500, help="of the stream")
    parser.add_argument("--requests", type=int, default=60, help="beside it")
    parser.add_argument("flags", nargs="*", help="of the server, behind --")
    options = parser.parse_args()
    server = Server(options.pagoda, options.model, options.flags)
    report, right = {}, None
    try:
        for name, with_grammars in (("alone", None), ("beside plain requests", False), ("beside regexes", True)):
            load = None
            if with_grammars is not None:
                load = Load(server, options.requests, with_grammars)
                load.start()
                time.sleep(1)
            tokens, times = stream(server, options.tokens)
            if load:
                load.stops = True
                load.join()
            right = right or tokens
            if tokens != right:
                sys.exit(f"{name}: the stream has other tokens")
            report[name] = facts(times)
            print(f"{name}: {report[name]}", flush=True)
    finally:
        server.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
