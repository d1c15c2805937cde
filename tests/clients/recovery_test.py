#!/usr/bin/env python3
"""Clients that come back for their streams to a server that takes the place of one that was killed or stopped. They lose
and repeat nothing, and every token is that of a run that nobody disturbed. Standard library only.

usage: recovery_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import random
import re
import socket
import subprocess
import time

import recovery_case
from killed_server import SLOWNESS, HttpStream, LineClient
from recovery_case import PROMPTS, Case, http_bodies, line_bodies, read_event, single_answer_bodies


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


if __name__ == "__main__":
    recovery_case.main()
