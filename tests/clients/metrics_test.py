#!/usr/bin/env python3
"""GET /metrics and /load: what is counted is what clients did. Standard library only.

usage: metrics_test.py PAGODA MODEL_DIR REPOSITORY [unittest arguments]
"""
import json
import os
import pathlib
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

from exposition import Change, scrape
from raw_stream import RawStream, send
from server import Server

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from skipping_main import skipping_main  # noqa: E402

PROMPT = "Once upon a time there was a little"
LONG = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "temperature": 0}
REASONS = ("stop", "length", "abort", "error")
pagoda = model = repository = None


class WithLines(Server):
    """One that serves JSON lines as well: lines is their address."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.command[self.command.index("none")] = "127.0.0.1:0"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        address = lambda: re.fullmatch(r".* on (.*):(\d+)\n", self.process.stdout.readline())
        lines, http = address(), address()
        self.lines = (lines[1], int(lines[2]))
        self.host, self.port = http[1], int(http[2])
        return self

    def ask(self, *objects):
        """The answers of one connection, up to its end."""
        with socket.create_connection(self.lines, timeout=60) as connection:
            connection.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in objects))
            connection.shutdown(socket.SHUT_WR)
            return [json.loads(line) for line in connection.makefile("rb") if line.strip()]


def in_parallel(count, work):
    """work(0), work(1), ... at the same time; their results."""
    results = [None] * count
    def run(i):
        results[i] = work(i)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Case(unittest.TestCase):
    def start(self, *flags, kind=Server):
        server = kind(pagoda, model, *flags)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def change_of(self, server, work):
        before = scrape(server)
        result = work()
        return Change(before, scrape(server)), result

    def eventually(self, holds, seconds=20):
        deadline = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def expect_endings(self, change, **expected):
        self.assertEqual({reason: int(change.get("pagoda:request_success_total", finished_reason=reason))
                          for reason in REASONS}, {**dict.fromkeys(REASONS, 0), **expected})

    def ask(self, server, **fields):
        """(the answer's usage, seconds that it took)"""
        body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "temperature": 0, **fields}
        began = time.monotonic()
        if not body.get("stream"):
            return server.json("POST", "/v1/completions", body)["usage"], time.monotonic() - began
        stream = RawStream(server, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
        events = b"".join(stream.chunks()).decode().split("\n\n")
        stream.close()
        usage = next(json.loads(event[6:])["usage"] for event in events if '"usage":{' in event)
        return usage, time.monotonic() - began


class Counts(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = WithLines(pagoda, model, "--enable-lora")
        cls.server.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def change(self, work):
        return self.change_of(self.server, work)

    def test_twenty_requests_are_in_every_histogram(self):
        def work(i):
            return self.ask(self.server, prompt=PROMPT + " dog" * i, max_tokens=5 + i, stream=i % 2 == 0)
        change, results = self.change(lambda: in_parallel(20, work))
        usages = [usage for usage, _ in results]
        prompts = sum(usage["prompt_tokens"] for usage in usages)
        outputs = sum(usage["completion_tokens"] for usage in usages)
        self.assertEqual(outputs, sum(5 + i for i in range(20)))
        self.expect_endings(change, length=20)
        self.assertEqual(change.get("pagoda:prompt_tokens_total"), prompts)
        self.assertEqual(change.get("pagoda:generation_tokens_total"), outputs)
        self.assertEqual(change.histogram("pagoda:request_prompt_tokens"), (20, prompts))
        self.assertEqual(change.histogram("pagoda:request_generation_tokens"), (20, outputs))
        self.assertEqual(change.histogram("pagoda:request_max_num_generation_tokens"), (20, outputs))
        self.assertEqual(change.histogram("pagoda:request_params_max_tokens"), (20, outputs))
        self.assertEqual(change.histogram("pagoda:request_params_n"), (20, 20))
        self.assertEqual(change.histogram("pagoda:inter_token_latency_seconds")[0], outputs - 20)
        self.assertEqual(change.histogram("pagoda:time_to_first_token_seconds")[0], 20)
        seconds = {name: change.histogram(f"pagoda:request_{name}_time_seconds") for name in
                   ("queue", "prefill", "decode", "inference")}
        seconds["e2e"] = change.histogram("pagoda:e2e_request_latency_seconds")
        self.assertEqual({count for count, _ in seconds.values()}, {20})
        sums = {name: total for name, (_, total) in seconds.items()}
        self.assertAlmostEqual(sums["inference"], sums["prefill"] + sums["decode"], delta=1e-3)
        self.assertAlmostEqual(sums["decode"], change.histogram("pagoda:inter_token_latency_seconds")[1], delta=1e-3)
        self.assertAlmostEqual(sums["queue"] + sums["prefill"],
                               change.histogram("pagoda:time_to_first_token_seconds")[1], delta=1e-3)
        # Behind the last token comes only its text.
        self.assertLessEqual(sums["queue"] + sums["inference"], sums["e2e"])
        self.assertLess(sums["e2e"], sums["queue"] + sums["inference"] + 20 * 0.2)
        # Clients measure more: HTTP, and their own threads.
        measured = sum(took for _, took in results)
        self.assertLess(sums["e2e"], measured)
        self.assertGreater(sums["e2e"], 0.3 * measured)
        self.assertEqual(change.get("pagoda:http_requests_total", route="/v1/completions", status="200"), 20)
        self.assertEqual(change.get("pagoda:http_requests_total", route="/metrics", status="200"), 1)
        self.assertGreaterEqual(change.get("pagoda:connections_accepted_total", api="http"), 20)

    def test_steps_add_up(self):
        change, (usage, took) = self.change(lambda: self.ask(self.server, prompt="A bear", max_tokens=40))
        steps, tokens = change.histogram("pagoda:iteration_tokens_total")
        self.assertEqual(change.get("pagoda:steps_total"), steps)
        # The last token is not computed with; a sequence that has ended may waste a row of the step behind.
        least = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] + 39
        self.assertTrue(least <= tokens <= least + 1, (least, tokens))
        count, computing = change.histogram("pagoda:step_phase_seconds", phase="compute")
        self.assertEqual(count, steps)
        self.assertTrue(0 < computing < took, (computing, took))
        count, planning = change.histogram("pagoda:step_phase_seconds", phase="plan")
        self.assertGreaterEqual(count, steps)
        self.assertTrue(0 < planning < took, (planning, took))
        self.assertEqual(change.histogram("pagoda:step_phase_seconds", phase="copy"), (0, 0))

    def test_several_sequences_are_one_request(self):
        change, (usage, _) = self.change(lambda: self.ask(self.server, n=3, max_tokens=6, temperature=1, seed=1))
        self.expect_endings(change, length=1)
        self.assertEqual(usage["completion_tokens"], 18)
        self.assertEqual(change.histogram("pagoda:request_params_n"), (1, 3))
        self.assertEqual(change.histogram("pagoda:request_generation_tokens"), (1, 18))
        self.assertEqual(change.histogram("pagoda:request_max_num_generation_tokens"), (1, 6))
        self.assertEqual(change.histogram("pagoda:time_to_first_token_seconds")[0], 1)
        self.assertEqual(change.histogram("pagoda:inter_token_latency_seconds")[0], 15)
        self.assertEqual(change.histogram("pagoda:request_time_per_output_token_seconds")[0], 1)

    def test_a_stop_is_told_from_a_length(self):
        text = self.server.json("POST", "/v1/completions", {**LONG, "max_tokens": 12})["choices"][0]["text"]
        stop = text.split()[2]
        change, _ = self.change(lambda: self.ask(self.server, max_tokens=12, stop=stop))
        self.expect_endings(change, stop=1)

    def test_a_prompt_alone_is_counted(self):
        body = {"prompt": PROMPT, "max_tokens": 0, "echo": True}
        change, _ = self.change(lambda: self.server.json("POST", "/v1/completions", body))
        self.expect_endings(change, length=1)
        self.assertEqual(change.histogram("pagoda:e2e_request_latency_seconds")[0], 1)
        self.assertEqual(change.histogram("pagoda:request_decode_time_seconds")[0], 1)
        self.assertEqual(change.histogram("pagoda:request_time_per_output_token_seconds")[0], 0)

    def test_what_is_cached_is_counted(self):
        prompt = "The old bear and the young bear went to the river. " * 4
        self.ask(self.server, prompt=prompt)
        change, (usage, _) = self.change(lambda: self.ask(self.server, prompt=prompt))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        self.assertEqual(change.get("pagoda:prefix_cache_hits_total"), cached)
        self.assertGreaterEqual(change.get("pagoda:prefix_cache_queries_total"), cached)
        self.assertLessEqual(change.get("pagoda:prefix_cache_queries_total"), usage["prompt_tokens"])
        self.assertGreater(change.after.get("pagoda:kv_blocks", pool="device", state="cached"), 0)

    def test_a_client_that_goes_is_an_abort_once(self):
        for stream in (True, False):
            with self.subTest(stream=stream):
                before = scrape(self.server)
                body = {**LONG, "stream": stream}
                if stream:
                    going = RawStream(self.server, "/v1/completions", body)
                    next(iter(going.chunks()))
                else:
                    going = send(self.server, "/v1/completions", body)
                    self.eventually(lambda: Change(before, scrape(self.server)).get(
                        "pagoda:time_to_first_token_seconds_count") == 1)
                during = scrape(self.server)
                self.assertEqual(during.get("pagoda:num_requests_running"), 1)
                self.assertGreater(during.get("pagoda:kv_cache_usage_perc"), 0)
                self.assertLess(during.get("pagoda:kv_cache_usage_perc"), 1)
                going.close()
                self.server.wait_until_idle(20)
                self.eventually(lambda: Change(before, scrape(self.server)).get(
                    "pagoda:request_success_total", finished_reason="abort") > 0)
                change = Change(before, scrape(self.server))
                self.expect_endings(change, abort=1)
                self.assertEqual(change.histogram("pagoda:e2e_request_latency_seconds")[0], 0)
                self.assertEqual(change.histogram("pagoda:time_to_first_token_seconds")[0], 1)
                status = "200" if stream else "499"
                self.assertEqual(change.get("pagoda:http_requests_total", route="/v1/completions"), 1)
                self.assertEqual(change.get("pagoda:http_requests_total", route="/v1/completions", status=status), 1)
                self.assertEqual(change.after.get("pagoda:kv_cache_usage_perc"), 0)
                self.assertEqual(change.after.get("pagoda:num_requests_running"), 0)

    def test_refusals_are_counted_where_they_happen(self):
        def refused(status, path="/v1/completions", method="POST", **body):
            self.assertEqual(self.server.request(method, path, body or None)[0], status)
        def work():
            refused(400, prompt=PROMPT, temprature=1)                         # by the API
            refused(400, prompt=PROMPT, max_tokens=2, top_k=-7)               # by the engine
            refused(400, prompt=[1] * 100_000, max_tokens=2)                  # likewise
            refused(404, prompt=PROMPT, model="another")
            refused(404, path="/v1/nothing", method="GET")
            refused(405, path="/metrics", method="DELETE")
        change, _ = self.change(work)
        self.expect_endings(change)
        self.assertEqual(change.get("pagoda:requests_refused_total"), 2)
        self.assertEqual(change.get("pagoda:requests_refused_total", code="context_too_long"), 1)
        self.assertEqual(change.get("pagoda:requests_refused_total", code="invalid_request"), 1)
        self.assertEqual(change.get("pagoda:http_requests_total", route="/v1/completions", status="400"), 3)
        self.assertEqual(change.get("pagoda:http_requests_total", route="/v1/completions", status="404"), 1)
        self.assertEqual(change.get("pagoda:http_requests_total", route="none", status="404"), 1)
        self.assertEqual(change.get("pagoda:http_requests_total", route="none", status="405", method="DELETE"), 1)

    def test_what_is_no_http_is_counted(self):
        def work():
            with socket.create_connection((self.server.host, self.server.port)) as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                connection.recv(1000)
        change, _ = self.change(work)
        self.assertEqual(change.get("pagoda:http_requests_total", route="none", status="400"), 1)

    def test_json_lines_are_counted(self):
        def work():
            return self.server.ask(
                {"op": "generate", "id": "a", "prompt": PROMPT, "max_tokens": 7, "ignore_eos": True},
                {"op": "generate", "id": "b", "prompt": PROMPT, "max_tokens": 3, "ignore_eos": True, "stream": False},
                {"op": "generate", "id": "c", "prompt": PROMPT, "top_p": 7},
                {"op": "generate", "id": "d", "prompt_token_ids": [1] * 100_000})
        change, answers = self.change(work)
        done = [answer for answer in answers if answer["event"] == "done"]
        self.assertEqual(len(done), 2, answers)
        self.expect_endings(change, length=2)
        self.assertEqual(change.get("pagoda:generation_tokens_total"), 10)
        self.assertEqual(change.histogram("pagoda:request_generation_tokens"), (2, 10))
        self.assertEqual(change.get("pagoda:json_lines_requests_total", result="done"), 2)
        self.assertEqual(change.get("pagoda:json_lines_requests_total", result="context_too_long"), 1)
        self.assertEqual(change.get("pagoda:connections_accepted_total", api="json_lines"), 1)
        # A client sees the end of its connection before the server has let go of it.
        self.eventually(lambda: scrape(self.server).get("pagoda:connections", api="json_lines") == 0)

    def test_counters_only_rise_while_requests_come_and_go(self):
        stop = threading.Event()
        falling, scrapes = [], []
        def watch():
            last = scrape(self.server)
            while not stop.is_set():
                now = scrape(self.server)
                falling.append(Change(last, now).falling())
                scrapes.append(now)
                last = now
        watcher = threading.Thread(target=watch)
        watcher.start()
        def work(i):
            if i % 3 == 0:
                stream = RawStream(self.server, "/v1/completions", {**LONG, "stream": True})
                next(iter(stream.chunks()))
                stream.close()
            else:
                self.ask(self.server, max_tokens=30, stream=i % 3 == 1)
        for _ in range(3):
            in_parallel(9, work)
        stop.set()
        watcher.join()
        self.assertGreater(len(scrapes), 3)
        self.assertEqual([change for change in falling if change], [])
        self.assertGreater(max(each.get("pagoda:num_requests_running") for each in scrapes), 1)

    def test_process_and_build_are_told(self):
        metrics = scrape(self.server)
        self.assertGreater(metrics.get("process_cpu_seconds_total"), 0)
        with open(f"/proc/{self.server.process.pid}/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        self.assertAlmostEqual(metrics.get("process_resident_memory_bytes"), resident, delta=0.2 * resident)
        self.assertAlmostEqual(metrics.get("process_open_fds"),
                               len(os.listdir(f"/proc/{self.server.process.pid}/fd")), delta=3)
        self.assertTrue(time.time() - 3600 < metrics.get("process_start_time_seconds") < time.time() + 1)
        version = self.server.json("GET", "/version")["version"]
        self.assertEqual(metrics.get("pagoda:build_info", version=version), 1)
        self.assertEqual(metrics.get("pagoda:healthy"), 1)
        self.assertGreater(metrics.get("pagoda:actors"), 5)
        info = next(dict(labels) for name, labels in metrics.samples if name == "pagoda:cache_config_info")
        self.assertEqual(metrics.get("pagoda:kv_blocks", pool="device"), int(info["num_gpu_blocks"]))
        self.assertEqual(info["enable_prefix_caching"], "True")

    def test_load_tells_the_numbers_of_now(self):
        self.server.wait_until_idle(20)
        load = self.server.json("GET", "/load")
        self.assertEqual((load["server_load"], load["requests_running"], load["kv_cache_usage"]), (0, 0, 0))
        stream = RawStream(self.server, "/v1/completions", {**LONG, "stream": True})
        next(iter(stream.chunks()))
        load = self.server.json("GET", "/load")
        stream.close()
        self.assertEqual((load["server_load"], load["requests_running"], load["overloaded"]), (1, 1, False))
        self.assertGreater(load["kv_cache_usage"], 0)
        self.assertGreaterEqual(load["connections"], 2)

    def test_the_docs_list_what_is_there(self):
        metrics = scrape(self.server)
        text = pathlib.Path(repository, "docs", "metrics.md").read_text()
        text = re.sub(r"### Several models.*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE)  # they have a test
        rows = re.findall(r"^\| `([a-z0-9_:]+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
        listed = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
        self.assertEqual(len(listed), len(rows), "a metric is listed twice")
        # json_lines_requests_total has no samples before the first request, ignored_fields_total before the first field.
        self.server.ask({"op": "generate", "id": "a", "prompt": PROMPT, "max_tokens": 1})
        self.server.json("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "field_of_others": 1})
        metrics = scrape(self.server)
        for always in ("pagoda:access_log_dropped_total", *OTLP_METRICS, *KV_EVENT_METRICS):
            self.assertIn(always, listed)
            listed.pop(always)  # where it is asked for
        told = {name: (kind, metrics.labels_of(name)) for name, kind in metrics.types.items()}
        self.assertEqual({name: value for name, value in listed.items() if told.get(name) != value}, {}, "only listed")
        self.assertEqual({name: value for name, value in told.items() if listed.get(name) != value}, {}, "only told")


@unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian: prometheus)")
class Promtool(Case):
    def test_it_finds_nothing_wrong_but_vllms_names(self):
        _, _, text = self.start().request("GET", "/metrics")
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
        self.assertIn(checked.returncode, (0, 3), checked.stderr)  # 3: lint
        lint = checked.stderr.decode().splitlines()
        expected = re.compile(r'pagoda:\w+ metric names should not contain \':\'|'
                              r'pagoda:iteration_tokens_total non-counter metrics should not have "_total" suffix')
        self.assertEqual([line for line in lint if not expected.fullmatch(line)], [])


class Engines(Case):
    """What takes an engine of its own."""

    def test_labels_may_be_any_text(self):
        name = 'a "model"\\of\n mine'
        server = self.start("--served-model-name", name)
        metrics = scrape(server)
        self.assertIn(("pagoda:num_requests_running", frozenset({("model_name", name), ("engine", "0")})),
                      metrics.samples)

    def test_a_key_opens_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("secret-key\n")
            keys.flush()
            server = self.start("--api-key-file", keys.name)
            for path in ("/metrics", "/load"):
                self.assertEqual(server.request("GET", path)[0], 401)
                self.assertEqual(server.request("GET", path, headers={"Authorization": "Bearer wrong"})[0], 401)
            metrics = scrape(server, {"Authorization": "Bearer secret-key"})
            self.assertEqual(metrics.get("pagoda:http_requests_total", route="/metrics", status="401"), 2)

    def test_preemptions_and_what_they_cost(self):
        for mode, flags in (("recompute", ()), ("swap", ("--swap-space", "0.01"))):
            with self.subTest(mode):
                server = self.start("--preemption-mode", mode, "--block-size", "4", "--num-device-blocks", "140",
                                    "--no-enable-prefix-caching", *flags)
                change, results = self.change_of(server, lambda: in_parallel(
                    6, lambda i: self.ask(server, prompt=PROMPT + " cat" * i, max_tokens=200)))
                self.assertEqual(sum(usage["completion_tokens"] for usage, _ in results), 6 * 200)
                self.expect_endings(change, length=6)
                total = change.get("pagoda:num_preemptions_total")
                self.assertGreater(total, 0)
                self.assertEqual(change.get("pagoda:preemptions_total", kind=mode), total)
                self.assertEqual(change.get("pagoda:preemptions_total"), total)
                recomputed = change.get("pagoda:recomputed_tokens_total")
                copies, seconds = change.histogram("pagoda:step_phase_seconds", phase="copy")
                if mode == "recompute":
                    self.assertGreater(recomputed, 0)
                    self.assertEqual((copies, change.get("pagoda:swap_bytes_total")), (0, 0))
                else:
                    self.assertEqual(recomputed, 0)
                    self.assertGreater(copies, 0)
                    self.assertGreater(seconds, 0)
                    self.assertGreater(change.get("pagoda:swap_bytes_total"), 0)
                # Each token of a step is a prompt's, one that was generated but for the last, or computed once more.
                needed = sum(usage["prompt_tokens"] + usage["completion_tokens"] - 1 for usage, _ in results)
                tokens = change.histogram("pagoda:iteration_tokens_total")[1]
                self.assertTrue(needed + recomputed <= tokens <= needed + recomputed + 4 * total + 6,
                                (needed, recomputed, tokens, total))

    def test_a_full_queue_is_a_refusal(self):
        server = self.start("--max-queued-requests", "1")
        before = scrape(server)
        stream = RawStream(server, "/v1/completions", {**LONG, "stream": True})
        next(iter(stream.chunks()))
        self.assertEqual(server.request("POST", "/v1/completions", {"prompt": PROMPT})[0], 503)
        during = Change(before, scrape(server))
        self.assertEqual(during.get("pagoda:requests_refused_total", code="queue_full"), 1)
        self.assertEqual(during.get("pagoda:http_requests_total", route="/v1/completions", status="503"), 1)
        self.assertEqual(during.after.get("pagoda:overloaded"), 1)
        stream.close()

    def test_a_worker_that_is_killed_is_counted_once(self):
        server = self.start("--worker-processes")
        before = scrape(server)
        self.assertEqual(before.get("pagoda:worker_processes"), 1)
        self.assertGreater(before.get("pagoda:worker_resident_memory_bytes"), 1 << 20)
        stream = RawStream(server, "/v1/completions", {**LONG, "stream": True, "max_tokens": 300})
        chunks = iter(stream.chunks())
        next(chunks)
        os.kill(server.stats()["worker_pids"][0], signal.SIGKILL)
        for _ in chunks:
            pass
        stream.close()
        self.eventually(lambda: server.stats()["health"] == "ok")
        change = Change(before, scrape(server))
        self.assertEqual(change.get("pagoda:worker_deaths_total"), 1)
        self.assertEqual(change.get("pagoda:worker_hangs_total"), 0)
        self.assertEqual(change.get("pagoda:worker_restarts_total"), 1)
        self.assertGreater(change.get("pagoda:recomputed_tokens_total"), 0)
        self.assertEqual(change.falling(), {})
        self.expect_endings(change, length=1)

    def test_grammars_are_counted(self):
        server = self.start()
        body = {"prompt": PROMPT, "max_tokens": 4, "structured_outputs": {"choice": ["yes", "no"]}}
        if server.request("POST", "/v1/completions", body)[0] != 200:
            self.skipTest("a build without structured output")
        change, _ = self.change_of(server, lambda: [
            server.json("POST", "/v1/completions", {**body, "structured_outputs": {"choice": ["one", choice]}})
            for choice in ("two", "three", "two", "two")])
        self.assertEqual(change.get("pagoda:grammar_compilations_total", result="compiled"), 2)
        self.assertEqual(change.get("pagoda:grammar_cache_hits_total"), 2)
        self.assertGreater(change.after.get("pagoda:grammar_cache_bytes"), 0)
        self.assertEqual(change.after.get("pagoda:num_requests_waiting_for_grammar"), 0)

    def test_drafts_are_told_to_their_request_too(self):
        server = self.start()
        # Only one text is possible; who asks for logprobs has each of its tokens sampled.
        body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "logprobs": 0, "timing": True,
                "structured_outputs": {"regex": "the little dog ran to the big house"}, "speculation": False}
        if server.request("POST", "/v1/completions", body)[0] != 200:
            self.skipTest("a build without structured output")
        change, timing = self.change_of(server, lambda: server.json("POST", "/v1/completions", body)["timing"])
        self.assertGreater(timing["drafts_accepted"], 0)
        self.assertGreaterEqual(timing["draft_tokens"], timing["drafts_accepted"])
        self.assertEqual(change.get("pagoda:spec_decode_num_draft_tokens_total"), timing["draft_tokens"])
        name = "pagoda:spec_decode_num_accepted_tokens"
        self.assertEqual(change.get(f"{name}_total"), timing["drafts_accepted"])
        self.assertEqual(change.get(f"{name}_per_pos_total"), timing["drafts_accepted"])
        self.assertGreaterEqual(change.get("pagoda:spec_decode_num_drafts_total"),
                                change.get(f"{name}_per_pos_total", position="0"))
        plain = {"prompt": PROMPT, "max_tokens": 4, "timing": True}
        timing = server.json("POST", "/v1/completions", plain)["timing"]
        self.assertEqual((timing["draft_tokens"], timing["drafts_accepted"]), (0, 0))

    def test_what_waits_for_a_slow_reader_is_told(self):
        server = self.start()
        stream = RawStream(server, "/v1/completions", {**LONG, "stream": True, "n": 8, "temperature": 1, "seed": 1,
                                                       "logprobs": 20})
        next(iter(stream.chunks()))
        most = 0
        for _ in range(400):
            most = max(most, scrape(server).get("pagoda:buffered_bytes", api="http"))
            if most > 0:
                break
            time.sleep(0.01)
        stream.close()
        self.assertGreater(most, 0)
        server.wait_until_idle(20)
        self.eventually(lambda: scrape(server).get("pagoda:buffered_bytes", api="http") == 0)


KV_EVENT_METRICS = ("pagoda:kv_event_batches_published_total", "pagoda:kv_event_batches_dropped_total")
OTLP_METRICS = ("pagoda:spans_exported_total", "pagoda:spans_dropped_total")

if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR REPOSITORY [unittest arguments]")
    pagoda, model, repository = sys.argv[1:4]
    skipping_main("__main__", *sys.argv[4:])
