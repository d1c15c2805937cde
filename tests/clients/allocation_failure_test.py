#!/usr/bin/env python3
"""One allocation fails while a request is served, another one each time. Standard library only.

usage: allocation_failure_test.py PAGODA MODEL_DIR LIBRARY [--without-reserve STRIDE]

LIBRARY is that of tests/preload/fail_allocation.cpp. Where an allocation fails as it does when memory is out, the reserve
(io/memory_reserve) is there for it: whichever fails, the request has its right answer. Where the reserve does not help
either, the allocations that fail are those with which the front end takes a connection and reads a request: it has its
right answer, an error or the end of its connection, at once, and the server then serves the next. --without-reserve goes
on with these through the engine, where an actor that is out of memory ends the engine, and counts how often that is so.
Last, memory is out for good for a while, and many ask.
"""
import collections
import concurrent.futures
import json
import mmap
import os
import resource
import socket
import struct
import sys
import tempfile
import time

from server import Server

BODY = {"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}
FRONT_END = 30  # so many allocations of a request of at least SMALLEST_OF_FRONT_END bytes are the front end's own
# The destructor of nlohmann's JSON allocates a list, and the process ends if that fails. For a small object the list is smaller.
SMALLEST_OF_FRONT_END = 64
SMALLEST = 256  # bytes; without the reserve what is smaller are the nodes of lists in CAF itself
RESERVE = 16 << 20  # io::MemoryReserve::kBytes
PATIENCE_S = 60


class Allocations:
    """The library's file: see tests/preload/fail_allocation.hpp."""

    SIZE = 32
    COUNTDOWN, FAILURES, SMALLEST, TRIES_IN_VAIN = 0, 8, 16, 24

    def __init__(self, path):
        with open(path, "wb") as file:
            file.write(bytes(self.SIZE))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), self.SIZE)

    def put(self, place, value):
        struct.pack_into("q", self.memory, place, value)

    def choose(self, *, has_reserve, smallest=0):
        self.put(self.SMALLEST, smallest)
        self.put(self.TRIES_IN_VAIN, 0 if has_reserve else 1)

    def fail(self, number):
        self.put(self.FAILURES, 0)
        self.put(self.COUNTDOWN, number)

    def has_failed(self):
        self.put(self.COUNTDOWN, 0)
        return struct.unpack_from("q", self.memory, self.FAILURES)[0] != 0


class Walk:
    def __init__(self, pagoda, model, library, control):
        self.flags = (pagoda, model, "--threads", "1")
        self.library = library
        self.control = control
        self.allocations = Allocations(control)
        self.outcomes = collections.Counter()
        self.failures = []
        self.server = None
        self.num_grammars = 0

    def start(self):
        os.environ.update(LD_PRELOAD=self.library, PAGODA_FAIL_ALLOCATION=self.control)
        try:
            self.server = Server(*self.flags, json_lines=True)
            self.server.__enter__()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["PAGODA_FAIL_ALLOCATION"]
        self.expected = self.ask()
        self.expected_lines = self.ask_lines()

    def ask(self):
        """A text, or what was answered instead."""
        try:
            status, _, body = self.server.request("POST", "/v1/completions", BODY, timeout=PATIENCE_S)
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return f"{type(error).__name__}"
        if status == 200:
            return json.loads(body)["choices"][0]["text"]
        return f"HTTP {status}" if b'"error"' in body else f"HTTP {status} without an error: {body[:100]!r}"

    def ask_lines(self):
        """The same over JSON lines."""
        line = json.dumps({"id": "1", **BODY})
        try:
            with socket.create_connection(("127.0.0.1", self.server.json_lines_port), timeout=PATIENCE_S) as connection:
                connection.sendall(line.encode() + b"\n")
                connection.shutdown(socket.SHUT_WR)
                lines = connection.makefile().read().splitlines()
        except TimeoutError:
            return "no answer"
        return "".join(event.get("text", "") if event["event"] == "delta" else event["event"]
                       for event in map(json.loads, lines))

    def ask_chat(self):
        """The text of a conversation's stream, or what came instead."""
        body = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 3, "temperature": 0,
                "stream": True}
        try:
            status, _, answer = self.server.request("POST", "/v1/chat/completions", body, timeout=PATIENCE_S)
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return f"{type(error).__name__}"
        if status != 200 or not answer.endswith(b"data: [DONE]\n\n"):
            return f"HTTP {status} {answer[-100:]!r}"
        chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])

    def ask_grammar(self):
        """Whether a text is what its grammar says, each time another one."""
        self.num_grammars += 1
        text = f"bear {self.num_grammars}"
        try:
            status, _, answer = self.server.request("POST", "/v1/completions", {
                **BODY, "max_tokens": 16, "structured_outputs": {"choice": [text]}}, timeout=PATIENCE_S)
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return f"{type(error).__name__}"
        if status != 200:
            return f"HTTP {status} {answer[:100]!r}"
        said = json.loads(answer)["choices"][0]["text"]
        return "its text" if said == text else f"{said!r}, not {text!r}"

    def ended(self):
        """Whether the engine has ended as it should, which takes a moment."""
        deadline = time.monotonic() + 10
        while self.server.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.server.process.poll() is not None

    def wait_for_rest(self):
        """Until no thread does anything: what the engine still frees of the last request is not the front end's."""
        tasks = f"/proc/{self.server.process.pid}/task"
        at_rest = 0
        deadline = time.monotonic() + 1
        while at_rest < 3 and time.monotonic() < deadline:
            time.sleep(0.002)
            states = set()
            for task in os.listdir(tasks):
                try:
                    with open(f"{tasks}/{task}/stat") as file:
                        states.add(file.read().rpartition(")")[2].split()[0])
                except OSError:
                    states.add("R")  # one that has just ended
            at_rest = at_rest + 1 if states == {"S"} else 0

    def try_one(self, number):
        """False when the request allocates less often."""
        self.wait_for_rest()
        self.allocations.fail(number)
        answer = self.ask()
        if not self.allocations.has_failed():
            return False
        if answer == "no answer" or "without" in answer or (not answer.startswith(("HTTP 5", "RemoteDisc", "Connection", "BrokenPipe"))
                                                           and answer != self.expected):
            self.failures.append(f"allocation {number}: {answer!r}")
        afterwards = self.ask()
        if afterwards == self.expected:
            self.outcomes["right answer" if answer == self.expected else "an error"] += 1
        elif self.ended():
            code = self.server.process.returncode
            self.outcomes["the engine ended"] += 1
            if code != 1:
                self.failures.append(f"allocation {number}: the server ended with {code}")
            self.start_anew()
        else:
            self.failures.append(f"allocation {number}: {answer!r}, then {afterwards!r}")
            self.start_anew()
        return True

    def check_reserve(self):
        """Whichever allocation fails, by HTTP and by JSON lines: nobody notices."""
        self.allocations.choose(has_reserve=True)
        for ask in (self.ask, self.ask_lines, self.ask_chat, self.ask_grammar):
            expected = ask()
            number = 1
            while True:
                self.allocations.fail(number)
                answer = ask()
                if not self.allocations.has_failed():
                    break
                if answer != expected:
                    self.failures.append(f"{ask.__name__}, allocation {number}, with the reserve: {answer!r}")
                health = self.server.request("GET", "/health", timeout=PATIENCE_S)[0]
                if health != 200:
                    self.failures.append(f"allocation {number}, with the reserve: then /health is {health}")
                number += 1
            print(f"with the reserve: {ask.__name__} allocates {number - 1} times")
            if number < 100:
                self.failures.append(f"{ask.__name__} allocates {number} times only")

    def check_accepting(self):
        """Beside a connection that stays, the next one's place in the reactor is allocated: that fails first."""
        held = []
        for number in range(1, 4):
            held.append(socket.create_connection(("127.0.0.1", self.server.port)))
            time.sleep(0.2)  # until it is accepted, and the request before has left nothing to do
            self.allocations.fail(number)
            answer = self.ask()
            afterwards = self.ask()
            if not self.allocations.has_failed() or answer == "no answer" or afterwards != self.expected:
                self.failures.append(f"allocation {number} beside a connection: {answer!r}, then {afterwards!r}")
                self.start_anew()
        for connection in held:
            connection.close()

    def start_anew(self):
        self.stop()
        self.start()

    def stop(self):
        if self.server.process.poll() is None:
            self.server.process.kill()
        self.server.process.wait()
        self.server.process.stdout.close()

    def bytes_taken(self):
        with open(f"/proc/{self.server.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    def limit_bytes(self, limit):
        """RLIMIT_AS of the server; returns what it was."""
        return resource.prlimit(self.server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))[0]

    def check_refusals(self):
        """A reserve that cannot be put aside again: what is new is refused, until there is memory."""
        self.allocations.choose(has_reserve=True)
        before = self.limit_bytes(self.bytes_taken() - RESERVE // 2)  # half of it once it is given back
        self.allocations.fail(1)
        try:
            status, headers, body = self.server.request("POST", "/v1/completions", BODY, timeout=PATIENCE_S)
            if status != 503 or b"queue_full" not in body or "retry-after" not in headers:
                self.failures.append(f"without a reserve: {status} {headers} {body}")
            lines = self.ask_lines()
            if lines != "error":
                self.failures.append(f"without a reserve: JSON lines say {lines!r}")
            if self.server.request("GET", "/health", timeout=PATIENCE_S)[0] != 200:
                self.failures.append("without a reserve: the server is not well")
        finally:
            self.limit_bytes(before)
        without = self.bytes_taken()
        self.server.request("GET", "/health", timeout=PATIENCE_S)
        if self.bytes_taken() < without + RESERVE // 2:
            self.failures.append("with memory again, who asks for health does not have the reserve put aside")
        if self.ask() != self.expected or self.ask_lines() != self.expected_lines:
            self.failures.append("with a reserve again: another answer")

    def check_without_memory(self):
        """The process may take no more than it has: what does not fit the reserve is an error, and the rest is served or
        refused with a time to come back."""
        padded = b" " * (3 << 20) + json.dumps(BODY).encode()

        def body_of(number):
            if number % 3 != 2:
                return padded
            # Each another one, whose automaton has megabytes.
            regex = f"(([a-z0-9]{{1,{100 + number}}}[A-Z]{{1,9}}){{1,30}}[0-9]{{2,30}}){{1,30}}"
            return json.dumps({**BODY, "structured_outputs": {"regex": regex}}).encode()

        def ask(number):
            try:
                status, headers, body = self.server.request("POST", "/v1/completions", body_of(number),
                                                             {"Content-Type": "application/json"}, PATIENCE_S)
            except TimeoutError:
                return "no answer"
            except OSError:
                return "closed"
            if status == 200:
                text = json.loads(body)["choices"][0]["text"]
                is_right = text.isalnum() if number % 3 == 2 else text == self.expected
                return "right" if is_right else f"wrong: {body}"
            if status == 503:
                return "refused" if "retry-after" in headers and b"queue_full" in body else f"{headers} {body}"
            return "an error" if status == 500 and b'"error"' in body else f"HTTP {status} {body}"

        before = self.limit_bytes(self.bytes_taken())
        try:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                answers = collections.Counter(pool.map(ask, range(96)))
        finally:
            if self.server.process.poll() is None:
                self.limit_bytes(before)
        print(f"without memory: {dict(answers)}")
        if set(answers) - {"right", "refused", "an error", "closed"}:
            self.failures.append(f"without memory: {dict(answers)}")
        if self.ask() != self.expected:
            self.failures.append(f"without memory {dict(answers)}, then {self.ask()!r}")

    def run(self, stride):
        self.start()
        try:
            if stride is None:
                self.check_reserve()
                self.check_refusals()
                self.check_without_memory()
            self.allocations.choose(has_reserve=False)
            self.check_accepting()
            self.allocations.choose(has_reserve=False, smallest=SMALLEST_OF_FRONT_END if stride is None else SMALLEST)
            number = 1
            while (stride is not None or number <= FRONT_END) and self.try_one(number):
                number += stride or 1
        finally:
            self.stop()


def main():
    pagoda, model, library = sys.argv[1:4]
    stride = int(sys.argv[5]) if sys.argv[4:5] == ["--without-reserve"] else None
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(pagoda, model, library, os.path.join(folder, "control"))
        walk.run(stride)
    tried = sum(walk.outcomes.values())
    print(f"without the reserve {tried} allocations failed: {dict(walk.outcomes)}")
    if stride is None and (tried < FRONT_END or walk.outcomes["the engine ended"] > 0):
        walk.failures.append("not every allocation of the front end failed, or one of them ended the engine")
    for failure in walk.failures:
        print("FAIL", failure)
    sys.exit(1 if walk.failures else 0)


if __name__ == "__main__":
    main()
