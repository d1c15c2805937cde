"""A server that is killed and started again, and clients that come back for their streams. Standard library only."""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from ports import free_port
from server import CHATML, Server

SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers


class KilledServer:
    """A server that is killed and started again at its addresses."""

    def __init__(self, pagoda, model, *flags, journal=None):
        self.http_port, self.lines_port = free_port(), free_port()
        self.command = [pagoda, "serve", "--model", model, "--http", f"127.0.0.1:{self.http_port}", "--listen",
                        f"127.0.0.1:{self.lines_port}", "--kv-cache-memory", "0.1", "--log-level", "info",
                        "--chat-template", CHATML, *flags]
        if journal:
            self.command += ["--journal", journal, "--recover", journal]
        self.host, self.port = "127.0.0.1", self.http_port
        self.log = tempfile.TemporaryFile("w+")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        for word in ("listening", "http"):
            line = self.process.stdout.readline()
            if not line.startswith(word + " on "):
                self.process.wait()
                raise RuntimeError(f"the server said {line!r}: {self.said()}")

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(60 * SLOWNESS)
            self.process.stdout.close()
            if code != 0:
                raise RuntimeError(f"the server ended with {code}: {self.said()}")

    request = Server.request
    json = Server.json
    stats = Server.stats
    wait_until_idle = Server.wait_until_idle


class HttpStream:
    """A resumable stream over HTTP: its client comes back until it has all of it, whatever happens."""

    def __init__(self, server, path, body, request_id, key=None, num_connections=0, leave_after=None,
                 stays_away=False):
        self.server, self.path, self.request_id = server, path, request_id
        self.body = dict(body, stream=True, resumable=True)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.events = []  # the text of each, without its number
        self.problem = None
        self.num_connections = num_connections
        self.leave_after = leave_after  # events, after which the client goes away once
        self.stays_away = stays_away  # once it has left
        self.is_away = False
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            deadline = time.monotonic() + 240 * SLOWNESS
            while not self.ended.is_set():
                assert time.monotonic() < deadline, f"the stream did not end: {len(self.events)} events"
                try:
                    if not self.is_away:
                        self.read_once()
                except (ConnectionError, EOFError, socket.timeout):
                    pass  # the server is gone, or we have left it
                time.sleep(0.01)
        except Exception as error:  # noqa: told by the test
            self.problem = f"{type(error).__name__}: {error}"
            self.ended.set()

    def connect(self):
        connection = socket.create_connection((self.server.host, self.server.port), timeout=120 * SLOWNESS)
        begins = self.num_connections == 0
        if begins:
            payload = json.dumps(self.body).encode()
            head = (f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    f"X-Request-Id: {self.request_id}\r\nContent-Length: {len(payload)}\r\n")
        else:
            payload = b""
            head = f"GET /v1/streams/{self.request_id}?from={len(self.events)} HTTP/1.1\r\nHost: localhost\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        connection.sendall(head.encode() + b"\r\n" + payload)
        return connection

    def read_once(self):
        with self.connect() as connection, connection.makefile("rb") as file:
            status = file.readline()
            if not status:
                raise EOFError
            self.num_connections += 1
            code = int(status.split()[1])
            while (line := file.readline()) not in (b"\r\n", b""):
                pass
            if code == 409 and self.num_connections == 1:
                return  # the server died before it could say that it has the request
            assert code == 200, f"{code}: {file.read(500)!r}"
            text = b""
            while True:
                line = file.readline()
                if not line.endswith(b"\r\n"):
                    raise EOFError
                size = int(line, 16)
                chunk = file.read(size + 2)
                if len(chunk) < size + 2:
                    raise EOFError
                if size == 0:
                    assert text == b"", f"half an event: {text!r}"
                    self.ended.set()
                    return
                text += chunk[:-2]
                while b"\n\n" in text:
                    event, _, text = text.partition(b"\n\n")
                    self.take(event.decode())
                    if self.leave_after is not None and len(self.events) >= self.leave_after:
                        self.leave_after = None
                        self.is_away = self.stays_away
                        raise EOFError

    def take(self, event):
        number, _, rest = event.partition("\n")
        assert number == f"id: {len(self.events)}", f"event {len(self.events)} is called {number!r}"
        self.events.append(rest)

    def content(self):
        """What may not differ from an undisturbed run: all but times and what the prefix cache had."""
        return [without_times(event) for event in self.events]


def without_times(event):
    event = re.sub(r'"created(_at|)":\d+', "", event)
    event = re.sub(r'"(input_tokens":\d+,"cache_creation_input_tokens":0,"cache_read_input_tokens|cached_tokens)":\d+', "", event)
    return re.sub(r'"id":"resp_[^"]*"|"(item_|response_|)id":"[^"]*"', "", event)


class LineClient:
    """JSON lines: resumable requests whose client attaches again until they have ended."""

    def __init__(self, server, bodies):
        self.server = server
        self.bodies = {body["id"]: dict(body, resumable=True) for body in bodies}
        self.events = {name: [] for name in self.bodies}
        self.done = {}
        self.problem = None
        self.ended = threading.Event()
        self.connection = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            deadline = time.monotonic() + 240 * SLOWNESS
            begins = True
            while len(self.done) < len(self.bodies):
                assert time.monotonic() < deadline, "requests did not end"
                try:
                    self.connection = socket.create_connection((self.server.host, self.server.lines_port), timeout=120 * SLOWNESS)
                    with self.connection, self.connection.makefile("rb") as file:
                        for name, body in self.bodies.items():
                            if name in self.done:
                                continue
                            line = body if begins else {"op": "attach", "id": name, "from": len(self.events[name])}
                            self.connection.sendall(json.dumps(line).encode() + b"\n")
                        begins = False
                        while len(self.done) < len(self.bodies) and (line := file.readline()).endswith(b"\n"):
                            self.take(json.loads(line))
                except OSError:
                    time.sleep(0.01)
        except Exception as error:  # noqa: told by the test
            self.problem = f"{type(error).__name__}: {error}"
        self.ended.set()

    def leave(self):
        self.connection.shutdown(socket.SHUT_RDWR)

    def take(self, event):
        name = event["id"]
        if event["event"] == "error" and event["error"]["code"] == "unknown_id" and not self.events[name]:
            return self.connection.sendall(json.dumps(self.bodies[name]).encode() + b"\n")  # it was never taken
        assert event["event"] != "error", event
        assert event["number"] == len(self.events[name]), f"{event} after {len(self.events[name])} events"
        self.events[name].append(event)
        if event["event"] == "done":
            self.done[name] = event

    def content(self):
        def of(event):
            event = dict(event)
            event.pop("timing", None)
            event.pop("usage", None)
            return event
        return {name: [of(event) for event in events] for name, events in self.events.items()}
