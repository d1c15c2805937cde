#!/usr/bin/env python3
"""GET /ui/live: what the page draws is what the engine does. Standard library only.

usage: live_view_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import http.client
import json
import sys
import tempfile
import threading
import time
import unittest

from raw_stream import RawStream
from server import Server, main

PROMPT = "Once upon a time there was a little fox who lived in a wood far away from all the other animals"
LONG = {"prompt": PROMPT, "max_tokens": 300, "ignore_eos": True, "temperature": 0, "stream": True}
server = model = None


def another(*flags):
    """A server of the same model."""
    return Server(server.command[0], server.command[3], "--load-format", "dummy", *flags)


class Watcher:
    """One who watches: snapshots(), as they come."""

    def __init__(self, watched, headers=None):
        self.connection = http.client.HTTPConnection(watched.host, watched.port, timeout=60)
        self.connection.request("GET", "/ui/live", headers=headers or {})
        self.answer = self.connection.getresponse()
        self.bytes = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answer.close()
        self.connection.close()

    def snapshots(self):
        while line := self.answer.readline():
            self.bytes += line
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def until(self, holds, seconds=60):
        deadline = time.monotonic() + seconds
        for snapshot in self.snapshots():
            if holds(snapshot):
                return snapshot
            assert time.monotonic() < deadline, f"the last was {snapshot}"
        raise AssertionError("the stream has ended")


def cells(snapshot):
    """(owner or None, references, is cached) of each cell."""
    runs, owners = snapshot["blocks"]["cells"], snapshot["blocks"]["owners"]
    for count, owner, references, cached in zip(*[iter(runs)] * 4):
        for _ in range(count):
            yield owners[owner - 1] if owner else None, references, bool(cached)


class LiveView(unittest.TestCase):
    def test_a_running_request_is_seen_with_its_blocks_and_steps(self):
        with Watcher(server) as watcher:
            watcher.until(lambda _: True)
            stream = RawStream(server, "/v1/completions", LONG)
            seen = watcher.until(lambda s: s["requests"] and s["requests"][0]["generated_tokens"] > 20 and s["spans"])
            request, = seen["requests"]
            self.assertEqual(request["state"], "running")
            self.assertEqual(request["prompt_tokens"], server.count(PROMPT))
            self.assertEqual(request["max_tokens"], 300)
            self.assertGreater(request["ttft_ms"], 0)
            self.assertGreater(request["age_ms"], request["ttft_ms"])
            blocks = seen["blocks"]
            all_cells = list(cells(seen))
            self.assertEqual(len(all_cells), -(-blocks["total"] // blocks["per_cell"]))
            owner, = blocks["owners"]
            self.assertEqual(owner["request"], request["id"])
            held = sum(references for _, references, _ in all_cells)
            self.assertEqual(held, owner["blocks"])
            self.assertGreaterEqual(held * blocks["block_size"], owner["tokens"])
            rows = {span["row"] for span in seen["spans"]}
            self.assertLessEqual({"scheduler", "block manager", "device", "output processor"}, rows)
            steps = [span for span in seen["spans"] if span["row"] == "device"]
            for span in steps:
                self.assertGreater(span["duration_us"], 0)
                self.assertLessEqual(span["started_us"] + span["duration_us"], seen["now_us"])
            self.assertEqual(steps, sorted(steps, key=lambda span: span["step"]))
            for _ in stream.chunks():
                pass
            stream.close()
            ended = watcher.until(lambda s: any(each["id"] == request["id"] for each in s["ended"]))
            told = next(each for each in ended["ended"] if each["id"] == request["id"])
            self.assertEqual((told["finish_reason"], told["generated_tokens"]), ("length", 300))
            self.assertGreater(told["total_ms"], told["ttft_ms"])
            idle = watcher.until(lambda s: not s["requests"] and not s["blocks"]["owners"])
            self.assertTrue(any(cached and not references for _, references, cached in cells(idle)))

    def test_samples_of_one_prompt_share_its_blocks_and_copy_those_they_write(self):
        with Watcher(server) as watcher:
            watcher.until(lambda _: True)
            # A prompt that fills no block whole at its end, so that the second sample has to copy it.
            prompt = [100 + i for i in range(3 * self.block_size() + 5)]
            stream = RawStream(server, "/v1/completions", {**LONG, "prompt": prompt, "n": 2, "temperature": 1, "seed": 7})
            seen = watcher.until(lambda s: len(s["blocks"]["owners"]) == 2 and s["blocks"]["moves"])
            self.assertGreaterEqual(sum(references == 2 for _, references, _ in cells(seen)), 3)
            move = seen["blocks"]["moves"][-1]
            self.assertEqual(move["kind"], "copy")
            self.assertNotEqual(move["from"], move["to"])
            self.assertEqual(seen["requests"][0]["sequences"], 2)
            stream.close()
            watcher.until(lambda s: not s["requests"])

    def block_size(self):
        with Watcher(server) as watcher:
            return watcher.until(lambda _: True)["blocks"]["block_size"]

    def test_who_waits_is_listed_behind_who_runs(self):
        with another("--max-num-seqs", "1") as narrow, Watcher(narrow) as watcher:
            streams = [RawStream(narrow, "/v1/completions", LONG) for _ in range(3)]
            seen = watcher.until(lambda s: len(s["requests"]) == 3)
            self.assertEqual([each["state"] for each in seen["requests"]], ["running", "waiting", "waiting"])
            self.assertIsNone(seen["requests"][1]["queue_ms"])
            for stream in streams:
                stream.close()

    def test_it_has_no_texts_and_no_keys(self):
        with tempfile.NamedTemporaryFile("w") as users, tempfile.NamedTemporaryFile("w") as admins:
            users.write("user-secret\n")
            admins.write("admin-secret\n")
            users.flush()
            admins.flush()
            flags = ("--api-key-file", users.name, "--admin-key-file", admins.name)
            with another(*flags) as closed:
                key = {"Authorization": "Bearer admin-secret"}
                with Watcher(closed, {"Authorization": "Bearer user-secret"}) as refused:
                    self.assertEqual(refused.answer.status, 403)
                with Watcher(closed, key) as watcher:
                    watcher.until(lambda _: True)
                    body = {"prompt": "xylophone-marker", "max_tokens": 40, "user": "tenant-marker", "ignore_eos": True}
                    answer = closed.json("POST", "/v1/completions", body, {"Authorization": "Bearer user-secret"})
                    watcher.until(lambda s: s["ended"])
                    for secret in ("secret", "xylophone", "tenant-marker", answer["choices"][0]["text"][:20]):
                        self.assertNotIn(secret.encode(), watcher.bytes)

    def test_a_server_that_is_watched_ends_in_time(self):
        with another() as watched:
            watcher = Watcher(watched)
            watcher.until(lambda _: True)
            rest = []
            reader = threading.Thread(target=lambda: rest.append(watcher.answer.read()))
            reader.start()
            began = time.monotonic()
            watched.process.terminate()
            watched.process.wait(60)
            reader.join()
            watcher.__exit__()
            self.assertIn(b"event: end", rest[0])
            self.assertLess(time.monotonic() - began, 20)


if __name__ == "__main__":
    main(sys.modules[__name__], slow=True)
