#!/usr/bin/env python3
"""Measures the cost of the live view: one server with clients that generate all the time, in turns without a viewer of
GET /ui/live and with one.

    python3 tools/page_overhead.py --model DIR --clients 16

Prints one JSON object: tokens/s and the CPU time of the server's process for 1000 tokens, as medians over the turns,
and the cost of viewing in percent, as the median over pairs of turns. The viewer discards what it reads, because
drawing costs the browser and not the server. Needs only the standard library. Tokens/s need a quiet machine; CPU time
less so.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import threading
import time


class Pagoda:
    def __init__(self, args):
        command = [args.pagoda, "serve", "--model", args.model, "--http", "127.0.0.1:0", "--listen", "none",
                   "--log-level", "warn", "--log-stats-interval", "0", *args.pagoda_args.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(re.fullmatch(r"http on .*:(\d+)\n", self.process.stdout.readline())[1])

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def tokens(self):
        connection, answer = self.ask("GET", "/stats")
        tokens = json.load(answer)["generation_tokens_total"]
        connection.close()
        return tokens

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def generate_until(server, ended, output_len):
    while not ended.is_set():
        body = {"prompt": "Once upon a time", "max_tokens": output_len, "ignore_eos": True, "stream": True}
        connection, answer = server.ask("POST", "/v1/completions", body)
        while answer.read1(1 << 16) and not ended.is_set():
            pass
        connection.close()


def watch(server):
    """Starts a viewer. Returns a function that ends it."""
    connection, answer = server.ask("GET", "/ui/live")
    assert answer.status == 200, answer.read()
    def read():
        try:
            while answer.read1(1 << 20):
                pass
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the connection was closed
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    def end():
        connection.sock.shutdown(2)
        reader.join()
        connection.close()
    return end


def turn(server, seconds, is_watched):
    """Returns (tokens/s, CPU milliseconds for 1000 tokens)."""
    end = watch(server) if is_watched else lambda: None
    time.sleep(0.5)
    began, tokens, cpu = time.monotonic(), server.tokens(), server.cpu_seconds()
    time.sleep(seconds)
    tokens = server.tokens() - tokens
    cpu = server.cpu_seconds() - cpu
    took = time.monotonic() - began
    end()
    return tokens / took, 1e6 * cpu / tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pagoda-args", default="", help="more flags of pagoda serve")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--output-len", type=int, default=400)
    parser.add_argument("--turns", type=int, default=10, help="of each kind")
    parser.add_argument("--seconds", type=float, default=5, help="of a turn")
    args = parser.parse_args()
    server = Pagoda(args)
    ended = threading.Event()
    clients = [threading.Thread(target=generate_until, args=(server, ended, args.output_len)) for _ in range(args.clients)]
    for client in clients:
        client.start()
    time.sleep(1)
    pairs = []
    for number in range(args.turns):
        order = (False, True) if number % 2 == 0 else (True, False)
        told = {is_watched: turn(server, args.seconds, is_watched) for is_watched in order}
        pairs.append((told[False], told[True]))
    ended.set()
    server.process.send_signal(signal.SIGINT)
    server.process.wait(60)
    for client in clients:
        client.join()
    median = lambda pick: round(statistics.median(map(pick, pairs)), 2)
    print(json.dumps({
        "clients": args.clients, "turns": args.turns,
        "tokens_per_s": median(lambda pair: pair[0][0]), "tokens_per_s_watched": median(lambda pair: pair[1][0]),
        "cpu_ms_per_1000_tokens": median(lambda pair: pair[0][1]),
        "cpu_ms_per_1000_tokens_watched": median(lambda pair: pair[1][1]),
        "lost_tokens_per_s_percent": median(lambda pair: 100 * (1 - pair[1][0] / pair[0][0])),
        "more_cpu_percent": median(lambda pair: 100 * (pair[1][1] / pair[0][1] - 1)),
    }))


if __name__ == "__main__":
    main()
