#!/usr/bin/env python3
"""KV events (--kv-events-config) as routers read them: ZeroMQ messages in the form of vLLM. What a subscriber builds from
them is what the prefix cache has: while blocks are evicted, workers die, and replicas end. Needs pyzmq and msgpack.

usage: kv_events_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import msgpack
import zmq

from adapters_test import make_adapter
from ports import free_port, free_ports
from server import Server
from worker_load import WorkerServer

SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers
END = (-1).to_bytes(8, "big", signed=True)
BLOCK = 8
STORED = {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
          "extra_keys", "group_idx", "kv_cache_spec_kind"}
REMOVED = {"type", "block_hashes", "medium", "group_idx"}
pagoda = model = None


def flag(port, **more):
    config = {"enable_kv_cache_events": True, "endpoint": f"tcp://127.0.0.1:{port}", **more}
    return ["--kv-events-config", json.dumps(config)]


class Blocks:
    """What a router knows of one replica: blocks by their hash, from the events alone. Each batch is checked."""

    def __init__(self, rank=0):
        self.rank = rank
        self.held = {}  # hash: (parent, tokens, adapter)
        self.number = None  # of the last batch
        self.num_removed = self.num_cleared = 0

    def take(self, number, payload):
        assert self.number is None or number == self.number + 1, f"{number} after {self.number}"
        self.number = number
        seconds, events, rank = msgpack.unpackb(payload)
        assert abs(seconds - time.time()) < 600 and rank == self.rank and events, (seconds, rank)
        for event in events:
            getattr(self, event["type"])(event)
        return events

    def BlockStored(self, event):
        assert set(event) == STORED, event
        hashes, tokens = event["block_hashes"], event["token_ids"]
        assert event["block_size"] == BLOCK and len(tokens) == BLOCK * len(hashes) > 0, event
        assert event["medium"] == "GPU" and event["group_idx"] == 0, event
        assert event["kv_cache_spec_kind"] == "full_attention" and event["extra_keys"] == [None] * len(hashes), event
        assert (event["lora_id"] is None) == (event["lora_name"] is None), event
        parent = event["parent_block_hash"]
        for i, block in enumerate(hashes):
            assert 0 < block < 2**64 and block not in self.held, event
            self.held[block] = (parent, tuple(tokens[i * BLOCK:(i + 1) * BLOCK]), event["lora_name"])
            parent = block

    def BlockRemoved(self, event):
        assert set(event) == REMOVED and event["medium"] == "GPU" and event["group_idx"] == 0, event
        for block in event["block_hashes"]:
            del self.held[block]
            self.num_removed += 1

    def AllBlocksCleared(self, event):
        assert set(event) == {"type"}, event
        self.held.clear()
        self.num_cleared += 1

    def num_cached(self, tokens, adapter=None):
        """How many tokens of a prompt are cached."""
        children = {(parent, tokens, adapter): block for block, (parent, tokens, adapter) in self.held.items()}
        parent = None
        for first in range(0, len(tokens) - BLOCK + 1, BLOCK):
            parent = children.get((parent, tuple(tokens[first:first + BLOCK]), adapter))
            if parent is None:
                return first
        return len(tokens) // BLOCK * BLOCK


class Subscriber:
    def __init__(self, test, port, topic=""):
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        test.addCleanup(self.socket.close, linger=0)
        self.socket.connect(f"tcp://127.0.0.1:{port}")
        self.socket.subscribe(topic)

    def message(self, seconds=20):
        """[topic, number, payload], or None."""
        if not self.socket.poll(int(1000 * seconds * SLOWNESS)):
            return None
        topic, number, payload = self.socket.recv_multipart()
        assert len(number) == 8
        return topic, int.from_bytes(number, "big"), payload

    def connect(self, act):
        """Acts until a message arrives: what is published before a subscription has arrived is not sent to it."""
        for _ in range(200):
            act()
            if message := self.message(0.05):
                return message
        raise AssertionError("nothing was published")

    def follow(self, blocks, until):
        """Takes messages until a condition holds."""
        deadline = time.monotonic() + 30 * SLOWNESS
        while not until():
            message = self.message(0.1)
            if message:
                blocks.take(*message[1:])
            assert message or time.monotonic() < deadline, "the events do not come"


def replay(test, port, first, kind=zmq.DEALER):
    """The batches (topic, number, payload) from a number on."""
    client = zmq.Context.instance().socket(kind)
    test.addCleanup(client.close, linger=0)
    client.connect(f"tcp://127.0.0.1:{port}")
    client.send_multipart([b"", first.to_bytes(8, "big")])
    batches = []
    while True:
        assert client.poll(int(20000 * SLOWNESS)), "no end of the replay"
        empty, topic, number, payload = client.recv_multipart()
        assert empty == b"" and len(number) == 8
        if number == END:
            assert topic == payload == b""
            return batches
        batches.append((topic, int.from_bytes(number, "big"), payload))


class KvEvents(unittest.TestCase):
    def serve(self, *flags, **more):
        kept = contextlib.ExitStack()
        self.addCleanup(kept.close)
        if "--num-device-blocks" not in flags:
            flags += ("--num-device-blocks", "200")
        if "--threads" not in flags:
            flags += ("--threads", "1")
        return kept.enter_context(Server(pagoda, model, "--block-size", str(BLOCK), *flags, **more))

    def complete(self, server, prompt, **fields):
        """(number of prompt tokens, number of cached ones). `prompt`: a text, or token ids."""
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True, **fields}
        usage = server.json("POST", "/v1/completions", body)["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def num_cached_blocks(self, server):
        stats = server.wait_until_idle(30 * SLOWNESS)
        return stats["device_blocks_cached"]

    def probes(self, server):
        """A function that completes another prompt at each call."""
        numbers = iter(range(10**6))
        return lambda: self.complete(server, [3 + next(numbers) % 200] * BLOCK)

    def test_blocks_have_the_tokens_of_prompts_and_answers(self):
        port = free_port()
        server = self.serve(*flag(port))
        subscriber = Subscriber(self, port)
        blocks = Blocks()
        blocks.take(*subscriber.connect(self.probes(server))[1:])
        tokens = list(range(5, 5 + 3 * BLOCK + 3))
        for step in (tokens[:2 * BLOCK + 2], tokens):
            before = blocks.num_cached(step)
            self.assertEqual(self.complete(server, step), (len(step), before))
            full = len(step) // BLOCK * BLOCK
            subscriber.follow(blocks, lambda: blocks.num_cached(step) == full)
        # Blocks that only an answer fills come too, behind those of its prompt.
        answer = server.json("POST", "/v1/completions", {"prompt": tokens, "max_tokens": 3 * BLOCK, "temperature": 0,
                                                         "ignore_eos": True, "return_token_ids": True})["choices"][0]
        whole = tokens + answer["token_ids"]
        full = (len(whole) - 1) // BLOCK * BLOCK  # the KV of the last token is not computed
        subscriber.follow(blocks, lambda: blocks.num_cached(whole) == full)
        self.assertEqual(self.complete(server, whole + [9] * BLOCK)[1], full)
        # The same prompt again stores nothing.
        subscriber.follow(blocks, lambda: blocks.num_cached(whole + [9] * BLOCK) > full)
        number = blocks.number
        self.complete(server, tokens)
        self.assertIsNone(subscriber.message(0.3))
        self.assertEqual(blocks.number, number)
        self.assertEqual(blocks.num_removed, 0)

    def test_evicted_blocks_are_removed(self):
        port = free_ports(2)
        server = self.serve(*flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 1}"), "--num-device-blocks", "24",
                            "--max-model-len", "96")
        blocks = Blocks()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: self.complete(server, [5 + i % 11] * 20 + [7 + i] * 20, max_tokens=20), range(60)))
        num_cached = self.num_cached_blocks(server)
        for _, number, payload in replay(self, port + 1, 0):
            blocks.take(number, payload)
            self.assertLessEqual(len(blocks.held), 24)
        self.assertEqual(len(blocks.held), num_cached)
        self.assertGreater(blocks.num_removed, 60)
        self.assertEqual(blocks.num_cleared, 0)
        tokens = [5 + 59 % 11] * 20 + [7 + 59] * 20
        self.assertEqual(self.complete(server, tokens)[1], min(blocks.num_cached(tokens), (len(tokens) - 1) // BLOCK * BLOCK))

    def test_missed_batches_are_replayed(self):
        port = free_ports(2)
        server = self.serve(*flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 1}", topic="kv@pod@model", buffer_steps=20))
        self.assertEqual(server.json("GET", "/kv_event_sources"), {"0": {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{port}",
            "replay_endpoint": f"tcp://127.0.0.1:{port + 1}", "buffer_steps": 20, "hwm": 100000, "max_queue_size": 100000,
            "topic": "kv@pod@model", "encoding": "msgpack", "schema_version": 1}})
        subscriber = Subscriber(self, port, "kv@")
        other = Subscriber(self, port, "another")
        probe = self.probes(server)
        first = subscriber.connect(probe)
        received = [first]
        while len(received) < 6:
            probe()
            received.append(subscriber.message())
        self.assertEqual({topic for topic, _, _ in received}, {b"kv@pod@model"})
        self.assertEqual([number for _, number, _ in received], list(range(first[1], first[1] + 6)))
        self.assertEqual(replay(self, port + 1, received[2][1]), received[2:], "the missed range, with topic and bytes")
        self.assertEqual(replay(self, port + 1, 2**63), [])
        self.assertEqual([number for _, number, _ in replay(self, port + 1, 0)], list(range(received[-1][1] + 1)))
        # Only the last buffer_steps are kept.
        while received[-1][1] < 60:
            probe()
            received.append(subscriber.message())
        self.assertEqual(replay(self, port + 1, 5), received[-20:])
        self.assertIsNone(other.message(0.1), "of another topic")
        # What is no request gets no answer, and nobody else is disturbed.
        strange = zmq.Context.instance().socket(zmq.DEALER)
        self.addCleanup(strange.close, linger=0)
        strange.connect(f"tcp://127.0.0.1:{port + 1}")
        for frames in ([b""], [b"x"], [b"", b"1234567"], [b"", b"x" * 9], [b"", b"", b"12345678"], [b"", b"x" * 100000]):
            strange.send_multipart(frames)
        self.assertEqual(len(replay(self, port + 1, 0)), 20)
        self.assertFalse(strange.poll(100))
        status, _, text = server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn(b'pagoda:kv_event_batches_published_total{replica="0"} %d\n' % (received[-1][1] + 1), text)
        self.assertIn(b'pagoda:kv_event_batches_dropped_total{replica="0"} 0\n', text)

    def test_a_late_subscriber_knows_as_much_after_a_replay(self):
        port = free_ports(2)
        server = self.serve(*flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 1}"))
        early, blocks = Subscriber(self, port), Blocks()
        probe = self.probes(server)
        first = early.connect(probe)
        for _ in range(30):
            probe()
        late, late_blocks = Subscriber(self, port), Blocks()
        joined = late.connect(probe)
        for _, number, payload in replay(self, port + 1, 0):
            late_blocks.take(number, payload)
        probe()
        while (message := late.message(0.3)) is not None:
            if message[1] > late_blocks.number:
                late_blocks.take(*message[1:])
        self.assertGreater(joined[1], first[1])
        for _, number, payload in replay(self, port + 1, 0)[:first[1]]:
            blocks.take(number, payload)
        blocks.take(*first[1:])
        early.follow(blocks, lambda: blocks.number == late_blocks.number)
        self.assertEqual(late_blocks.held, blocks.held)
        self.assertEqual(len(blocks.held), self.num_cached_blocks(server))

    def test_each_replica_has_a_port_and_a_rank(self):
        port = free_ports(4)
        with tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, "admins")
            with open(key, "w", encoding="utf-8") as file:
                file.write("admin\n")
            server = self.serve(*flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 2}"), "--data-parallel-size", "2",
                                "--threads", "2", "--admin-key-file", key)
            self.assertEqual([source["endpoint"] for source in server.json("GET", "/kv_event_sources").values()],
                             [f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}"])
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: self.complete(server, [5 + i] * 20, max_tokens=20), range(40)))
            num_cached = self.num_cached_blocks(server)
            replicas = [Blocks(rank) for rank in (0, 1)]
            for rank, blocks in enumerate(replicas):
                for _, number, payload in replay(self, port + 2 + rank, 0):
                    blocks.take(number, payload)
                self.assertGreater(len(blocks.held), 0)
            self.assertEqual(sum(len(blocks.held) for blocks in replicas), num_cached)
            # A replica that ends has nothing any more.
            subscriber = Subscriber(self, port + 1)
            numbers = iter(range(10**6))

            def probe():  # several at a time, so that both replicas have some
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    prompts = [[5 + number % 200, 5 + number // 200] * BLOCK for number in (next(numbers) for _ in range(4))]
                    list(pool.map(lambda prompt: self.complete(server, prompt, max_tokens=20), prompts))

            subscriber.connect(probe)
            self.assertEqual(server.request("POST", "/admin/replicas/1/drain", {},
                                            {"Authorization": "Bearer admin"})[0], 200)
            ended = Blocks(1)
            subscriber.follow(ended, lambda: ended.num_cleared == 1)

    def test_a_worker_that_crashes_clears_and_one_that_is_killed_keeps(self):
        port = free_ports(2)
        for sig, is_lost in ((signal.SIGKILL, False), (signal.SIGSEGV, True)):
            with WorkerServer(pagoda, model, "--block-size", str(BLOCK), *flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 1}")) as worker:
                server = Server(pagoda, model)
                server.host, server.port = worker.http
                tokens = [5] * 40
                self.complete(server, tokens)
                worker.kill_worker(sig)
                worker.wait_for(lambda s: s["worker_pids"] and s["worker_restarts_total"] == 1 and s["health"] == "ok")
                self.complete(server, [6] * 40)
                num_cached = self.num_cached_blocks(server)
                blocks = Blocks()
                for _, number, payload in replay(self, port + 1, 0):
                    blocks.take(number, payload)
                self.assertEqual(blocks.num_cleared, int(is_lost))
                self.assertEqual(blocks.num_cached(tokens), 0 if is_lost else 40)
                self.assertEqual(len(blocks.held), num_cached)

    def test_adapters_have_names_and_blocks_of_their_own(self):
        port = free_ports(2)
        with tempfile.TemporaryDirectory() as folder:
            path = make_adapter(os.path.join(folder, "sql"), 1, base=model)
            server = self.serve(*flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 1}"), "--enable-lora", "--lora-modules",
                                f"sql={path}", "--served-model-name", "base")
            tokens = list(range(5, 5 + 2 * BLOCK + 1))
            self.complete(server, tokens, model="base")
            self.assertEqual(self.complete(server, tokens, model="sql")[1], 0)
            self.assertEqual(self.complete(server, tokens, model="sql")[1], 2 * BLOCK)
            blocks = Blocks()
            for _, number, payload in replay(self, port + 1, 0):
                for event in blocks.take(number, payload):
                    self.assertIn(event["lora_name"], (None, "sql"))
                    self.assertTrue(event["lora_id"] is None or event["lora_id"] > 0)
            self.assertEqual(blocks.num_cached(tokens), 2 * BLOCK)
            self.assertEqual(blocks.num_cached(tokens, "sql"), 2 * BLOCK)
            self.assertEqual(len(blocks.held), 4)

    def test_salted_prompts_are_not_published_and_a_reset_clears(self):
        port = free_ports(2)
        with tempfile.TemporaryDirectory() as folder:
            key = os.path.join(folder, "admins")
            with open(key, "w", encoding="utf-8") as file:
                file.write("admin\n")
            server = self.serve(*flag(port, replay_endpoint=f"tcp://127.0.0.1:{port + 1}"), "--admin-key-file", key)
            secret = [77] * 3 * BLOCK
            self.complete(server, secret, cache_salt="tenant")
            self.assertEqual(self.complete(server, secret, cache_salt="tenant")[1], 2 * BLOCK)
            self.complete(server, [5] * 2 * BLOCK)
            server.json("POST", "/admin/reset_prefix_cache", None, {"Authorization": "Bearer admin"})
            self.complete(server, [6] * 2 * BLOCK)
            blocks = Blocks()
            kinds = []
            for _, number, payload in replay(self, port + 1, 0):
                self.assertNotIn(msgpack.packb(secret[:BLOCK])[1:], payload)
                kinds += [event["type"] for event in blocks.take(number, payload)]
            self.assertEqual(kinds, ["BlockStored", "AllBlocksCleared", "BlockStored"])
            self.assertEqual(blocks.num_cached([6] * 2 * BLOCK), 2 * BLOCK)

    def test_a_server_that_ends_clears(self):
        port = free_port()
        with Server(pagoda, model, "--block-size", str(BLOCK), "--num-device-blocks", "64", *flag(port)) as server:
            subscriber, blocks = Subscriber(self, port), Blocks()
            blocks.take(*subscriber.connect(self.probes(server))[1:])
        subscriber.follow(blocks, lambda: blocks.num_cleared == 1)
        self.assertEqual(blocks.held, {})

    def run_serve(self, *flags):
        return subprocess.run([pagoda, "serve", "--model", model, "--http", "127.0.0.1:0", "--listen", "none", *flags],
                              capture_output=True, text=True, timeout=60 * SLOWNESS)

    def test_what_cannot_be_published_is_refused(self):
        config = '{"enable_kv_cache_events": true}'
        for flags, code, words in (
                (["--kv-events-config", "{"], 2, "kv_events_config: must be a JSON object"),
                (["--kv-events-config", '{"endpont": ""}'], 2, 'unknown key "endpont"; did you mean "endpoint"?'),
                (["--kv-events-config", '{"endpoint": "5557"}'], 2, "endpoint must be tcp://HOST:PORT or ipc://PATH"),
                (["--kv-events-config", config, "--no-enable-prefix-caching"], 2, "needs enable_prefix_caching"),
                (["--kv-events-config", config, "--journal", "j", "--no-journal-tokens"], 2, "needs journal_tokens")):
            with self.subTest(flags):
                done = self.run_serve(*flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            for key in ("endpoint", "replay_endpoint"):
                done = self.run_serve("--kv-events-config", json.dumps(json.loads(config) | {"endpoint": f"tcp://127.0.0.1:{free_port()}"} | {key: endpoint}))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"pagoda: kv_events_config: cannot bind {key} {endpoint}: Address already in use", done.stderr)

    def test_a_config_file_has_an_object_and_the_log_warns_of_open_ports(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "serve.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"kv_events_config": {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"}}, file)
            with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
                server = self.serve("--config", path, log=log)
                Subscriber(self, port).connect(self.probes(server))
                log.seek(0)
                told = log.read()
            self.assertIn(f"kv events: published on tcp://*:{port}", told)
            self.assertIn(f"kv events: tcp://*:{port} is not encrypted and asks for no key", told)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
