#!/usr/bin/env python3
"""Tests of `pagoda run-batch`: results, bad lines, interruptions. Standard library only.

usage: run_batch_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PAGODA, MODEL = sys.argv[1:3]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def line(custom_id, url="/v1/completions", **body):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def completion(custom_id, prompt, max_tokens=8, **more):
    return line(custom_id, prompt=prompt, max_tokens=max_tokens, temperature=0, **more)


def without_times(row):
    """A result without what differs from run to run."""
    body = row["response"]["body"]
    for key in ("created", "created_at", "completed_at"):
        body.pop(key, None)
    for item in body.get("output", []):
        item.pop("id", None)
    return row


class RunBatch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.input = os.path.join(self.folder.name, "in.jsonl")
        self.output = os.path.join(self.folder.name, "out.jsonl")
        self.template = os.path.join(self.folder.name, "template.jinja")
        with open(self.template, "w", encoding="utf-8") as file:
            file.write(TEMPLATE)

    def write(self, lines):
        with open(self.input, "w", encoding="utf-8") as file:
            file.write("".join(text + "\n" for text in lines))

    def command(self, *flags, output=None):
        return [PAGODA, "run-batch", MODEL, "-i", self.input, "-o", output or self.output, "--chat-template", self.template,
                "--served-model-name", "stories", *flags]

    def run_it(self, *flags, code=0, **how):
        done = subprocess.run(self.command(*flags, output=how.pop("output", None)), capture_output=True, text=True, timeout=300,
                              **how)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def rows(self):
        with open(self.output, encoding="utf-8") as file:
            return [json.loads(text) for text in file]

    def test_each_route_answers_as_it_does_in_a_server(self):
        self.write([completion("a", "Once upon a time"),
                    line("b", "/v1/chat/completions", model="stories", max_tokens=4, temperature=0,
                         messages=[{"role": "user", "content": "Once upon a time"}]),
                    "",
                    line("c", "/v1/responses", max_output_tokens=4, temperature=0, input="Once upon a time"),
                    completion("d", ["The sun", "The moon"], max_tokens=3, n=2)])
        done = self.run_it()
        self.assertEqual((done.stdout, done.stderr), ("", ""))  # quiet in a pipe
        a, b, c, d = self.rows()
        self.assertEqual([row["custom_id"] for row in (a, b, c, d)], ["a", "b", "c", "d"])
        for row in (a, b, c, d):
            self.assertEqual(set(row), {"id", "custom_id", "response", "error"})
            self.assertRegex(row["id"], r"^batch_req_[0-9a-f]{16}$")
            self.assertEqual(set(row["response"]), {"status_code", "request_id", "body"})
            self.assertEqual((row["response"]["status_code"], row["error"]), (200, None))
            self.assertEqual(row["response"]["body"]["model"], "stories")
        self.assertEqual(len({row["id"] for row in (a, b, c, d)}), 4)
        said = subprocess.run([PAGODA, "generate", "--model", MODEL, "--prompt", "Once upon a time", "--max-tokens", "8",
                               "--temperature", "0"], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertEqual(a["response"]["body"]["choices"][0]["text"] + "\n", said)
        self.assertEqual(b["response"]["body"]["object"], "chat.completion")
        self.assertEqual(b["response"]["body"]["usage"]["completion_tokens"], 4)
        self.assertEqual(c["response"]["body"]["object"], "response")
        self.assertEqual(len(d["response"]["body"]["choices"]), 4)

    def test_a_bad_line_is_an_error_in_its_own_result(self):
        good = {"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}}
        bad = [("not json", None, "JSON"),
               ("[]", None, "must be an object"),
               (json.dumps({**good, "custom_id": 7}), None, "custom_id must be a string"),
               (completion("first", "again"), "first", "custom_id is already used by an earlier line"),
               (json.dumps({**good, "custom_id": "u", "url": "/v1/embeddings"}), "u", "/v1/embeddings"),
               (json.dumps({**good, "custom_id": "m", "method": "GET"}), "m", "method must be"),
               (json.dumps({**good, "custom_id": "n", "body": []}), "n", "body must be an object"),
               (completion("s", "a", stream=True), "s", "stream must be false"),
               (line("t", prompt="a", temperature=-1), "t", "temperature"),
               (line("o", prompt="a", model="other"), "o", "other"),
               (line("v", "/v1/chat/completions", messages="none"), "v", "messages"),
               ('{"custom_id": "y", "custom_id": "z", "method": "POST"}', None, "custom_id")]
        self.write([completion("first", "Once upon a time"), *(text for text, _, _ in bad), completion("last", "The sun")])
        done = self.run_it(code=1)
        self.assertEqual(done.stderr, f"pagoda: {len(bad)} of {len(bad) + 2} requests failed; their results have the errors\n")
        rows = self.rows()
        self.assertEqual(len(rows), len(bad) + 2)
        for row, (_, custom_id, message) in zip(rows[1:-1], bad):
            self.assertEqual(row["custom_id"], custom_id, row)
            self.assertIn(row["response"]["status_code"], (400, 404))
            self.assertIn(message, row["error"]["message"])
            self.assertEqual(row["error"]["message"], row["response"]["body"]["error"]["message"])
            self.assertTrue(row["error"]["code"])
        self.assertEqual(len({row["id"] for row in rows}), len(rows))
        alone = self.rows()
        self.write([completion("first", "Once upon a time"), completion("last", "The sun")])
        self.run_it("--overwrite")
        texts = [row["response"]["body"]["choices"][0]["text"] for row in self.rows()]
        self.assertEqual([alone[i]["response"]["body"]["choices"][0]["text"] for i in (0, -1)], texts)

    def test_lines_that_are_long_or_written_elsewhere(self):
        text = completion("long", "x" * 300_000)
        with open(self.input, "wb") as file:
            file.write(b"\xef\xbb\xbf" + completion("a", "Once").encode() + b"\r\n \r\n" + text.encode() + b"\n" +
                       completion("b", "Once").encode())  # without an end
        self.run_it("--max-body-bytes", "100000", code=1)
        rows = self.rows()
        self.assertEqual([row["response"]["status_code"] for row in rows], [200, 413, 200])
        self.assertIn("line 3: the line is longer than", rows[1]["error"]["message"])

    def test_the_body_keeps_its_digits(self):
        schema = '{"type": "object", "properties": {"n": {"const": 9007199254740993}}, "required": ["n"], ' \
                 '"additionalProperties": false}'
        body = '{"prompt": "a", "max_tokens": 60, "structured_outputs": {"json": ' + schema + "}}"
        with open(self.input, "w", encoding="utf-8") as file:
            file.write('{"body" :' + body + ', "custom_id": "a", "method": "POST", "url": "/v1/completions"}\n')
        self.run_it()
        text = self.rows()[0]["response"]["body"]["choices"][0]["text"]
        self.assertIn("9007199254740993", text)

    def test_standard_input_and_output(self):
        done = subprocess.run([PAGODA, "run-batch", "--model", MODEL, "-i", "-", "-o", "-"], text=True, timeout=120,
                              input=completion("a", "Once") + "\n", capture_output=True, check=True)
        self.assertEqual(json.loads(done.stdout)["custom_id"], "a")
        # A result comes before the next request does.
        with subprocess.Popen([PAGODA, "run-batch", "--model", MODEL, "-i", "-", "-o", "-"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            for name in ("a", "b"):
                process.stdin.write(completion(name, "Once") + "\n")
                process.stdin.flush()
                self.assertEqual(json.loads(process.stdout.readline())["custom_id"], name)
            process.stdin.close()
            self.assertEqual(process.wait(timeout=60), 0)

    def start(self, *flags):
        return subprocess.Popen(self.command(*flags), stderr=subprocess.PIPE, text=True)

    def wait_for_results(self, process, number):
        for _ in range(6000):
            self.assertIsNone(process.poll())
            if os.path.exists(self.output):
                with open(self.output, "rb") as file:
                    if file.read().count(b"\n") >= number:
                        return
            time.sleep(0.01)
        self.fail("no results")

    def test_an_interrupted_run_goes_on_where_it_was(self):
        requests = [completion(f"r{i}", "Once upon a time", max_tokens=40 + i % 7) for i in range(60)]
        requests[7] = "not json"
        requests[20] = completion("r3", "a custom_id of an earlier run")
        self.write(requests)
        few = ("--max-num-seqs", "2")
        self.run_it(*few, code=1)
        whole = [without_times(row) for row in self.rows()]
        for sign, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130), (signal.SIGTERM, 143)):
            os.remove(self.output)
            with self.start(*few) as process:
                self.wait_for_results(process, 9)
                process.send_signal(sign)
                err = process.stderr.read()
                self.assertEqual(process.wait(timeout=60), code)
            if sign != signal.SIGKILL:
                self.assertIn("interrupted; the same command continues after the", err)
            kept = self.rows()
            self.assertGreaterEqual(len(kept), 9)
            self.assertLess(len(kept), len(whole))
            with open(self.output, "ab") as file:  # as a write that did not come to its end
                file.write(json.dumps(whole[len(kept)], separators=(",", ":")).encode()[:-9])
            self.run_it(*few, code=1)
            self.assertEqual([without_times(row) for row in self.rows()], whole)
            self.assertEqual(self.rows()[:len(kept)], kept)

    def test_a_complete_run_has_nothing_to_do(self):
        self.write([completion("a", "Once")])
        self.run_it()
        before = os.stat(self.output)
        self.run_it("--quantize", "int8")
        self.assertEqual(os.stat(self.output).st_mtime_ns, before.st_mtime_ns)
        with open(self.input, "a", encoding="utf-8") as file:
            file.write(completion("b", "The sun") + "\n")
        self.run_it()
        self.assertEqual([row["custom_id"] for row in self.rows()], ["a", "b"])

    def test_results_of_other_requests_are_left_alone(self):
        self.write([completion("a", "Once"), completion("b", "The sun")])
        self.run_it()
        with open(self.output, encoding="utf-8") as file:
            before = file.read()
        for lines, message in (([completion("a", "Twice"), completion("b", "The sun")], "line 1 is not the result of line 1"),
                               ([completion("b", "The sun"), completion("a", "Once")], "line 1 is not the result of line 1"),
                               ([completion("a", "Once")], "more results than the input file has requests")):
            self.write(lines)
            done = self.run_it(code=2)
            self.assertIn(message, done.stderr)
            self.assertIn("--overwrite", done.stderr)
        with open(self.output, encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        with open(self.output, "w", encoding="utf-8") as file:
            file.write("a text of the user's")  # no line end: not a torn result
        self.assertIn("is not the result", self.run_it(code=2).stderr)
        self.run_it("--overwrite")
        self.assertEqual([row["custom_id"] for row in self.rows()], ["a"])
        for flags in ((), ("--overwrite",)):
            self.assertIn("--output-file is the input file", self.run_it(*flags, code=2, output=self.input).stderr)
        with open(self.input, encoding="utf-8") as file:
            self.assertEqual(file.read(), lines[0] + "\n")

    def test_one_run_at_a_time_writes_to_a_file(self):
        self.write([completion("a", "Once")])
        with open(self.output, "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assertIn("another run writes to the output file", self.run_it(code=2).stderr)

    def test_files_that_cannot_be_used_are_named(self):
        self.write([completion("a", "Once")])
        for flags, message in ((["-i", "/no/such/file", "-o", self.output], "/no/such/file"),
                               (["-i", self.folder.name, "-o", self.output], "directory"),
                               (["-i", self.input, "-o", "/no/such/folder/out"], "/no/such/folder/out"),
                               (["-i", self.input], "--output-file is required"),
                               (["-o", self.output], "--input-file is required")):
            done = subprocess.run([PAGODA, "run-batch", MODEL, *flags], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr)
        if os.path.exists("/dev/full"):
            done = self.run_it(code=1, output="/dev/full")
            self.assertIn("cannot write to /dev/full", done.stderr)

    def test_progress_is_shown_on_a_terminal(self):
        self.write([completion(f"r{i}", "Once") for i in range(8)])
        ours, theirs = pty.openpty()
        process = subprocess.Popen(self.command(), stderr=theirs, stdout=subprocess.DEVNULL)
        os.close(theirs)
        shown = b""
        try:
            while True:
                more = os.read(ours, 4096)
                if not more:
                    break
                shown += more
        except OSError:  # its end, on Linux
            pass
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertTrue(re.search(rb"8 done, [0-9.]+ tokens/s", shown), shown)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
