#!/usr/bin/env python3
"""Clients that come back for their streams to the server that they have left. They lose and repeat nothing, and every
token is that of a run that nobody disturbed. Standard library only.

usage: recovery_reconnects_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import contextlib
import http.client
import json
import os
import socket
import threading
import time

import recovery_case
from killed_server import SLOWNESS, HttpStream, LineClient
from recovery_case import PROMPTS, Case, http_bodies, line_bodies


class Reconnects(Case):
    """Nothing dies but connections."""

    def test_clients_that_go_and_come_back_lose_and_repeat_nothing(self):
        server = self.server()
        bodies = http_bodies(60)
        undisturbed = [HttpStream(server, path, body, f"a-{i}") for i, (path, body) in enumerate(bodies)]
        self.finish(undisturbed)
        lines = LineClient(server, line_bodies(60))
        self.finish([lines])
        streams = []
        for i, (path, body) in enumerate(bodies):
            streams.append(HttpStream(server, path, body, f"b-{i}"))
            streams[-1].leave_after = 7 * i
        again = LineClient(server, [dict(body, id=body["id"] + "x") for body in line_bodies(60)])
        for count in (20, 100):
            self.wait_for(lambda: sum(len(e) for e in again.events.values()) > count or again.ended.is_set(), "no lines")
            if not again.ended.is_set():
                again.leave()
        self.finish([*streams, again])
        for i, (stream, other) in enumerate(zip(streams, undisturbed)):
            self.assertEqual([e.replace(f"-b-{i}", f"-a-{i}") for e in stream.content()], other.content(), f"stream {i}")
        plain = {name[:-1]: [dict(e, id=name[:-1]) for e in events] for name, events in again.content().items()}
        self.assertEqual(plain, lines.content())

    def test_a_disconnect_cancels_whoever_did_not_ask_to_come_back(self):
        server = self.server()
        with socket.create_connection((server.host, server.port)) as connection:
            payload = json.dumps({"prompt": PROMPTS[0], "max_tokens": 800, "ignore_eos": True, "stream": True}).encode()
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               b"X-Request-Id: plain\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload)
            connection.makefile("rb").readline()
        self.wait_for(lambda: server.stats()["requests_aborted_total"] == 1, "it goes on")
        self.assertEqual(server.request("GET", "/v1/streams/plain")[0], 404)

    def test_a_stream_that_nobody_comes_back_for_is_cancelled(self):
        server = self.server("--resume-window", "1")
        stream = HttpStream(server, "/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 900, "ignore_eos": True},
                            "left")
        stream.leave_after = 3
        stream.connect = self.refuse_after(stream, stream.connect)
        self.wait_for(lambda: server.stats()["requests_aborted_total"] == 1, "it goes on", 60)
        self.assertEqual(server.request("GET", "/v1/streams/left")[0], 404)
        self.wait_for(lambda: "its client has not returned" in server.said(), "it is not told")

    @staticmethod
    def refuse_after(stream, connect):
        def only_once():
            if stream.num_connections > 0:
                stream.ended.set()
                raise EOFError
            return connect()
        return only_once

    def test_what_cannot_be_asked_for_is_refused_by_name(self):
        server = self.server()
        plain = {"prompt": PROMPTS[0], "max_tokens": 2}
        named = {"X-Request-Id": "taken"}

        def post(body, **more):
            status, _, answer = server.request("POST", "/v1/completions", dict(plain, **body), **more)
            return status, json.loads(answer)["error"]

        status, error = post({"resumable": True})
        self.assertEqual((status, error["param"]), (400, "resumable"))
        self.assertIn("needs stream", error["message"])
        status, error = post({"resumable": True, "stream": True, "prompt": ["a", "b"]})
        self.assertEqual((status, error["param"]), (400, "resumable"))
        status, _, _ = server.request("POST", "/v1/completions", dict(plain, resumable=True, stream=True), named)
        self.assertEqual(status, 200)
        status, error = post({"resumable": True, "stream": True}, headers=named)
        self.assertEqual((status, error["code"]), (409, "duplicate_request_id"))
        for query in ("from=-1", "from=x", "from=99", "until=3"):
            self.assertEqual(server.request("GET", "/v1/streams/taken?" + query)[0], 400, query)
        status, headers, answer = server.request("GET", "/v1/streams/taken", headers={"Last-Event-ID": "0"})
        self.assertEqual((status, headers["content-type"]), (200, "text/event-stream"))
        self.assertTrue(answer.startswith(b"id: 1\n"), answer[:60])
        status, _, answer = server.request("HEAD", "/v1/streams/taken")
        self.assertEqual((status, answer), (200, b""))
        self.assertEqual(server.json("DELETE", "/v1/streams/taken")["cancelled"], False)
        self.assertEqual(server.request("GET", "/v1/streams/nobody")[0], 404)
        off = self.server("--resume-window", "0")
        status, _, answer = off.request("POST", "/v1/completions", dict(plain, resumable=True, stream=True))
        self.assertEqual(status, 400)
        self.assertIn(b"--resume-window", answer)

    def test_a_resumable_request_can_be_cancelled_by_name(self):
        server = self.server()
        stream = HttpStream(server, "/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 900, "ignore_eos": True},
                            "long")
        self.wait_for(lambda: len(stream.events) > 3, "nothing is streamed")
        self.assertEqual(server.json("DELETE", "/v1/streams/long")["cancelled"], True)
        self.finish([stream])
        self.assertIn('"finish_reason":"abort"', "".join(stream.events))
        lines = socket.create_connection((server.host, server.lines_port))
        self.addCleanup(lines.close)
        file = lines.makefile("rb")

        def say(**line):
            lines.sendall(json.dumps(line).encode() + b"\n")

        say(id="l", prompt=PROMPTS[0], max_tokens=900, ignore_eos=True, resumable=True)
        self.assertEqual(json.loads(file.readline())["number"], 0)
        say(op="generate", id="l", prompt=PROMPTS[0])
        while (event := json.loads(file.readline()))["event"] == "delta":
            pass
        self.assertEqual(event["error"]["code"], "duplicate_id")
        say(op="cancel", id="l")
        while (event := json.loads(file.readline()))["event"] == "delta":
            pass
        self.assertEqual(event["outputs"][0]["finish_reason"], "abort")
        say(op="attach", id="l", **{"from": event["number"]})
        self.assertEqual(json.loads(file.readline()), event)
        say(op="attach", id="l", **{"from": event["number"] + 2})
        self.assertEqual(json.loads(file.readline())["error"]["param"], "from")
        say(op="attach", id="nobody")
        self.assertEqual(json.loads(file.readline())["error"]["code"], "unknown_id")

    @contextlib.contextmanager
    def busy_tokenizer(self, server):
        """What asks for it waits: requests whose prompts are not known yet stay so for a while."""
        ends = threading.Event()

        def ask():
            while not ends.is_set():
                server.request("POST", "/tokenize", {"prompt": "once upon a time " * 20000}, timeout=120 * SLOWNESS)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.2)
            yield
        finally:
            ends.set()
            for thread in threads:
                thread.join()

    def test_who_comes_before_the_answer_begins_takes_the_place_of_who_waits_for_it(self):
        server = self.server()
        body = {"prompt": PROMPTS[0], "max_tokens": 10, "ignore_eos": True}
        codes = []

        def wait_for_answer(name):
            try:
                codes.append(server.request("POST", "/v1/completions", dict(body, stream=True, resumable=True),
                                            {"X-Request-Id": name}, timeout=120 * SLOWNESS)[0])
            except http.client.HTTPException:
                codes.append(None)  # its answer had begun

        with self.busy_tokenizer(server):
            while 409 not in codes and len(codes) < 10:  # else it was too late
                name = f"early-{len(codes)}"
                first = threading.Thread(target=wait_for_answer, args=(name,))
                first.start()
                self.wait_for(lambda: server.request("HEAD", "/v1/streams/" + name)[0] == 200, "there is no stream")
                second = HttpStream(server, "/v1/completions", body, name, num_connections=1)
                self.finish([second])
                first.join()
                self.assertEqual(second.num_connections, 2, "it was thrown out")
                self.assertEqual(len(second.events), 12)
        self.assertIn(409, codes)

    def test_a_request_that_is_cancelled_before_its_prompt_is_known_ends(self):
        server = self.server()
        body = {"prompt": PROMPTS[0], "max_tokens": 800, "ignore_eos": True, "echo": True}
        with self.busy_tokenizer(server):
            stream = HttpStream(server, "/v1/completions", body, "early")
            answers = []

            def cancel():
                status, _, answer = server.request("DELETE", "/v1/streams/early")
                answers.append(json.loads(answer))
                return status == 200

            self.wait_for(cancel, "there is no stream")
        self.assertEqual(answers[-1]["cancelled"], True)
        self.finish([stream])
        self.assertIn('"finish_reason":"abort"', "".join(stream.events[-2:]))

    def test_who_attaches_behind_the_end_of_a_live_request_hears_of_it(self):
        server = self.server()
        connections = [socket.create_connection((server.host, server.lines_port)) for _ in range(2)]
        for connection in connections:
            self.addCleanup(connection.close)
        first, second = (connection.makefile("rb") for connection in connections)
        connections[0].sendall(json.dumps({"id": "l", "prompt": PROMPTS[0], "max_tokens": 50, "ignore_eos": True,
                                           "resumable": True}).encode() + b"\n")
        first.readline()
        connections[1].sendall(b'{"op": "attach", "id": "l", "from": 1000}\n')
        connections[1].settimeout(60 * SLOWNESS)
        error = json.loads(second.readline())["error"]
        self.assertEqual((error["code"], error["param"]), ("invalid_request", "from"))
        self.assertIn("after 51 events", error["message"])
        connections[1].sendall(b'{"op": "attach", "id": "l", "from": 50}\n')
        self.assertEqual(json.loads(second.readline())["event"], "done")

    def test_what_was_generated_is_in_the_access_log_once_whoever_reads_its_end(self):
        folder = self.folder()
        log = os.path.join(folder, "log")
        server = self.server("--access-log", log, journal=os.path.join(folder, "j"))

        def lines():
            with open(log) as file:
                return [json.loads(line) for line in file if '"POST"' in line or '"json_lines"' in line]

        body = {"prompt": PROMPTS[0], "max_tokens": 60, "ignore_eos": True}
        stays = HttpStream(server, "/v1/completions", dict(body, max_tokens=5), "stays")
        leaves = HttpStream(server, "/v1/completions", body, "leaves", leave_after=3)
        line = {"id": "line", "prompt": PROMPTS[1], "max_tokens": 7, "ignore_eos": True}
        self.finish([stays, leaves, LineClient(server, [line])])
        recovered = HttpStream(server, "/v1/completions", body, "recovered")
        self.wait_for(lambda: len(recovered.events) > 5, "nothing is streamed")
        server.kill()
        server.start()
        self.finish([recovered])
        told = {"stays": [(200, 5)], "leaves": [(200, None), (None, 60)], "recovered": [(None, 60)],
                "line": [(None, 7)]}

        def told_now():
            return {name: [(line.get("status"), line.get("completion_tokens")) for line in lines()
                           if line["request_id"] == name] for name in told}

        self.wait_for(lambda: told_now() == told or sum(map(len, told_now().values())) > 5, "it is not told")
        self.assertEqual(told_now(), told)
        self.assertEqual({line["route"] for line in lines()}, {"/v1/completions", "generate"})

    def test_who_attaches_takes_the_place_of_who_was_there(self):
        server = self.server()
        connections = [socket.create_connection((server.host, server.lines_port)) for _ in range(2)]
        for connection in connections:
            self.addCleanup(connection.close)
        first, second = (connection.makefile("rb") for connection in connections)
        connections[0].sendall(json.dumps({"id": "l", "prompt": PROMPTS[0], "max_tokens": 300, "ignore_eos": True,
                                           "resumable": True}).encode() + b"\n")
        first.readline()
        connections[1].sendall(b'{"op": "attach", "id": "l"}\n')
        numbers = []
        while (event := json.loads(second.readline()))["event"] == "delta":
            numbers.append(event["number"])
        self.assertEqual(numbers, list(range(300)))
        while (event := json.loads(first.readline()))["event"] == "delta":
            pass
        self.assertEqual(event["error"]["code"], "unknown_id")


if __name__ == "__main__":
    recovery_case.main()
