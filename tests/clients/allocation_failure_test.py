#!/usr/bin/env python3
"""One allocation fails while a request is served, another one each time. Standard library only.

usage: allocation_failure_test.py PAGODA MODEL_DIR LIBRARY [--all STRIDE]

LIBRARY is that of tests/preload/fail_allocation.cpp. The allocations that fail are those with which the front end takes a
connection and reads a request: it has its right answer, an error or the end of its connection, at once, and the server
then serves the next. --all goes on through the engine, where an actor that is out of memory ends the engine, and counts
how often that is so.
"""
import collections
import json
import mmap
import os
import socket
import struct
import sys
import tempfile
import time

from server import Server

BODY = {"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}
FRONT_END = 80  # so many allocations of a request are the front end's own
PATIENCE_S = 15


class Allocations:
    """The library's file: see there."""

    def __init__(self, path):
        with open(path, "wb") as file:
            file.write(bytes(16))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 16)

    def fail(self, number):
        struct.pack_into("q", self.memory, 8, 0)
        struct.pack_into("q", self.memory, 0, number)

    def has_failed(self):
        struct.pack_into("q", self.memory, 0, 0)
        return struct.unpack_from("q", self.memory, 8)[0] != 0


class Walk:
    def __init__(self, pagoda, model, library, control, stride, last):
        self.stride = stride
        self.last = last
        self.flags = (pagoda, model, "--threads", "1")
        self.library = library
        self.control = control
        self.allocations = Allocations(control)
        self.outcomes = collections.Counter()
        self.failures = []
        self.server = None

    def start(self):
        os.environ.update(LD_PRELOAD=self.library, PAGODA_FAIL_ALLOCATION=self.control)
        try:
            self.server = Server(*self.flags)
            self.server.__enter__()
        finally:
            del os.environ["LD_PRELOAD"], os.environ["PAGODA_FAIL_ALLOCATION"]
        self.expected = self.ask()

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

    def run(self):
        self.start()
        try:
            self.check_accepting()
            number = 1
            while (self.last is None or number <= self.last) and self.try_one(number):
                number += self.stride
        finally:
            self.stop()


def main():
    pagoda, model, library = sys.argv[1:4]
    goes_on = sys.argv[4:5] == ["--all"]
    stride, last = (int(sys.argv[5]), None) if goes_on else (1, FRONT_END)
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(pagoda, model, library, os.path.join(folder, "control"), stride, last)
        walk.run()
    tried = sum(walk.outcomes.values())
    print(f"{tried} allocations failed: {dict(walk.outcomes)}")
    if not goes_on and (tried < FRONT_END or walk.outcomes["the engine ended"] > 0):
        walk.failures.append("not every allocation of the front end failed, or one of them ended the engine")
    for failure in walk.failures:
        print("FAIL", failure)
    sys.exit(1 if walk.failures else 0)


if __name__ == "__main__":
    main()
