#!/usr/bin/env python3
"""More than 200 requests that are made to kill a server, or have killed others: none of them ends it, hangs it, changes a
token of what runs beside it, or leaves anything behind. Standard library only.

usage: killer_requests.py PAGODA MODEL_DIR
       killer_requests.py --url http://HOST:PORT [--model NAME]     HTTP of a server that runs already, of any kind

Beside them a canary asks for the same greedy answer again and again, and must get the same tokens each time. Of a server
that this program starts it checks each answer's status, and at the end descriptors, actors, KV blocks and memory; of another
one only that it answers and that the canary stays the same.
"""
import argparse
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

import killer_bodies
import killer_bytes
from exposition import num_actors
from http_walk import error_shape
from server import Server

SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))
MOST_SECONDS = 20 * SLOWNESS  # for one answer
MOST_GROWTH_MIB = 32  # when the largest come again, once arenas and caches are filled: a few passes do that, more where
MOST_PASSES = 5       # threads are held up and allocate side by side. What leaks grows each time.
LARGE_BYTES = 1 << 16
ENDPOINT_TYPES = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")


class RunningServer(Server):
    """One that somebody else has started."""

    def __init__(self, url):
        address = urllib.parse.urlsplit(url)
        self.host, self.port = address.hostname, address.port


class Canary(threading.Thread):
    """Asks for the same answer until it is stopped."""

    NAME = "the canary"

    def __init__(self, server, model):
        super().__init__(daemon=True)
        self.server = server
        self.body = {"model": model, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "logprobs": 1}
        self.prepare()
        self.expected = self.ask()
        self.num_asked = 0
        self.failures = []
        self.longest_s = 0
        self.stopping = threading.Event()

    def prepare(self):
        pass

    def close(self):
        pass

    def ask(self):
        choice = self.server.json("POST", "/v1/completions", self.body)["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    def run(self):
        while not self.stopping.wait(0.01):
            started = time.monotonic()
            try:
                if self.ask() != self.expected:
                    self.failures.append("other tokens")
            except (AssertionError, OSError) as error:
                self.failures.append(repr(error)[:200])
            self.longest_s = max(self.longest_s, time.monotonic() - started)
            self.num_asked += 1

    def stop(self):
        self.stopping.set()
        self.join()


class LineCanary(Canary):
    """The same over one connection of JSON lines."""

    NAME = "the canary of JSON lines"

    def prepare(self):
        self.connection = socket.create_connection((self.server.host, self.server.json_lines_port), timeout=60)
        self.lines = self.connection.makefile("rb")

    def ask(self):
        self.connection.sendall(json.dumps({"id": "canary", **self.body}).encode() + b"\n")
        text = ""
        while True:
            event = json.loads(self.lines.readline() or b'{"event": "the end"}')
            if event["event"] != "delta":
                break
            text += event["text"]
        if event["event"] != "done" or event["outputs"][0]["text"] != text:
            raise OSError(f"{text!r}, then {event}")
        return text, [entry["logprob"] for entry in event["outputs"][0]["logprobs"]]

    def close(self):
        self.lines.close()
        self.connection.close()


class Suite:
    def __init__(self, server, model, context, is_ours):
        self.server = server
        self.is_ours = is_ours
        self.killers = killer_bodies.killers(model, context)
        self.model = model
        self.failures = []
        self.num_sent = 0

    def fail(self, text):
        self.failures.append(text)
        print("FAIL", text, flush=True)

    def check(self, name, act, is_right):
        """Sends one killer. `act` returns what came, `is_right` what is wrong with that, or None."""
        self.num_sent += 1
        started = time.monotonic()
        try:
            came = act()
        except (OSError, ValueError) as error:
            came = error
        took = time.monotonic() - started
        if isinstance(came, Exception):
            if self.is_ours:
                self.fail(f"{name}: {came!r}")
        elif self.is_ours and (wrong := is_right(came)):
            self.fail(f"{name}: {wrong}")
        if took > MOST_SECONDS:
            self.fail(f"{name}: took {took:.1f} s")
        if os.environ.get("PAGODA_VERBOSE"):
            print(f"{took:7.3f} s  {name}: {str(came)[:160]}", flush=True)
        self.check_alive(name)

    def check_alive(self, after):
        if self.is_ours and self.server.process.poll() is not None:
            sys.exit(f"FAIL after {after}: the server has ended with {self.server.process.returncode}")
        try:
            status, _, _ = self.server.request("GET", "/health", timeout=MOST_SECONDS)
        except OSError as error:
            sys.exit(f"FAIL after {after}: the server is gone: {error}")
        if status != 200:
            self.fail(f"after {after}: /health says {status}")

    def send_body(self, killer):
        return self.server.request("POST", killer.path, killer.payload,
                                   {"Content-Type": "application/json", **killer.headers})

    @staticmethod
    def wrong_answer(killer, answer):
        status, _, body = answer
        if status not in killer.statuses:
            return f"{status}, not {' or '.join(map(str, killer.statuses))}: {body[:200]!r}"
        return error_shape(killer.path, body) if status >= 400 else None

    def bodies(self, least_bytes=0):
        for killer in self.killers:
            if len(killer.payload) < least_bytes:
                continue
            self.check(killer.name, lambda: self.send_body(killer), lambda answer: self.wrong_answer(killer, answer))

    def streams(self):
        """The same again as streams that are left at once."""
        for killer in self.killers:
            if killer.path not in ENDPOINT_TYPES or not isinstance(killer.body, dict) or len(killer.payload) > LARGE_BYTES:
                continue
            payload = json.dumps({**killer.body, "stream": True}).encode()
            head = (f"POST {killer.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(payload)}\r\n\r\n").encode()
            self.check(f"{killer.name} (stream)", lambda: killer_bytes.send_bytes(self.server, head + payload),
                       lambda status: None if status in (200, 400, 404, 503) else f"{status}")

    def bytes(self):
        for name, (data, statuses) in killer_bytes.HTTP_BYTES.items():
            self.check(name, lambda: killer_bytes.send_bytes(self.server, data),
                       lambda status: None if status in statuses else f"{status}, not one of {statuses}")

    def lines(self):
        for name, (line, events) in killer_bytes.LINES.items():
            self.check(f"JSON lines: {name}", lambda: killer_bytes.send_line(self.server, line),
                       lambda event: None if event in events else f"{event}, not one of {events}")

    def lines_of_pages(self):
        """They hear one error and the end; nothing that they bring runs."""
        for name, data in killer_bytes.LINES_OF_PAGES.items():
            self.check(f"JSON lines: {name}", lambda: killer_bytes.events_of_lines(self.server, data),
                       lambda events: None if events == ["error"] else f"{events}")

    def bodies_as_lines(self):
        for killer in self.killers:
            if translated := killer_bodies.as_line(killer):
                line, events = translated
                self.check(f"JSON lines: {killer.name}", lambda: killer_bytes.send_line(self.server, line),
                           lambda event: None if event in events else f"{event}, not one of {events}")

    def connections(self):
        kept = []
        for misbehave in killer_bytes.CONNECTIONS + (killer_bytes.LINE_CONNECTIONS if self.is_ours else ()):
            self.check(misbehave.__name__, lambda: kept.extend(misbehave(self.server)), lambda _: None)
        return kept

    def silent_lines(self):
        """They are closed, and told why."""
        self.check("silent connections of JSON lines, to their end",
                   lambda: {killer_bytes.words_of_farewell(each) for each in killer_bytes.silent_lines(self.server)},
                   lambda codes: None if codes == {"timeout"} else f"they were told {codes}")


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def num_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def check_nothing_is_left(suite, server, descriptors, actors):
    stats = server.wait_until_idle(30 * SLOWNESS)
    deadline = time.monotonic() + 30 * SLOWNESS
    for name, now, before in (("descriptors", lambda: num_descriptors(server.process.pid), descriptors),
                              ("actors", lambda: num_actors(server), actors)):
        while (left := now() - before) > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        if left > 0:
            suite.fail(f"{left} {name} are left")
    if stats["health"] != "ok" or stats["worker_restarts_total"] != 0:
        suite.fail(f"the engine was hurt: {stats}")


def check_memory(suite, server):
    """The largest bodies again: what they took before is there for them."""
    for number in range(1, MOST_PASSES + 1):
        before = resident_mib(server.process.pid)
        suite.bodies(LARGE_BYTES)
        growth = resident_mib(server.process.pid) - before
        print(f"memory grew by {growth:.1f} MiB when the largest bodies came again, time {number}")
        if growth <= MOST_GROWTH_MIB or SLOWNESS > 1:  # sanitizers keep what is freed for a while
            return
    suite.fail(f"memory grew by {growth:.1f} MiB each time")


def run(server, model, context, is_ours):
    suite = Suite(server, model, context, is_ours)
    canaries = [kind(server, model) for kind in ((Canary, LineCanary) if is_ours else (Canary,))]
    if is_ours:
        server.wait_until_idle(30 * SLOWNESS)
        actors = num_actors(server) - 1  # the session of a canary
        descriptors = num_descriptors(server.process.pid) - 1  # that of a canary
    for canary in canaries:
        canary.start()
    kept = suite.connections()
    suite.bodies()
    suite.bytes()
    if is_ours:
        suite.streams()
        suite.lines()
        suite.lines_of_pages()
        suite.bodies_as_lines()
        suite.silent_lines()
        check_memory(suite, server)
    for connection in kept:
        connection.close()
    for canary in canaries:
        canary.stop()
        if canary.ask() != canary.expected:
            suite.fail(f"{canary.NAME} has other tokens afterwards")
        canary.close()
        for failure in canary.failures[:5]:
            suite.fail(f"{canary.NAME}: {failure}")
        if canary.num_asked < 10:
            suite.fail(f"{canary.NAME} was asked only {canary.num_asked} times")
    if is_ours:
        check_nothing_is_left(suite, server, descriptors, actors)
    print(f"{suite.num_sent} killer requests, {len(suite.failures)} failures")
    for canary in canaries:
        print(f"{canary.NAME} asked {canary.num_asked} times, the longest took {canary.longest_s:.2f} s")
    return 1 if suite.failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pagoda", nargs="?")
    parser.add_argument("model_dir", nargs="?")
    parser.add_argument("--url")
    parser.add_argument("--model")
    args = parser.parse_args()
    if args.url:
        server = RunningServer(args.url)
        card = server.json("GET", "/v1/models")["data"][0]
        sys.exit(run(server, args.model or card["id"], card.get("max_model_len") or 4096, False))
    if not args.model_dir:
        parser.error("PAGODA and MODEL_DIR, or --url")
    with Server(args.pagoda, args.model_dir, "--idle-timeout-ms", "5000", json_lines=True) as server:
        card = server.json("GET", "/v1/models")["data"][0]
        code = run(server, card["id"], card["max_model_len"], True)
    sys.exit(code)


if __name__ == "__main__":
    main()
