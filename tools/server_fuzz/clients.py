"""Clients of a server that may be killed under them. They join the events of several servers to answers."""
import contextlib
import http.client
import json
import os
import socket
import threading
import time

from .answers import Answer, ChoiceStream

PATIENCE_S = 120 * float(os.environ.get("PAGODA_SLOWNESS", "1"))  # a build with sanitizers is slower


class ServerSlot:
    """The server of a round. Other servers may replace it."""

    def __init__(self):
        self.changed = threading.Condition()
        self.server = None
        self.is_final = True  # whether no other server follows

    def set(self, server, is_final=True):
        with self.changed:
            self.server, self.is_final = server, is_final
            self.changed.notify_all()

    def may_end(self, server):
        """Returns whether the server may end, so that its clients go on with another one."""
        with self.changed:
            return self.server is not server or not self.is_final

    def wait(self, last=None):
        """Returns the first server that is not `last`. Waits for it."""
        with self.changed:
            is_there = self.changed.wait_for(lambda: self.server not in (None, last), PATIENCE_S)
            assert is_there, "no server comes"
            return self.server


class LineConnection:
    """A connection of JSON lines over a socket."""

    def __init__(self, server):
        self.socket = socket.create_connection((server.host, server.json_lines_port), timeout=PATIENCE_S)
        self.file = self.socket.makefile("rb")

    def send(self, line):
        self.socket.sendall(json.dumps(line).encode() + b"\n")

    def receive(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


def ask_lines(connection, request):
    """Returns the answer to one request, not streamed. No other request runs meanwhile."""
    answer = Answer()
    connection.send({**request.body, "id": request.id, "stream": False, "resumable": False})
    while not answer.has_ended:
        answer.take(connection.receive())
    return answer


class Client(threading.Thread):
    """Sends requests until each has an answer, from any server."""

    def __init__(self, slot, requests, rng):
        super().__init__(daemon=True)
        self.slot, self.requests, self.rng = slot, requests, rng
        self.answers = {request.id: Answer() for request in requests}
        self.cancelled = set()
        self.problems = []

    def run(self):
        server = None
        try:
            while not all(answer.has_ended for answer in self.answers.values()):
                server = self.slot.wait(last=server)
                self.visit(server)
        except Exception as problem:  # noqa: the round reports it
            missing = [name for name, answer in self.answers.items() if not answer.has_ended]
            self.problems.append(f"a client has failed: {problem!r}; without an answer: {' '.join(missing)}")

    def visit(self, server):
        """Sends requests to a server until all are answered or the server is gone."""
        try:
            self.talk(server)
        except TimeoutError:
            raise
        except (OSError, EOFError, http.client.HTTPException):
            if not self.slot.may_end(server):
                raise

    def talk(self, server):
        raise NotImplementedError


class LineClient(Client):
    """Has one connection of JSON lines at a time, with all requests at once."""

    def __init__(self, slot, requests, rng):
        super().__init__(slot, requests, rng)
        self.asked = set()  # requests that were sent to some server
        self.attaching = set()

    def talk(self, server):
        self.server = server
        self.postponed = set()  # requests for the next server
        with LineConnection(server) as connection:
            for request in self.requests:
                if not self.answers[request.id].has_ended:
                    self.begin(connection, request)
            while any(not answer.has_ended and name not in self.postponed for name, answer in self.answers.items()):
                self.take(connection, connection.receive())

    def begin(self, connection, request):
        answer = self.answers[request.id]
        if request.is_resumable and request.id in self.asked:
            self.attaching.add(request.id)
            connection.send({"op": "attach", "id": request.id, "from": answer.num_events})
        else:
            self.ask(connection, request)
        if request.cancel_after == answer.num_events:
            self.cancel(connection, request)
        if self.rng.random() < 0.3:
            time.sleep(self.rng.random() * 0.02)

    def ask(self, connection, request):
        problems = self.answers[request.id].problems
        self.answers[request.id] = Answer()
        self.answers[request.id].problems = problems
        self.asked.add(request.id)
        connection.send({**request.body, "id": request.id})

    def cancel(self, connection, request):
        self.cancelled.add(request.id)
        connection.send({"op": "cancel", "id": request.id})

    def take(self, connection, event):
        (request,) = (request for request in self.requests if request.id == event.get("id"))
        answer = self.answers[request.id]
        code = event["error"]["code"] if event["event"] == "error" else None
        if code == "unknown_id":
            return self.take_unknown(connection, request, event)
        if self.is_of_stopped_server(request, event, code):
            return self.postponed.add(request.id)
        self.attaching.discard(request.id)
        answer.take(event)
        if answer.num_events == request.cancel_after and not answer.has_ended:
            self.cancel(connection, request)

    def take_unknown(self, connection, request, event):
        """Handles a request that ended before it was cancelled, or that the server does not know and cannot
        continue."""
        if request.id not in self.attaching:
            if request.id not in self.cancelled:
                self.answers[request.id].problems.append(f"{event}")
            return
        self.attaching.discard(request.id)
        if self.answers[request.id].num_events > 0:
            self.answers[request.id].take(event)  # the error of a request whose events had come
        else:
            self.ask(connection, request)

    def is_of_stopped_server(self, request, event, code):
        """Returns whether the error is due to the server's end and not to the request."""
        if not self.slot.may_end(self.server) or event["event"] not in ("done", "error"):
            return False
        was_aborted = event["event"] == "done" and any(o["finish_reason"] == "abort" for o in event["outputs"])
        return code == "shutting_down" or (was_aborted and request.id not in self.cancelled)


class HttpClient(Client):
    """Sends one request over HTTP. When the server is gone, asks the next one, for the rest of a stream if it is
    resumable."""

    def __init__(self, slot, requests, rng):
        super().__init__(slot, requests, rng)
        (self.request,) = requests
        self.stream = ChoiceStream()

    def talk(self, server):
        answer = self.read(self.ask(server))
        if answer.error and answer.error.get("code") == "duplicate_request_id":  # an earlier server took it
            answer = self.read(rest_of_stream(server, self.request, 0))
        if not (self.slot.may_end(server) and is_of_stopped_server(answer)):
            self.answers[self.request.id] = answer

    def read(self, connection):
        with contextlib.closing(connection):
            return read_answer(connection.getresponse(), self.stream)

    def ask(self, server):
        """Returns the connection that brings the answer."""
        if self.request.is_resumable and self.stream.num_events > 0:
            return rest_of_stream(server, self.request, self.stream.num_events)
        self.stream = ChoiceStream()
        return send_http(server, self.request)


def is_of_stopped_server(answer):
    was_aborted = any(output["finish_reason"] == "abort" for output in answer.outputs or [])
    return was_aborted or bool(answer.error and answer.error.get("code") == "shutting_down")


def send_http(server, request):
    """Returns the connection that brings the answer."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    body = json.dumps({**request.body, "model": server.model}).encode()
    connection.request("POST", request.path, body, {"Content-Type": "application/json", "X-Request-Id": request.id})
    return connection


def rest_of_stream(server, request, number):
    """Returns the connection that brings the events of a resumable stream from a number on."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.request("GET", f"/v1/streams/{request.id}?from={number}")
    return connection


def read_answer(response, stream):
    if response.getheader("Content-Type", "").startswith("text/event-stream"):
        return read_stream(response, stream)
    value = json.loads(response.read())
    answer = Answer()
    if response.status == 200:
        prompt_logprobs = [choice.pop("prompt_logprobs", None) for choice in value["choices"]][0]
        prompt_logprobs = value.get("prompt_logprobs", prompt_logprobs)
        answer.end(value["choices"], prompt_logprobs, value["usage"])
    else:
        answer.error = value["error"]
    return answer


def read_stream(response, stream):
    answer = Answer()
    while (line := response.readline()) and line != b"data: [DONE]\n":
        if line.startswith(b"id: "):
            stream.number(int(line[len(b"id: "):]))
        elif line.startswith(b"data: "):
            chunk = json.loads(line[len(b"data: "):])
            if "error" in chunk:
                answer.error = chunk["error"]
                return answer
            stream.take(chunk)
    if not line:
        raise EOFError
    answer.problems = stream.problems
    answer.end(stream.choices.values(), None, stream.usage)
    return answer


def leave_early(server, requests, seconds):
    """Sends requests and disconnects without their answers."""
    with contextlib.ExitStack() as kept:
        lines = kept.enter_context(LineConnection(server))
        for request in requests:
            if request.path:
                kept.enter_context(contextlib.closing(send_http(server, request)))
            else:
                lines.send({**request.body, "id": request.id})
        time.sleep(seconds)
