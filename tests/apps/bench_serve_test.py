#!/usr/bin/env python3
"""`pagoda bench serve` against a server whose delays are known, and against Pagoda itself. Standard library only.

usage: bench_serve_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import functools
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

from fake_openai import Answer, FakeOpenAi

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
from server import Server  # noqa: E402

# A busy machine adds to every delay; what is measured may be this much longer, and never shorter. It is less than what any
# test tells apart.
SLACK_MS = 300 * float(os.environ.get("PAGODA_SLOWNESS", "1"))
pagoda = model_dir = None


def bench(*flags, url=None, code=0, json_output=True):
    """(the result, what it complained of) of one call."""
    command = [pagoda, "bench", "serve", *(["--json"] if json_output else []), *(["--base-url", url] if url else []),
               *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{command}: {done.returncode}, not {code}: {done.stdout[-500:]} {done.stderr}"
    return (json.loads(done.stdout) if json_output and done.stdout else done.stdout), complaints_of(done.stderr)


def complaints_of(text):
    """Without the one of a busy machine."""
    return "".join(line for line in text.splitlines(True) if "requests were sent late" not in line)


def timed(test):
    """Of tests that compare times: on a busy machine they may try again."""
    @functools.wraps(test)
    def tries(self):
        for _ in range(2):
            try:
                return test(self)
            except AssertionError as error:
                print("again:", error, file=sys.stderr)
        return test(self)
    return tries


class FakeServer(unittest.TestCase):
    def between(self, value, least, most):
        self.assertGreaterEqual(value, least - 1)
        self.assertLess(value, most)

    @timed
    def test_percentiles_are_those_of_the_delays(self):
        """One of five begins late; gaps are all the same."""
        with FakeOpenAi(lambda number, _: Answer(ttft=0.6 if number % 5 == 4 else 0.2, gap=0.05)) as fake:
            result, _ = bench("--num-prompts", 20, "--request-rate", 20, "--random-output-len", 6,
                              "--metric-percentiles", "50,79,90", "--goodput", "ttft:400", "tpot:1000", url=fake.url)
        self.assertEqual(result["completed"], 20)
        self.assertEqual(result["model_id"], "fake-model")
        self.assertEqual(result["total_output_tokens"], 120)
        self.assertEqual(result["total_input_tokens"], 140)
        self.between(result["p50_ttft_ms"], 200, 200 + SLACK_MS)
        self.between(result["p79_ttft_ms"], 200, 600)
        self.between(result["p90_ttft_ms"], 600, 600 + SLACK_MS)
        self.between(result["median_itl_ms"], 45, 50 + SLACK_MS)
        self.between(result["mean_tpot_ms"], 49, 50 + SLACK_MS)
        self.between(result["p50_e2el_ms"], 450, 450 + 5 * SLACK_MS)
        self.assertAlmostEqual(result["request_goodput"] * result["duration"], 16, delta=0.01)
        self.assertAlmostEqual(result["request_throughput"] * result["duration"], 20, delta=0.01)

    @timed
    def test_latency_counts_from_when_a_request_was_due(self):
        """A fixed rate twice as high as what is served: the last of 20 waits for a second, at the client's side where
        only one request may run, though its own answer takes 50 ms."""
        with FakeOpenAi(lambda *_: Answer(ttft=0.1)) as fake:
            result, complaints = bench("--num-prompts", 20, "--request-rate", 20, "--burstiness", "inf",
                                       "--max-concurrency", 1, "--random-output-len", 1, "--save-detailed", url=fake.url)
        self.assertEqual(complaints, "")
        for place, start in enumerate(result["start_times"]):
            self.assertAlmostEqual(start, place / 20, delta=1e-6)
            self.between(1000 * result["ttfts"][place], 100 + 50 * place, 100 + 50 * place + 5 * SLACK_MS)
        self.assertEqual(result["max_concurrent_requests"], 1)
        self.assertGreater(result["p99_send_delay_ms"], 900)

    @timed
    def test_in_a_closed_loop_it_counts_from_the_sending(self):
        with FakeOpenAi(lambda *_: Answer(ttft=0.05)) as fake:
            result, _ = bench("--num-prompts", 20, "--max-concurrency", 2, "--random-output-len", 1, url=fake.url)
        self.between(result["p99_ttft_ms"], 50, 50 + SLACK_MS)
        self.assertEqual(result["max_concurrent_requests"], 2)
        self.assertGreaterEqual(result["duration"], 0.5)
        self.assertEqual(fake.num_connections, 3, "one for the model's name, then as many as are in use")

    @timed
    def test_a_duration_bounds_a_closed_loop_and_an_open_one(self):
        with FakeOpenAi(lambda *_: Answer(ttft=0.02)) as fake:
            closed, _ = bench("--duration", 0.5, "--max-concurrency", 2, "--random-output-len", 1, url=fake.url)
            opened, _ = bench("--duration", 0.5, "--request-rate", 40, "--burstiness", "inf", "--random-output-len", 1,
                              url=fake.url)
        self.between(1000 * closed["duration"], 500, 550 + 5 * SLACK_MS)
        self.assertLessEqual(closed["completed"], 52)
        self.assertGreater(closed["completed"], 5)
        self.assertEqual(opened["completed"], 20)

    def test_requests_are_what_the_flags_say(self):
        with FakeOpenAi(lambda *_: Answer()) as fake:
            bench("--num-prompts", 2, "--api-key", "secret", "--header", "X-A=b=c", "--ignore-eos", "--temperature", 0.5,
                  "--extra-body", '{"top_k": 3}', "--random-input-len", 9, "--random-output-len", 4,
                  "--random-vocab-size", 50, url=fake.url + "/below/v1")
            bench("--num-prompts", 1, "--endpoint-type", "chat", "--model", "mine", "--random-input-len", 9,
                  url=fake.url)
        body = fake.bodies[0]
        self.assertEqual({k: body[k] for k in body if k != "prompt"},
                         {"model": "fake-model", "max_tokens": 4, "temperature": 0.5, "stream": True,
                          "stream_options": {"include_usage": True}, "ignore_eos": True, "top_k": 3})
        self.assertEqual(len(body["prompt"]), 9)
        self.assertTrue(all(0 <= token < 50 for token in body["prompt"]))
        self.assertEqual(fake.headers[0]["authorization"], "Bearer secret")
        self.assertEqual(fake.headers[0]["x-a"], "b=c")
        self.assertEqual(fake.paths, ["/below/v1/completions"] * 2 + ["/v1/chat/completions"])
        self.assertEqual(fake.bodies[2]["model"], "mine")
        self.assertNotIn("ignore_eos", fake.bodies[2])
        self.assertEqual(len(fake.bodies[2]["messages"][0]["content"].split(" ")), 9)

    @timed
    def test_a_chats_first_token_is_not_its_role(self):
        with FakeOpenAi(lambda *_: Answer(ttft=0.1, gap=0.01)) as fake:
            result, _ = bench("--num-prompts", 3, "--endpoint-type", "openai-chat", "--random-output-len", 3,
                              url=fake.url)
        self.between(result["mean_ttft_ms"], 100, 100 + SLACK_MS)
        self.assertEqual(result["total_output_tokens"], 9)

    def test_without_usage_events_are_counted(self):
        with FakeOpenAi(lambda *_: Answer(usage=False)) as fake:
            result, _ = bench("--num-prompts", 2, "--random-output-len", 5, url=fake.url)
        self.assertEqual(result["total_output_tokens"], 10)

    def test_a_dataset_is_sent_in_its_order(self):
        with FakeOpenAi(lambda *_: Answer()) as fake, tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for i in range(3):
                file.write(json.dumps({"prompt": f"prompt {i}", "output_tokens": i + 1}) + "\n")
            file.flush()
            flags = ["--dataset-name", "custom", "--dataset-path", file.name, "--disable-shuffle", "--num-prompts", 4]
            bench(*flags, "--max-concurrency", 1, url=fake.url)
            bench(*flags, "--output-len", 8, url=fake.url)
        self.assertEqual([(b["prompt"], b["max_tokens"]) for b in fake.bodies[:4]],
                         [("prompt 0", 1), ("prompt 1", 2), ("prompt 2", 3), ("prompt 0", 1)])
        self.assertEqual({b["max_tokens"] for b in fake.bodies[4:]}, {8})

    @timed
    def test_warm_up_does_not_count(self):
        with FakeOpenAi(lambda number, _: Answer(ttft=1 if number < 3 else 0)) as fake:
            result, _ = bench("--num-prompts", 4, "--num-warmups", 3, url=fake.url)
        self.assertEqual(len(fake.bodies), 7)
        self.assertEqual(result["completed"], 4)
        self.assertLess(result["p99_ttft_ms"], 1000)
        self.assertEqual(len({b["prompt"] for b in fake.bodies}), 7, "no prompt is sent twice")

    @timed
    def test_refusals_are_told_apart(self):
        def plan(number, _):
            if number % 3 == 0:
                return Answer()
            return Answer(status=503 if number % 3 == 1 else 429, headers="Retry-After: 1\r\n" if number % 3 == 1 else "")
        with FakeOpenAi(plan) as fake:
            result, complaints = bench("--num-prompts", 9, "--max-concurrency", 1, url=fake.url)
        self.assertEqual((result["completed"], result["refused"], result["refused_with_retry_after"]), (3, 6, 3))
        self.assertEqual((result["failed"], complaints), (0, ""))
        self.assertLess(result["p99_refusal_ms"], SLACK_MS)

    def test_failures_are_counted_by_reason(self):
        def plan(number, _):
            return [Answer(), Answer(status=400), Answer(cut_after=2), Answer(error_after=1),
                    Answer(status=500, body="<html>")][number % 5]
        with FakeOpenAi(plan) as fake:
            result, complaints = bench("--num-prompts", 10, "--max-concurrency", 1, "--random-output-len", 4, url=fake.url)
        self.assertEqual((result["completed"], result["failed"]), (2, 8))
        failures = result["failures"]
        self.assertEqual(failures.get("HTTP 400: so it is"), 2)
        self.assertEqual(failures.get("HTTP 500: <html>"), 2)
        self.assertEqual(failures.get("a step failed"), 2)
        self.assertEqual(sum(n for reason, n in failures.items() if "cut off" in reason), 2)
        self.assertEqual(complaints.count("2 requests failed"), 4)

    def test_when_nothing_succeeds_it_fails(self):
        with FakeOpenAi(lambda *_: Answer(status=400)) as fake:
            bench("--num-prompts", 2, url=fake.url, code=1)
            _, complaints = bench("--num-prompts", 2, "--num-warmups", 1, url=fake.url, code=1)
        self.assertIn("warm-up", complaints)

    def test_a_server_may_close_its_connections(self):
        with FakeOpenAi(lambda number, _: Answer(keep_alive=number % 2 == 0)) as fake:
            result, _ = bench("--num-prompts", 10, "--max-concurrency", 1, "--random-output-len", 2, url=fake.url)
        self.assertEqual((result["completed"], result["failed"]), (10, 0))

    def test_clients_that_go(self):
        with FakeOpenAi(lambda *_: Answer(gap=0.02)) as fake:
            result, _ = bench("--num-prompts", 40, "--abort-fraction", 0.5, "--random-output-len", 10, url=fake.url)
            time.sleep(0.3)
        self.assertGreater(result["aborted"], 8)
        self.assertEqual(result["aborted"] + result["completed"], 40)
        self.assertEqual(result["failed"], 0)
        self.assertGreater(fake.num_disconnects, 8)

    @timed
    def test_slow_readers_and_those_that_never_read_do_not_count(self):
        """A slow reader takes seconds over what comes at once; the latencies told are those of the others."""
        with FakeOpenAi(lambda *_: Answer(token="y" * 1000)) as fake:
            started = time.monotonic()
            result, _ = bench("--num-prompts", 30, "--slow-fraction", 0.2, "--slow-bytes-per-s", 6000,
                              "--stalled-fraction", 0.2, "--random-output-len", 30, url=fake.url)
            took = time.monotonic() - started
        self.assertEqual(result["completed"] + result["completed_by_slow_readers"] + result["never_read"], 30)
        self.assertGreater(result["completed_by_slow_readers"], 1)
        self.assertGreater(result["never_read"], 1)
        self.assertGreater(took, 4, "30 KB at 6 KB a second")
        self.assertLess(result["p99_e2el_ms"], 3000 + SLACK_MS)

    def test_a_time_limit(self):
        with FakeOpenAi(lambda *_: Answer(ttft=30)) as fake:
            result, _ = bench("--num-prompts", 1, "--timeout", 0.3, url=fake.url, code=1)
        self.assertEqual(result["failed"], 1)
        self.assertLess(result["duration"], 5)

    def test_a_sweep_has_a_run_for_each_rate(self):
        with FakeOpenAi(lambda *_: Answer(ttft=0.01)) as fake, tempfile.TemporaryDirectory() as folder:
            output, plot = os.path.join(folder, "r.json"), os.path.join(folder, "r.svg")
            text, _ = bench("--num-prompts", 10, "--request-rate", "20,40,80", "--goodput", "ttft:500", "--output", output,
                            "--plot", plot, url=fake.url, json_output=False)
            with open(output) as file:
                result = json.load(file)
            image = xml.etree.ElementTree.parse(plot).getroot()
        self.assertEqual([run["request_rate"] for run in result["sweep"]], [20, 40, 80])
        self.assertTrue(all(run["completed"] == 10 for run in result["sweep"]))
        self.assertIn("goodput", text)
        self.assertTrue(image.tag.endswith("svg"))
        lines = [element for element in image.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), 6)
        self.assertTrue(all(len(line.get("points").split()) == 3 for line in lines))

    def test_one_run_has_a_plot_of_its_latencies(self):
        with FakeOpenAi(lambda *_: Answer(gap=0.001)) as fake, tempfile.TemporaryDirectory() as folder:
            plot = os.path.join(folder, "r.svg")
            bench("--num-prompts", 10, "--plot", plot, "--random-output-len", 4, url=fake.url)
            image = xml.etree.ElementTree.parse(plot).getroot()
            bench("--num-prompts", 1, "--output", folder, url=fake.url, code=1)
        self.assertEqual(len([element for element in image.iter() if element.tag.endswith("polyline")]), 2)

    def test_a_pipe_gets_no_progress_and_ctrl_c_what_there_is(self):
        with FakeOpenAi(lambda *_: Answer(ttft=0.01, gap=0.01)) as fake:
            command = [pagoda, "bench", "serve", "--base-url", fake.url, "--duration", "60", "--request-rate", "50", "--json",
                       "--random-output-len", "2"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 60
            while len(fake.bodies) < 40 and time.monotonic() < deadline:
                time.sleep(0.01)
            process.send_signal(2)
            output, complaints = process.communicate(timeout=30)
        result = json.loads(output)
        self.assertEqual((process.returncode, complaints_of(complaints)), (1, ""))
        self.assertTrue(result["interrupted"])
        self.assertGreater(result["completed"], 0)

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = os.path.join(folder, "c.pem"), os.path.join(folder, "k.pem")
            made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                                   "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                                  capture_output=True)
            if made.returncode != 0:
                self.skipTest("no openssl")
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(cert, key)
            with FakeOpenAi(lambda *_: Answer(), tls=tls) as fake:
                result, _ = bench("--num-prompts", 8, "--insecure", url=fake.url)
                self.assertEqual(result["completed"], 8)
                _, complaints = bench("--num-prompts", 1, url=fake.url, code=1)
                self.assertIn("certificate", complaints)
                os.environ["SSL_CERT_FILE"] = cert
                try:
                    result, _ = bench("--num-prompts", 1, url=fake.url)
                    _, complaints = bench("--num-prompts", 1, url=fake.url.replace("localhost", "127.0.0.1"), code=1)
                finally:
                    del os.environ["SSL_CERT_FILE"]
                self.assertEqual(result["completed"], 1)
                self.assertIn("certificate", complaints)

    def test_wrong_flags_are_named(self):
        for flags, word in ((["--base-url", "x"], "base_url"), (["--request-rate", "0"], "request_rate"),
                            (["--request-rate", "1,"], "request_rate"), (["--request-rate", "nan"], "request_rate"),
                            (["--burstiness", "-1"], "burstiness"), (["--goodput", "itl:3"], "goodput"),
                            (["--num-prompts", "0"], "--num-prompts"), (["--duration", "1"], "max_concurrency"),
                            (["--duration", "1", "--num-prompts", "1"], "exclude"),
                            (["--dataset-name", "custom"], "dataset_path"), (["--dataset-path", "x"], "dataset_name"),
                            (["--random-mix", "1:x"], "random_mix"), (["--random-vocab-size", "5", "--endpoint-type",
                                                                       "chat"], "random_vocab_size"),
                            (["--abort-fraction", "0.6", "--slow-fraction", "0.6"], "at most 1"),
                            (["--abort-fraction", "2"], "--abort-fraction"), (["--extra-body", "[]"], "extra_body"),
                            (["--header", "x"], "header"), (["--header", "a=b\nc"], "header"),
                            (["--endpoint", "v1"], "endpoint"), (["--percentile-metrics", "x"], "percentile_metrics"),
                            (["--metric-percentiles", "200"], "metric_percentiles"),
                            (["--max-concurrency", "1", "--stalled-fraction", "1"], "stalled_fraction")):
            with self.subTest(flags):
                _, complaints = bench(*flags, code=2)
                self.assertIn(word, complaints)
        _, complaints = bench("--num-prompts", 1, url="http://127.0.0.1:1", code=1)
        self.assertIn("cannot connect", complaints)


class RealServer(unittest.TestCase):
    def test_what_clients_see_is_what_the_server_counts(self):
        with Server(pagoda, model_dir) as server:
            before = server.stats()
            for flags in ([], ["--endpoint-type", "chat"], ["--random-vocab-size", 300]):
                result, complaints = bench("--num-prompts", 24, "--request-rate", 60, "--random-input-len", 20,
                                           "--random-output-len", 12, "--ignore-eos", *flags, url=server.url)
                self.assertEqual((result["completed"], result["failed"], complaints), (24, 0, ""))
                self.assertEqual(result["total_output_tokens"], 24 * 12)
                after = server.stats()
                self.assertEqual(after["generation_tokens_total"] - before["generation_tokens_total"], 24 * 12)
                self.assertEqual(after["prompt_tokens_total"] - before["prompt_tokens_total"],
                                 result["total_input_tokens"])
                before = after

    def test_a_queue_that_is_full_refuses_at_once(self):
        with Server(pagoda, model_dir, "--max-num-seqs", "1", "--max-queued-requests", "2") as server:
            result, _ = bench("--num-prompts", 40, "--random-input-len", 8, "--random-output-len", 60, "--ignore-eos",
                              url=server.url)
        self.assertEqual(result["completed"] + result["refused"], 40)
        self.assertGreater(result["refused"], 20)
        self.assertEqual(result["refused_with_retry_after"], result["refused"])

    def test_clients_that_go_free_what_they_had(self):
        with Server(pagoda, model_dir) as server:
            result, _ = bench("--num-prompts", 60, "--abort-fraction", 0.5, "--random-output-len", 40, "--ignore-eos",
                              "--request-rate", 100, url=server.url)
            stats = server.wait_until_idle(20)
        self.assertEqual((result["failed"], result["completed"] + result["aborted"]), (0, 60))
        self.assertEqual(stats["device_blocks_free"] + stats["device_blocks_cached"], stats["device_blocks_total"])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model_dir = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
