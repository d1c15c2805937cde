#!/usr/bin/env python3
"""Tests of --trace: the file is a Chrome trace with a row for each actor, and tools/trace_summary.py reads it.

usage: trace_test.py PAGODA MODEL_DIR TRACE_SUMMARY [unittest arguments]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL, SUMMARY = sys.argv[1:4]
ROWS = ["router", "scheduler", "block manager", "cache engine", "device", "output processor"]
SMALL = ["--model", MODEL, "--threads=1", "--max-num-seqs=16", "--max-num-batched-tokens=64"]


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "trace.json")

    def run_pagoda(self, *args, stdin=""):
        return subprocess.run([PAGODA, *args], input=stdin, capture_output=True, text=True, timeout=120)

    def spans(self):
        with open(self.path, encoding="utf-8") as file:
            trace = json.load(file)
        self.processes = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        self.assertEqual([rows[tid] for tid in sorted(rows)], ROWS)
        spans = {}
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                self.assertGreater(event["ts"], 0)
                self.assertGreaterEqual(event["dur"], 0)
                spans.setdefault((rows[event["tid"]], event["name"]), []).append(event)
        return spans

    def generate(self, *flags):
        prompts = "".join(f"Once upon a time there were {i} foxes\n" for i in range(8))
        done = self.run_pagoda("generate", *SMALL, "--prompts=-", "--max-tokens=40", "--ignore-eos", "--trace", self.path,
                               *flags, stdin=prompts)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.spans()

    def test_every_actor_has_its_spans_and_every_step_is_planned_run_and_told(self):
        # Few blocks, so that groups are swapped.
        spans = self.generate("--num-device-blocks=40", "--num-host-blocks=200", "--block-size=4", "--preemption-mode=swap")
        self.assertEqual(len(spans["router", "admit"]), 8)
        steps = {name: {s["args"]["step"] for s in spans[name]}
                 for name in (("scheduler", "plan step"), ("block manager", "plan memory"), ("scheduler", "apply plan"),
                              ("device", "step"), ("scheduler", "step result"), ("output processor", "outputs"))}
        ran = steps["device", "step"]
        self.assertGreater(len(ran), 40)
        for name, of_actor in steps.items():
            self.assertFalse(ran - of_actor - {max(ran)} if name[0] != "output processor" else set(), name)
        self.assertEqual(sum(s["args"]["tokens"] for s in spans["output processor", "outputs"]), 8 * 40)
        plans = [s["args"] for s in spans["cache engine", "cache plan"]]
        self.assertGreater(sum(p["swap_out"] for p in plans), 0)
        # What comes back may find blocks that are still in the prefix cache.
        self.assertGreater(sum(p["swap_in"] for p in plans), 0)
        self.assertLessEqual(sum(p["swap_in"] for p in plans), sum(p["swap_out"] for p in plans))

    def test_each_worker_process_has_a_row_of_its_own(self):
        device = self.generate("--worker-processes")["device", "step"]
        self.assertEqual(len(self.processes), 2)
        engine, worker = sorted(self.processes)
        self.assertEqual(self.processes[engine], "pagoda")
        self.assertRegex(self.processes[worker], r"^the worker process \d+$")
        self.assertEqual({step["pid"] for step in device}, {worker})
        (load,) = self.spans()["device", "load"]
        self.assertEqual(self.processes[worker], f"the worker process {load['args']['pid']}")
        self.assertLessEqual(load["ts"] + load["dur"], device[0]["ts"])

    def test_the_summary_reads_it_at_both_depths(self):
        for depth in (1, 2):
            self.generate(f"--pipeline-depth={depth}")
            result = json.loads(subprocess.run([sys.executable, SUMMARY, self.path], capture_output=True, text=True,
                                               check=True).stdout)
            self.assertGreater(result["steps"], 30)
            for key in ("step_us", "plan_us", "plan_latency_us", "message_us", "device_idle_us", "device_idle_percent"):
                self.assertGreaterEqual(result[key], 0, key)
            self.assertLessEqual(result["device_idle_percent"], 100)

    def test_bench_and_serve_write_it_too(self):
        done = self.run_pagoda("bench", "throughput", *SMALL, "--num-prompts=3", "--input-len=8", "--output-len=4",
                               "--trace", self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.spans()["device", "step"])
        os.remove(self.path)
        server = subprocess.Popen([PAGODA, "serve", *SMALL, "--listen=127.0.0.1:0", "--trace", self.path],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assertIn("listening on", server.stdout.readline())
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=60), 0)
        server.stdout.close()
        self.spans()

    def test_spans_beyond_the_limit_are_counted(self):
        self.generate("--trace-max-events=10")
        with open(self.path, encoding="utf-8") as file:
            facts = json.load(file)["otherData"]
        self.assertEqual(facts["events"], 10)
        self.assertGreater(facts["dropped_events"], 100)

    def test_a_file_that_cannot_be_written_is_named_with_its_flag(self):
        path = os.path.join(os.path.dirname(self.path), "no", "such", "folder", "trace.json")
        done = self.run_pagoda("generate", *SMALL, "--prompt", "a", "--trace", path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("trace", done.stderr)
        self.assertIn(path, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
