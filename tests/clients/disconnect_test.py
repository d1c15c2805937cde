#!/usr/bin/env python3
"""A client that goes takes its requests with it, whatever state they are in. Standard library only.

usage: disconnect_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import socket
import struct
import sys
import time
import unittest

from raw_stream import RawStream, send
from server import main

PROMPT = "Once upon a time there was a little"
LONG = {"max_tokens": 1_000_000, "ignore_eos": True, "temperature": 0}  # up to the end of the context
SOON = 1.0  # seconds: on a busy machine a step may take a while, but the whole request takes much longer
server = None
model = None


def reset(connection):
    """Closes with RST, as a process that is killed with bytes unread does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection):
    """Only the sending side: such a client has gone, too, for this server."""
    connection.shutdown(socket.SHUT_WR)


WAYS = {"close": lambda connection: connection.close(), "reset": reset, "half_close": half_close}


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not what(stats := server.stats()):
        assert time.monotonic() < deadline, stats
        time.sleep(0.001)
    return stats


class Disconnect(unittest.TestCase):
    def setUp(self):
        self.before = server.wait_until_idle(30)
        self.kept = []

    def tearDown(self):
        for connection in self.kept:
            connection.close()
        server.wait_until_idle(30)

    def leave(self, way, connection):
        self.kept.append(connection)
        WAYS[way](connection)

    def each_way(self, body, path="/v1/completions", state=lambda stats: stats["requests_running"] == 1):
        for way in WAYS:
            with self.subTest(way):
                aborted = server.stats()["requests_aborted_total"]
                connection = send(server, path, body)
                wait_for(state)
                self.leave(way, connection)
                after = server.wait_until_idle(SOON)
                self.assertEqual(after["requests_aborted_total"], aborted + 1)

    def test_while_an_answer_is_made_that_does_not_stream(self):
        self.each_way({"prompt": PROMPT, **LONG})

    def test_while_a_chat_is_made_that_does_not_stream(self):
        self.each_way({"messages": [{"role": "user", "content": PROMPT}], **LONG}, "/v1/chat/completions")

    def test_while_an_answer_streams(self):
        for way in WAYS:
            with self.subTest(way):
                stream = RawStream(server, "/v1/completions", {"prompt": PROMPT, "stream": True, **LONG})
                chunks = stream.chunks()
                for _ in range(3):
                    next(chunks)
                aborted = server.stats()["requests_aborted_total"]
                stream.file.close()  # else the socket stays open behind it
                self.leave(way, stream.connection)
                after = server.wait_until_idle(SOON)
                self.assertEqual(after["requests_aborted_total"], aborted + 1)

    def test_while_ollama_streams(self):
        stream = RawStream(server, "/api/generate", {"model": model, "prompt": PROMPT, "raw": True,
                                                     "options": {"num_predict": -1, "temperature": 2, "seed": 1}})
        next(stream.chunks())
        stream.close()
        server.wait_until_idle(SOON)

    def test_while_a_prompt_is_read(self):
        """The prompt takes hundreds of steps of so small a budget."""
        length = server.json("GET", "/v1/models")["data"][0]["max_model_len"]
        ids = [40 + i % 50 for i in range(length - 50)]
        self.each_way({"prompt": ids, "max_tokens": 50, "ignore_eos": True, "cache_salt": str(time.monotonic())})

    def test_while_it_waits_in_the_queue(self):
        running = RawStream(server, "/v1/completions", {"prompt": PROMPT, "stream": True, **LONG})
        next(running.chunks())
        for way in WAYS:
            for streams in (False, True):
                with self.subTest(way, stream=streams):
                    waiting = send(server, "/v1/completions", {"prompt": PROMPT, "stream": streams, **LONG})
                    stats = wait_for(lambda s: s["requests_waiting"] == 1 or s["requests_running"] == 0)
                    if stats["requests_running"] == 0:
                        self.skipTest("the request before ended too soon")
                    self.leave(way, waiting)
                    wait_for(lambda s: s["requests_waiting"] == 0, SOON)
        running.close()
        server.wait_until_idle(SOON)

    def test_all_prompts_of_a_request_go(self):
        connection = send(server, "/v1/completions", {"prompt": [PROMPT] * 20, **LONG})
        wait_for(lambda s: s["requests_running"] + s["requests_waiting"] == 20)
        connection.close()
        server.wait_until_idle(SOON)

    def test_half_a_body_starts_nothing(self):
        connection = socket.create_connection((server.host, server.port))
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: 1000\r\n\r\n{\"prompt\":")
        connection.close()
        self.assertEqual(server.wait_until_idle(SOON)["requests_failed_total"], self.before["requests_failed_total"])


if __name__ == "__main__":
    main(sys.modules["__main__"], "--max-num-seqs", "1", "--max-num-batched-tokens", "16")
