#!/usr/bin/env python3
"""Clients that come back for their streams: to the server that they have left, and to one that takes the place of a
server that was killed. They lose and repeat nothing, and every token is that of a run that nobody disturbed. Standard
library only.

usage: recovery_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from killed_server import SLOWNESS, HttpStream, KilledServer, LineClient, without_times
from server import slow_model

pagoda = model = demo = None
flags = ()

PROMPTS = ["Once upon a time there was a little", "The old bear sat in his house and looked",
           "It was raining, and Lily wanted to", "One day a boy named Tom found a big"]


def http_bodies(max_tokens):
    """(path, body) of requests of all kinds."""
    common = {"ignore_eos": True, "return_token_ids": True}
    bodies = []
    for i in range(8):
        body = {"prompt": PROMPTS[i % 4] + " and then" * (i % 3), "max_tokens": max_tokens, "seed": i,
                "temperature": 0.0 if i % 2 else 0.9, **common}
        if i % 4 == 0:
            body["n"] = 3
        if i % 4 == 1:
            body.update(logprobs=2, stream_options={"include_usage": True})
        if i % 4 == 2:
            body.update(stop=["zzzz never"], presence_penalty=0.5, echo=True)
        bodies.append(("/v1/completions", body))
    for i in range(4):
        body = {"messages": [{"role": "user", "content": PROMPTS[i]}], "max_tokens": max_tokens, "seed": 100 + i,
                "temperature": 0.0 if i % 2 else 0.8, **common}
        if i == 2:
            body["n"] = 2
        bodies.append(("/v1/chat/completions", body))
    return bodies


def single_answer_bodies(max_tokens):
    message = {"role": "user", "content": PROMPTS[0]}
    return [("/v1/messages", {"model": "x", "messages": [message], "max_tokens": max_tokens, "temperature": 0.7,
                              "seed": 5, "ignore_eos": True}),
            ("/v1/responses", {"input": PROMPTS[1], "max_output_tokens": max_tokens, "temperature": 0.7, "seed": 6,
                               "ignore_eos": True})]


def line_bodies(max_tokens):
    bodies = []
    for i in range(10):
        body = {"id": f"line-{i}", "prompt": PROMPTS[i % 4] + " and then" * (i % 3), "max_tokens": max_tokens,
                "seed": 50 + i, "temperature": 0.0 if i % 2 else 0.9, "ignore_eos": True}
        if i % 5 == 0:
            body["n"] = 2
        elif i % 5 == 1:
            body.update(use_beam_search=True, n=2, best_of=2, temperature=0.0, max_tokens=max_tokens // 4)
        elif i % 5 == 2:
            body.update(n=1, best_of=3, logprobs=1)
        elif i % 5 == 3:
            body.update(logprobs=2, prompt_logprobs=1)
        else:
            body["stream"] = i < 5
        bodies.append(body)
    return bodies


class Case(unittest.TestCase):
    def server(self, *more, journal=None, is_fast=False):
        base, of_base = (demo, ()) if is_fast else (model, flags)
        server = KilledServer(pagoda, base, *of_base, *more, journal=journal)
        server.start()
        self.addCleanup(server.log.close)
        self.addCleanup(server.end)
        return server

    def folder(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def finish(self, clients, seconds=300):
        for client in clients:
            self.assertTrue(client.ended.wait(seconds * SLOWNESS), "a client has not got all of its stream")
            self.assertIsNone(client.problem)

    def wait_for(self, condition, what, seconds=120):
        deadline = time.monotonic() + seconds * SLOWNESS
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)


class KilledServers(Case):
    MAX_TOKENS = 100

    def run_all(self, server, disturb=lambda clients: None):
        bodies = http_bodies(self.MAX_TOKENS) + single_answer_bodies(self.MAX_TOKENS)
        streams = [HttpStream(server, path, dict(body, model=self.model_name(server)), f"http-{i}")
                   for i, (path, body) in enumerate(bodies)]
        lines = LineClient(server, line_bodies(self.MAX_TOKENS))
        clients = [*streams, lines]
        disturb(clients)
        self.finish(clients)
        return [stream.content() for stream in streams], lines.content(), streams

    def model_name(self, server):
        return server.json("GET", "/v1/models")["data"][0]["id"]

    def test_a_server_that_is_killed_under_load_goes_on_where_it_was(self):
        undisturbed = self.server()
        expected_http, expected_lines, _ = self.run_all(undisturbed)
        undisturbed.end()
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        num_kills = 3

        def disturb(clients):
            streams, lines = clients[:-1], clients[-1]
            for i in range(num_kills):
                told = sum(len(stream.events) for stream in streams)
                self.wait_for(lambda: sum(len(s.events) for s in streams) >= told + 150 or
                              all(s.ended.is_set() for s in streams), "nothing is streamed")
                self.assertFalse(lines.ended.is_set() and all(s.ended.is_set() for s in streams),
                                 "all was done before the server could be killed")
                server.kill()
                server.start()

        http, lines, streams = self.run_all(server, disturb)
        for i, (got, want) in enumerate(zip(http, expected_http)):
            self.assertEqual(got, want, f"stream {i}")
        self.assertEqual(lines, expected_lines)
        self.assertGreater(max(stream.num_connections for stream in streams), num_kills)
        live = [int(count) for count in re.findall(r"recovering (\d+) live requests", server.said())]
        self.assertEqual(len(live), num_kills)
        self.assertTrue(all(live), "nothing was live when the server was killed")
        # All that was recovered has ended: the next server has nothing to do.
        stats = server.stats()
        self.assertEqual((stats["requests_running"], stats["requests_waiting"]), (0, 0))

    def test_a_server_that_is_killed_while_it_recovers_loses_nothing(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        body = {"prompt": PROMPTS[0], "max_tokens": 60, "temperature": 0.9, "seed": 3, "ignore_eos": True}
        expected = HttpStream(server, "/v1/completions", body, "same")
        self.finish([expected])
        stream = HttpStream(server, "/v1/completions", dict(body), "again")
        self.wait_for(lambda: len(stream.events) > 5, "nothing is streamed")
        server.kill()
        for pause in (0.02, 0.1, 0.3):  # however far it has come
            server.process = subprocess.Popen(server.command, stdout=subprocess.PIPE, stderr=server.log, text=True)
            time.sleep(pause)
            server.kill()
        server.start()
        self.finish([stream])
        self.assertEqual([e.replace("cmpl-again", "cmpl-same") for e in stream.content()], expected.content())
        # It went on with the tokens that it had.
        self.assertLess(server.stats()["generation_tokens_total"], 60 - 5)

    def test_a_request_of_whose_sequences_some_wait_for_rows_goes_on(self):
        bodies = [{"id": name, "prompt": PROMPTS[seed], "max_tokens": 300, "n": 3, "seed": seed, "temperature": 0.9,
                   "ignore_eos": True} for seed, name in enumerate(("first", "second"))]
        undisturbed = self.server(is_fast=True)
        expected = LineClient(undisturbed, bodies)
        self.finish([expected])
        undisturbed.end()
        server = self.server("--max-num-seqs", "4", journal=os.path.join(self.folder(), "j"), is_fast=True)
        client = LineClient(server, bodies)
        self.wait_for(lambda: min(map(len, client.events.values())) > 0 and max(map(len, client.events.values())) > 90,
                      "nothing is streamed")
        server.kill()
        # Of one of them a single sequence has a row, and the events of a resumable request go from sequence to sequence.
        self.assertEqual(min(map(len, client.events.values())), 1)
        server.start()
        self.finish([client])
        self.assertEqual(client.content(), expected.content())

    def test_a_server_with_little_memory_that_is_killed_again_and_again_loses_nothing(self):
        """Also while it starts, and with a journal whose segments are overwritten."""
        bodies = line_bodies(250)
        undisturbed = self.server(is_fast=True)
        expected = LineClient(undisturbed, bodies)
        self.finish([expected])
        undisturbed.end()
        for seed, more in ((1, ("--preemption-mode", "recompute")),
                           (2, ("--preemption-mode", "swap", "--num-host-blocks", "50", "--worker-processes"))):
            chance = random.Random(seed)
            journal = os.path.join(self.folder(), "j")
            server = self.server("--num-device-blocks", "80", "--block-size", "16", "--max-num-seqs", "8",
                                 "--journal-mib", "1", *more, journal=journal, is_fast=True)
            client = LineClient(server, bodies)
            num_kills = 0
            while num_kills < 3 and not client.ended.is_set():
                told = sum(len(events) for events in client.events.values())
                self.wait_for(lambda: sum(len(events) for events in client.events.values()) > told + 100 or
                              client.ended.is_set(), "nothing is streamed")
                server.kill()
                num_kills += 1
                for _ in range(chance.choice((0, 1))):
                    server.process = subprocess.Popen(server.command, stdout=subprocess.PIPE, stderr=server.log, text=True)
                    time.sleep(chance.random() * 0.3)
                    server.kill()
                server.start()
            self.finish([client])
            self.assertGreaterEqual(num_kills, 2, "all was done too early")
            for name, events in expected.content().items():
                self.assertEqual(client.content()[name], events, f"{name}, seed {seed}")
            stats = server.stats()
            self.assertEqual((stats["requests_running"], stats["requests_waiting"]), (0, 0))
            server.end()

    def test_what_had_ended_is_kept_for_who_had_not_read_its_end(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        body = {"prompt": PROMPTS[1], "max_tokens": 20, "temperature": 0.9, "seed": 3, "ignore_eos": True, "n": 2}
        stream = HttpStream(server, "/v1/completions", body, "ended")
        self.finish([stream])
        for _ in range(2):  # the second server has it from the first
            server.kill()
            server.start()
            stream.ended.clear()
            events, stream.events = stream.content(), []
            stream.run()
            self.assertIsNone(stream.problem)
            self.assertEqual(stream.content(), events)

    def test_seeds_that_were_drawn_and_grammars_hold_after_a_restart(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        body = {"prompt": PROMPTS[0], "max_tokens": 80, "temperature": 1.0, "ignore_eos": True}
        colors = "(red|blue|green)"
        held = dict(body, structured_outputs={"regex": f"{colors}( and {colors}){{100}}"})
        streams = [HttpStream(server, "/v1/completions", body, "drawn")]
        status, _, answer = server.request("POST", "/v1/completions", dict(held, max_tokens=1))
        if status == 200:  # else a build without grammars
            streams.append(HttpStream(server, "/v1/completions", held, "held"))
        self.wait_for(lambda: all(len(s.events) > 10 for s in streams), "nothing is streamed")
        server.kill()
        told = [len(stream.events) for stream in streams]
        server.start()
        self.finish(streams)
        for stream, before in zip(streams, told):
            self.assertGreater(len(stream.events), before)
            again = HttpStream(server, "/v1/completions", body, stream.request_id)  # the id is taken: it reads that
            self.finish([again])
            self.assertEqual(again.content(), stream.content())
        if status == 200:
            text = "".join(json.loads(e.removeprefix("data: "))["choices"][0]["text"]
                           for e in streams[1].events if "[DONE]" not in e)
            self.assertLessEqual(set(text.split()[:-1]), {"red", "blue", "green", "and"}, text)

    def test_the_journals_of_two_servers_may_have_different_names(self):
        folder = self.folder()
        old, new = os.path.join(folder, "old"), os.path.join(folder, "new")
        server = self.server("--journal", old)
        body = {"prompt": PROMPTS[0], "max_tokens": 60, "temperature": 0.9, "seed": 3, "ignore_eos": True}
        stream = HttpStream(server, "/v1/completions", body, "moved")
        self.wait_for(lambda: len(stream.events) > 5, "nothing is streamed")
        server.kill()
        command = server.command[:-2]
        for names in (("--journal", new, "--recover", old),
                      ("--journal", new, "--recover", os.path.join(folder, ".", "new"))):
            server.command = command + list(names)
            server.start()
            self.assertIn("recovering 1 live requests", server.said())
            self.assertTrue(os.path.exists(new), "the journal that is written is at its place")
            self.assertTrue(os.path.exists(old + ".1"), "the one that was recovered is kept")
            self.assertFalse(os.path.exists(old))
            if names[-1] == old:
                server.kill()
        self.finish([stream])

    def test_requests_that_nobody_can_come_back_for_are_not_recovered(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        with socket.create_connection((server.host, server.lines_port)) as connection:
            connection.sendall(json.dumps({"id": "gone", "prompt": PROMPTS[0], "max_tokens": 500,
                                           "ignore_eos": True}).encode() + b"\n")
            connection.makefile("rb").readline()
            server.kill()
        server.start()
        self.assertIn("nothing to recover: no resumable request was live", server.said())
        self.assertEqual(server.stats()["requests_running"], 0)

    def test_the_key_that_started_a_stream_opens_it_after_a_restart(self):
        folder = self.folder()
        keys, journal = os.path.join(folder, "keys"), os.path.join(folder, "j")
        with open(keys, "w") as file:
            file.write("key-of-a\nkey-of-b\n")
        server = self.server("--api-key-file", keys, journal=journal)
        body = {"prompt": PROMPTS[0], "max_tokens": 60, "ignore_eos": True, "temperature": 0}
        stream = HttpStream(server, "/v1/completions", body, "mine", key="key-of-a")
        self.wait_for(lambda: len(stream.events) > 5, "nothing is streamed")
        for restarts in (False, True):
            if restarts:
                server.kill()
                server.start()
            other = {"Authorization": "Bearer key-of-b"}
            self.assertEqual(server.request("GET", "/v1/streams/mine", headers=other)[0], 404)
            self.assertEqual(server.request("GET", "/v1/streams/mine")[0], 401)
        self.finish([stream])
        self.assertEqual(len([e for e in stream.events if "token_ids" not in e and "[DONE]" in e]), 1)


def read_event(file):
    line = file.readline()
    if not line:
        raise EOFError
    return json.loads(line)


class Limits(Case):
    """What is recovered was admitted once: no limit of the new server refuses it."""

    def lines(self, server):
        connection = socket.create_connection((server.host, server.lines_port), timeout=120 * SLOWNESS)
        self.addCleanup(connection.close)
        file = connection.makefile("rb")

        def say(*lines):
            connection.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        return say, file

    def end_some(self, server, count, at_once=20, **body):
        """So many requests that have ended, and whose clients could still ask for them."""
        say, file = self.lines(server)
        for first in range(0, count, at_once):
            names = range(first, min(first + at_once, count))
            say(*({"id": f"ended-{i}", "prompt": PROMPTS[0], "max_tokens": 2, "temperature": 0, "resumable": True,
                   **body} for i in names))
            left = len(names)
            while left:
                event = read_event(file)
                self.assertNotEqual(event["event"], "error", event)
                left -= event["event"] == "done"

    def run_live(self, server, count, at_least=3, **body):
        """The number of events of each live request that its client has seen: so many at least."""
        say, file = self.lines(server)
        say(*({"id": f"live-{i}", "prompt": PROMPTS[i % 4], "max_tokens": 300, "ignore_eos": True, "temperature": 0,
               "resumable": True, **body} for i in range(count)))
        seen = {f"live-{i}": 0 for i in range(count)}
        while min(seen.values()) < at_least:
            event = read_event(file)
            self.assertEqual(event["event"], "delta", event)
            seen[event["id"]] += 1
        return seen

    def outcomes(self, server, seen):
        """How each request ends for a client that asks for the rest of it."""
        say, file = self.lines(server)
        say(*({"op": "attach", "id": name, "from": number} for name, number in seen.items()))
        ends = {}
        while len(ends) < len(seen):
            event = read_event(file)
            if event["event"] != "delta":
                ends[event["id"]] = event["event"] if event["event"] == "done" else event["error"]
        return ends

    def check_all_end(self, *more, num_ended, ended=None, live=None):
        journal = os.path.join(self.folder(), "j")
        server = self.server(*more, journal=journal)
        self.end_some(server, num_ended, **(ended or {}))
        seen = self.run_live(server, 3, **(live or {}))
        server.kill()
        server.start()
        seen |= {f"ended-{i}": 0 for i in range(num_ended)}
        ends = self.outcomes(server, seen)
        self.assertEqual({name: end for name, end in ends.items() if end != "done"}, {})

    def test_more_requests_than_the_queue_takes_are_recovered(self):
        self.check_all_end("--max-queued-requests", "4", num_ended=40, ended={"at_once": 1})

    def test_more_prompt_tokens_than_the_queue_takes_are_recovered(self):
        self.check_all_end("--max-queued-prompt-tokens", "60", num_ended=40, ended={"at_once": 1})

    def test_more_grammars_than_the_compiler_takes_are_recovered(self):
        schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                  "required": ["name", "age"]}
        ended = {"structured_outputs": {"json": schema}, "max_tokens": 1}
        live = {"structured_outputs": {"regex": "[a-z ]{400,900}"}, "ignore_eos": False}
        self.check_all_end(num_ended=300, ended=ended, live=live)

    def test_all_that_ended_within_the_window_is_recovered_with_its_log_probabilities(self):
        """More than the output core keeps, and less than the journal."""
        journal = os.path.join(self.folder(), "j")
        server = self.server("--journal-mib", "16", "--resume-window", "600", journal=journal)
        self.end_some(server, 120, max_tokens=100, ignore_eos=True, logprobs=20)
        server.kill()
        server.start()
        ends = self.outcomes(server, {f"ended-{i}": 0 for i in range(120)})
        self.assertEqual({name: end for name, end in ends.items() if end != "done"}, {})

    def test_a_large_prefix_cache_leaves_room_for_live_requests_in_a_small_journal(self):
        """The state of the cache's blocks is larger than a segment of the journal, of which several are begun."""
        journal = os.path.join(self.folder(), "j")
        server = self.server("--block-size", "1", "--num-device-blocks", "12000", "--max-num-seqs", "16", "--journal-mib",
                             "1", journal=journal, is_fast=True)
        say, file = self.lines(server)
        prompts = [[0] + [300 + (i * i + 7 * k * i) % 700 for i in range(480)] for k in range(16)]
        say(*({"id": f"cached-{k}", "prompt_token_ids": prompt, "max_tokens": 1, "stream": False}
              for k, prompt in enumerate(prompts)))
        self.assertEqual({read_event(file)["event"] for _ in prompts}, {"done"})
        self.assertGreater(server.wait_until_idle(60)["device_blocks_cached"], 7000)
        for i in range(2):
            say(*({"id": f"plain-{i}-{k}", "prompt": PROMPTS[k % 4], "max_tokens": 300, "ignore_eos": True, "logprobs": 20,
                   "temperature": 0, "stream": False} for k in range(8)))
            if i == 0:
                self.assertEqual({read_event(file)["event"] for _ in range(8)}, {"done"})
        seen = self.run_live(server, 3, at_least=150)
        server.kill()
        server.start()
        self.assertIn("recovering 3 live requests", server.said())
        self.assertEqual(self.outcomes(server, seen), dict.fromkeys(seen, "done"))


class PlannedRestarts(Case):
    def test_streams_that_outlast_the_drain_go_on_after_a_restart(self):
        journal = os.path.join(self.folder(), "j")
        body = {"prompt": PROMPTS[0], "max_tokens": 150, "temperature": 0.9, "seed": 3, "ignore_eos": True, "n": 2}
        undisturbed = self.server()
        expected = HttpStream(undisturbed, "/v1/completions", body, "same")
        self.finish([expected])
        server = self.server("--drain-timeout", "0.1", journal=journal)
        stream = HttpStream(server, "/v1/completions", body, "same", leave_after=20, stays_away=True)
        lines = socket.create_connection((server.host, server.lines_port), timeout=120 * SLOWNESS)
        self.addCleanup(lines.close)
        file = lines.makefile("rb")
        for line in ({"id": "line", "prompt": PROMPTS[1], "max_tokens": 400, "ignore_eos": True, "temperature": 0,
                      "resumable": True},
                     {"id": "plain", "prompt": PROMPTS[1], "max_tokens": 400, "ignore_eos": True, "temperature": 0}):
            lines.sendall(json.dumps(line).encode() + b"\n")
        numbers = 0
        while numbers < 10:
            numbers += read_event(file)["id"] == "line"
        self.wait_for(lambda: stream.is_away, "nothing is streamed")
        server.end()
        ends = {}
        while len(ends) < 2:
            event = read_event(file)
            if event["event"] == "delta":
                numbers += event["id"] == "line"
            else:
                ends[event["id"]] = event
        self.assertEqual(ends["plain"]["outputs"][0]["finish_reason"], "abort")
        self.assertEqual(ends["line"]["error"]["code"], "shutting_down")
        self.assertIn("2 resumable requests stay in the journal", server.said())
        self.assertIn("1 requests were aborted", server.said())
        server.start()
        self.assertIn("recovering 2 live requests", server.said())
        lines = socket.create_connection((server.host, server.lines_port), timeout=120 * SLOWNESS)
        self.addCleanup(lines.close)
        file = lines.makefile("rb")
        lines.sendall(json.dumps({"op": "attach", "id": "line", "from": numbers}).encode() + b"\n")
        while (event := read_event(file))["event"] == "delta":
            self.assertEqual(event["number"], numbers)
            numbers += 1
        self.assertEqual((event["event"], event["number"], numbers), ("done", 400, 400))
        stream.is_away = False
        self.finish([stream])
        self.assertEqual(stream.content(), expected.content())

    def test_what_ends_within_the_drain_is_told_its_end(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server("--drain-timeout", "120", journal=journal)
        stream = HttpStream(server, "/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 60, "ignore_eos": True},
                            "short")
        self.wait_for(lambda: len(stream.events) > 3, "nothing is streamed")
        server.end()
        self.finish([stream], 10)
        self.assertNotIn("stay in the journal", server.said())


class Locks(Case):
    def refused(self, *more):
        result = subprocess.run([pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0", *flags, *more],
                                capture_output=True, text=True, timeout=120 * SLOWNESS)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_a_journal_of_a_live_server_is_neither_written_nor_recovered(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        server = self.server(journal=journal)
        stream = HttpStream(server, "/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 100, "ignore_eos": True},
                            "mine")
        in_use = f"{journal} is in use by process {server.process.pid}"
        self.assertIn("journal: " + in_use, self.refused("--journal", journal))
        other = os.path.join(folder, "other")
        for names in (("--journal", journal), ("--journal", other), ()):
            self.assertIn("recover: " + in_use, self.refused("--recover", journal, *names))
        self.assertEqual(sorted(os.listdir(folder)), ["j", "j.lock"])
        self.finish([stream])
        server.kill()
        server.start()
        self.assertIn("recovering 0 live requests and 1 that had just ended", server.said())


class Refusals(Case):
    def command(self, *more):
        return subprocess.run([pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0", *flags, *more],
                              capture_output=True, text=True, timeout=120 * SLOWNESS)

    def test_a_journal_that_is_none_is_refused(self):
        path = os.path.join(self.folder(), "j")
        with open(path, "wb") as file:
            file.write(os.urandom(10000))
        result = self.command("--recover", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not a journal", result.stderr)
        self.assertTrue(os.path.exists(path))

    def test_a_journal_of_another_version_is_kept_and_the_server_starts(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        server = self.server(journal=journal)
        body = {"prompt": PROMPTS[0], "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        stream = HttpStream(server, "/v1/completions", body, "mine")
        self.wait_for(lambda: len(stream.events) > 5, "nothing is streamed")
        server.kill()
        with open(journal, "r+b") as file:  # its format
            file.seek(8)
            file.write((77).to_bytes(4, "little"))
        with open(journal, "rb") as file:
            before = file.read()
        for _ in range(5):
            server.start()
            self.assertEqual(server.request("GET", "/v1/streams/mine")[0], 404)
            server.kill()
        self.assertIn("is a journal of format 77", server.said())
        self.assertIn(f"the file is kept as {journal}.unread", server.said())
        with open(journal + ".unread", "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertFalse(os.path.exists(journal + ".unread.1"))

    def test_a_journal_of_another_model_is_refused_and_stays(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        server = self.server(journal=journal)
        server.kill()
        other = os.path.join(folder, "other")
        shutil.copytree(model, other)
        with open(os.path.join(other, "config.json"), "a") as file:
            file.write("\n")
        result = subprocess.run([pagoda, "serve", "--model", other, "--listen", "127.0.0.1:0", *flags, "--journal",
                                 journal, "--recover", journal], capture_output=True, text=True, timeout=120 * SLOWNESS)
        self.assertEqual(result.returncode, 2)
        self.assertIn("is the journal of another model", result.stderr)
        self.assertFalse(os.path.exists(journal + ".1"))
        server.start()

    def test_a_journal_without_tokens_is_refused(self):
        folder = self.folder()
        journal = os.path.join(folder, "j")
        result = self.command("--recover", journal, "--no-journal-tokens")
        self.assertEqual(result.returncode, 2)
        self.assertIn("recover needs journal_tokens", result.stderr)
        server = self.server("--journal", journal, "--no-journal-tokens")
        server.kill()
        result = self.command("--recover", journal)
        self.assertEqual(result.returncode, 2)
        self.assertIn("has no prompts and outputs", result.stderr)

    def test_no_journal_and_a_clean_one_have_nothing_to_recover(self):
        journal = os.path.join(self.folder(), "j")
        server = self.server(journal=journal)
        self.assertIn("nothing to recover: there is no", server.said())
        server.end()
        there = self.server("--recover", os.path.join(self.folder(), "no", "folder", "j"))
        self.assertIn("nothing to recover: there is no", there.said())
        there.end()
        server.start()
        self.assertIn("nothing to recover: no resumable request", server.said())


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
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, demo = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        model = demo
        if SLOWNESS == 1:  # else it is slow enough to be killed in the middle
            flags = slow_model(demo, folder)
            model = folder
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
