"""A server with worker processes, and requests whose tokens are known: what tests and tools kill workers under. Standard
library only.
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import http.client
import unittest

SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
PROMPTS = ["Once upon a time there was a little", "The old bear sat in his house and looked",
           "It was raining, and Lily wanted to", "One day a boy named Tom found a big"]


def request(i, max_tokens=80):
    """The i-th of requests of all kinds: greedy, seeded, several sequences, beams, with logprobs. Without `id`."""
    body = {"op": "generate", "prompt": PROMPTS[i % len(PROMPTS)] + (" and then" * (i % 7)), "max_tokens": max_tokens,
            "ignore_eos": True, "stream": True, "temperature": 0.0 if i % 2 else 0.9, "seed": i}
    kind = i % 6
    if kind == 2:
        body["n"] = 2
    elif kind == 3:
        body.update(use_beam_search=True, n=3, best_of=3, temperature=0.0, max_tokens=max_tokens // 2)
    elif kind == 4:
        body.update(logprobs=2, prompt_logprobs=1)
    elif kind == 5:
        body.update(presence_penalty=0.5, repetition_penalty=1.1)
    return body


def mixed_request(i):
    """Returns a request: a plain one, one with a grammar, one with the adapter `wild`, or one that is not streamed."""
    plain = request(i, 40)
    if i % 8 == 6:
        plain = {key: plain[key] for key in ("op", "prompt", "temperature", "seed", "stream")}
        plain.update(max_tokens=60, structured_outputs={"json": SCHEMA})
    if i % 8 == 7:
        plain["adapter"] = "wild"
    if i % 5 == 4:
        plain["stream"] = False
    return plain


class Outcome:
    """What has come of one request."""

    def __init__(self):
        self.streamed = {}  # by sequence
        self.outputs = None  # [(token ids, text, finish reason)] of its end
        self.done = None  # the event that is its end
        self.error = None
        self.times = []  # of its events
        self.deltas = []  # (time, number of tokens)
        self.ended = threading.Event()

    def tokens(self):
        """Everything that may not differ from an undisturbed run."""
        return {"streamed": self.streamed, "outputs": self.outputs}


class Connection:
    """JSON lines: many requests at once."""

    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # requests that are sent together come together
        self.lock = threading.Lock()
        self.live = {}
        self.next_id = 0
        self.problems = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def submit(self, body):
        outcome = Outcome()
        with self.lock:
            self.next_id += 1
            body = dict(body, id=f"r{self.next_id}")
            self.live[body["id"]] = outcome
            outcome.times.append(time.monotonic())
            self.socket.sendall(json.dumps(body).encode() + b"\n")
        return outcome

    def read(self):
        for line in self.socket.makefile("rb"):
            event = json.loads(line)
            outcome = self.live.get(event.get("id"))
            if outcome is None or outcome.ended.is_set():
                self.problems.append(f"an event of no live request: {event}")
                continue
            outcome.times.append(time.monotonic())
            if event["event"] == "delta":
                outcome.streamed.setdefault(event["index"], []).extend(event["token_ids"])
                outcome.deltas.append((outcome.times[-1], len(event["token_ids"])))
            elif event["event"] == "done":
                outcome.done = event
                outcome.outputs = [(o["token_ids"], o["text"], o["finish_reason"]) for o in event["outputs"]]
                outcome.ended.set()
            elif event["event"] == "error":
                outcome.error = event["error"]
                outcome.ended.set()
        for outcome in list(self.live.values()):
            if not outcome.ended.is_set():
                outcome.error = {"message": "the connection has ended"}
                outcome.ended.set()

    def close(self):
        self.socket.close()


class LoadCase(unittest.TestCase):
    """Tests that submit mixed requests over self.connection."""

    def submit(self, count):
        return [self.connection.submit(mixed_request(i)) for i in range(count)]

    def expect(self, outcomes, expected=None):
        """The tokens of all, which are those that are expected."""
        for i, outcome in enumerate(outcomes):
            self.assertTrue(outcome.ended.wait(300 * SLOWNESS), f"request {i} did not end")
            self.assertIsNone(outcome.error, f"request {i}: {mixed_request(i)}")
            if expected:
                self.assertEqual(outcome.tokens(), expected[i], f"request {i}: {mixed_request(i)}")
        self.assertEqual(self.connection.problems, [])
        return [outcome.tokens() for outcome in outcomes]


class WorkerServer:
    """`with WorkerServer(pagoda, model, *flags) as server`: pagoda serve --worker-processes with both protocols."""

    def __init__(self, pagoda, model, *flags):
        self.command = [pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                        "--log-level", "off", "--worker-processes", *flags]
        if "--kv-cache-memory" not in flags:
            self.command += ["--kv-cache-memory", "0.1"]
        self.exit_code = 0

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        addresses = {}
        for word in ("listening", "http"):
            line = self.process.stdout.readline()
            found = re.fullmatch(word + r" on (.*):(\d+)\n", line)
            if not found:
                self.process.kill()
                raise RuntimeError(f"the server said {line!r} and ended with {self.process.wait()}")
            addresses[word] = (found[1], int(found[2]))
        self.lines, self.http = addresses["listening"], addresses["http"]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
        if code != self.exit_code:
            raise RuntimeError(f"the server ended with {code}")

    def get(self, path):
        """(status, body)."""
        connection = http.client.HTTPConnection(*self.http, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stats(self):
        status, body = self.get("/stats")
        assert status == 200, (status, body)
        return json.loads(body)

    def workers(self):
        """The process ids of its children that live, whatever the server knows of them."""
        return [pid for pid, state in children(self.process.pid) if state != "Z"]

    def zombies(self):
        return [pid for pid, state in children(self.process.pid) if state == "Z"]

    def descriptors(self):
        """The links of the server's open descriptors in /proc, such as "socket:[4711]"."""
        folder = f"/proc/{self.process.pid}/fd"
        found = []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # it has just been closed
                found.append(os.readlink(f"{folder}/{name}"))
        return found

    def kill_worker(self, sig=signal.SIGKILL):
        """The one that serves; another may stand by."""
        (pid,) = self.stats()["worker_pids"] if "--standby-worker" in self.command else self.workers()
        os.kill(pid, sig)
        return pid

    def wait_for(self, condition, seconds=30, pause=0.002):
        """The stats as soon as condition(stats) is true."""
        deadline = time.monotonic() + seconds
        while True:
            stats = self.stats()
            if condition(stats):
                return stats
            assert time.monotonic() < deadline, f"not within {seconds} s: {stats}"
            time.sleep(pause)


def process(pid):
    """(state, parent), or nothing when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def lives(pid):
    return (process(pid) or "Z")[0] not in "ZX"


def ends(pid, seconds=10):
    """Whether it has ended within that time. The kernel closes the sockets of a process before it tells its children."""
    deadline = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


def children(parent):
    """[(pid, state)] of the processes whose parent that is."""
    known = [(int(name), process(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [(pid, found[0]) for pid, found in known if found and found[1] == parent]


def run(connection, bodies, seconds=120):
    """The outcomes of requests that run together."""
    outcomes = [connection.submit(body) for body in bodies]
    for outcome in outcomes:
        assert outcome.ended.wait(seconds), "a request did not end"
    return outcomes
