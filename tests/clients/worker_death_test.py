#!/usr/bin/env python3
"""Worker processes that are killed, stopped or too slow under load: every token is that of a run that nobody disturbed.
Standard library only.

usage: worker_death_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import os
import signal
import sys
import tempfile
import time
import unittest

from worker_load import PROMPTS, Connection, WorkerServer, ends, request, run

SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers

pagoda = model = None
expected = {}  # by request number and tokens


def setUpModule():
    with WorkerServer(pagoda, model, "--no-worker-processes") as server:  # nothing of them has a part in what is right
        connection = Connection(server.lines)
        for max_tokens in (80, 300):
            outcomes = run(connection, [request(i, max_tokens) for i in range(12)])
            for i, outcome in enumerate(outcomes):
                assert outcome.error is None, outcome.error
                expected[i, max_tokens] = outcome.tokens()
        connection.close()


class Workers(unittest.TestCase):
    def start(self, *flags):
        server = WorkerServer(pagoda, model, *flags)
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.connection = Connection(server.lines)
        self.addCleanup(self.connection.close)
        return server

    def submit(self, max_tokens=300):
        return [self.connection.submit(request(i, max_tokens)) for i in range(12)]

    def expect_undisturbed(self, outcomes, max_tokens=300):
        for i, outcome in enumerate(outcomes):
            self.assertTrue(outcome.ended.wait(120), f"request {i} did not end")
            self.assertIsNone(outcome.error, f"request {i}")
            self.assertEqual(outcome.tokens(), expected[i, max_tokens], f"request {i}")
        self.assertEqual(self.connection.problems, [])

    def expect_one_death(self, server, dead):
        stats = server.wait_for(lambda s: s["worker_pids"] and s["worker_pids"] != [dead] and s["health"] == "ok")
        self.assertEqual((stats["worker_deaths_total"], stats["worker_hangs_total"]), (1, 0))
        self.assertEqual(stats["worker_restarts_total"], 1)
        self.assertEqual(stats["worker_pids"], server.workers())
        self.assertEqual(stats["requests_failed_total"], 0)
        self.assertEqual(server.zombies(), [])

    def test_an_idle_worker_that_is_killed_is_replaced(self):
        server = self.start()
        dead = server.kill_worker()
        self.expect_one_death(server, dead)
        self.expect_undisturbed(self.submit())

    def test_a_worker_that_is_killed_while_it_reads_prompts_loses_nothing(self):
        server = self.start("--max-num-batched-tokens", "16", "--max-num-seqs", "12")
        outcomes = self.submit()
        server.wait_for(lambda s: s["requests_running"] > 0)
        dead = server.kill_worker()
        self.expect_undisturbed(outcomes)
        self.expect_one_death(server, dead)

    def test_a_worker_that_is_killed_while_it_decodes_loses_nothing(self):
        for depth in ("1", "2"):
            server = self.start("--pipeline-depth", depth)
            outcomes = self.submit()
            server.wait_for(lambda s: s["generation_tokens_total"] > 100)
            dead = server.kill_worker()
            self.expect_undisturbed(outcomes)
            self.expect_one_death(server, dead)

    def test_a_worker_that_is_killed_while_blocks_are_swapped_loses_nothing(self):
        server = self.start("--num-device-blocks", "90", "--num-host-blocks", "200", "--block-size", "8",
                            "--preemption-mode", "swap", "--max-model-len", "512")
        outcomes = self.submit()
        server.wait_for(lambda s: s["preemptions_swap_total"] > 0 and s["requests_swapped"] > 0)
        dead = server.kill_worker()
        self.expect_undisturbed(outcomes)
        self.expect_one_death(server, dead)

    def test_the_kv_cache_outlives_a_worker_that_is_killed_but_not_one_that_crashes(self):
        # About 3,000 tokens of 18 sequences are in blocks of 32; of each at most one block is not whole.
        for sig, least, most in ((signal.SIGKILL, 0, 18 * 36), (signal.SIGSEGV, 2000, 10**9)):
            server = self.start("--block-size", "32")
            outcomes = self.submit()
            server.wait_for(lambda s: s["generation_tokens_total"] > 3000)
            dead = server.kill_worker(sig)
            self.expect_undisturbed(outcomes)
            self.expect_one_death(server, dead)
            stats = server.stats()
            self.assertGreaterEqual(stats["recomputed_tokens_total"], least)
            self.assertLessEqual(stats["recomputed_tokens_total"], most)
            gaps = [b - a for outcome in outcomes for a, b in zip(outcome.times, outcome.times[1:])]
            self.assertGreater(stats["worker_pause_s_total"], 0)
            self.assertLess(stats["worker_pause_s_total"], max(gaps) + 1)

    def test_a_worker_whose_swapped_blocks_are_in_a_file_loses_nothing_and_is_idle_when_there_is_no_work(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start("--swap-dir", folder, "--num-device-blocks", "90", "--num-host-blocks", "200",
                                "--block-size", "8", "--preemption-mode", "swap", "--max-model-len", "512")
            for kill in (False, True):
                outcomes = self.submit()
                server.wait_for(lambda s: s["requests_running"] > 0)
                if kill:
                    server.kill_worker()
                self.expect_undisturbed(outcomes)
            (pid,) = server.workers()
            before = self.cpu_ticks(pid)
            time.sleep(1)
            self.assertLess(self.cpu_ticks(pid) - before, 0.3 * os.sysconf("SC_CLK_TCK"), "it does something")

    def cpu_ticks(self, pid):
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def test_workers_share_the_copies_of_their_weights(self):
        # What one process has quantised the next ones map, and no process may write to it.
        for flags in (["--quantize", "int8"], ["--dtype", "float16", "--weight-memory", "copied"]):
            with WorkerServer(pagoda, model, "--no-worker-processes", *flags) as server:
                connection = Connection(server.lines)
                undisturbed = [outcome.tokens() for outcome in run(connection, [request(i) for i in range(12)])]
                connection.close()
            server = self.start(*flags, "--standby-worker")
            for deaths, sig in enumerate((signal.SIGKILL, signal.SIGSEGV, signal.SIGKILL), 1):
                self.standby(server)
                outcomes = self.submit(80)
                server.wait_for(lambda s: s["requests_running"] > 0)
                server.kill_worker(sig)
                for i, outcome in enumerate(outcomes):
                    self.assertTrue(outcome.ended.wait(120))
                    self.assertEqual(outcome.tokens(), undisturbed[i], f"request {i}")
                # With a sanitizer a process works on while it reports its crash.
                stats = server.wait_for(lambda s: s["health"] == "ok" and s["worker_deaths_total"] >= deaths)
                self.assertEqual((stats["worker_deaths_total"], stats["requests_failed_total"]), (deaths, 0))
            self.standby(server)
            deadline = time.monotonic() + 30
            while (maps := self.maps_of_weights(server)) != {"r--s"}:  # the one that stands by may still load
                self.assertLess(time.monotonic(), deadline, maps)
                time.sleep(0.05)

    def maps_of_weights(self, server):
        """How the workers have them mapped."""
        maps = set()
        for pid in server.workers():
            with open(f"/proc/{pid}/maps") as file:
                maps |= {line.split()[1] for line in file if "memfd:pagoda-weights" in line} or {"not at all"}
        return maps

    def standby(self, server):
        (serving,) = server.stats()["worker_pids"]
        deadline = time.monotonic() + 30
        while len(server.workers()) < 2:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        (standby,) = set(server.workers()) - {serving}
        return standby

    def test_a_worker_that_stands_by_takes_the_place_of_one_that_dies(self):
        server = self.start("--standby-worker")
        for num_deaths in (1, 2, 3):
            standby = self.standby(server)
            outcomes = self.submit(80)
            server.wait_for(lambda s: s["requests_running"] > 0)
            server.kill_worker()
            self.expect_undisturbed(outcomes, 80)
            stats = server.wait_for(lambda s: s["worker_pids"] == [standby] and s["health"] == "ok")
            self.assertEqual((stats["worker_deaths_total"], stats["requests_failed_total"]), (num_deaths, 0))
        self.assertEqual(server.zombies(), [])

    def test_a_worker_that_stands_by_may_die_too(self):
        server = self.start("--standby-worker")
        for sig in (signal.SIGKILL, signal.SIGSTOP):
            standby = self.standby(server)
            os.kill(standby, sig)
            outcomes = self.submit()
            server.wait_for(lambda s: s["requests_running"] > 0)
            server.kill_worker()
            self.expect_undisturbed(outcomes)
            stats = server.wait_for(lambda s: s["health"] == "ok" and s["worker_pids"])
            self.assertNotIn(standby, stats["worker_pids"])
            self.assertEqual(stats["requests_failed_total"], 0)
        self.assertEqual(server.zombies(), [])

    def test_a_worker_that_is_killed_while_it_loads_is_replaced(self):
        server = self.start()
        outcomes = self.submit()
        server.wait_for(lambda s: s["generation_tokens_total"] > 100)
        first = server.kill_worker()
        deadline = time.monotonic() + 10
        while not (fresh := [pid for pid in server.workers() if pid != first]):
            self.assertLess(time.monotonic(), deadline)
        os.kill(fresh[0], signal.SIGKILL)
        self.expect_undisturbed(outcomes)
        self.assertNotIn(fresh[0], server.stats()["worker_pids"])
        self.assertEqual(server.zombies(), [])

    def test_a_drain_ends_well_though_the_worker_is_killed(self):
        server = self.start()
        outcomes = self.submit()
        server.wait_for(lambda s: s["generation_tokens_total"] > 100)
        server.process.send_signal(signal.SIGTERM)
        while server.get("/ready")[0] == 200:
            pass
        server.kill_worker()
        self.expect_undisturbed(outcomes)
        self.assertEqual(server.process.wait(30), 0)

    def test_workers_that_die_again_and_again_leave_nothing_behind(self):
        signals = (signal.SIGSEGV, signal.SIGSTOP, signal.SIGKILL)
        for flags in ((), ("--standby-worker",)):
            server = self.start(*flags)
            self.expect_undisturbed(self.submit(80), 80)
            before = self.held_by(server)
            for sig in signals:
                outcomes = self.submit(80)
                server.wait_for(lambda s: s["requests_running"] > 0)
                server.kill_worker(sig)
                self.expect_undisturbed(outcomes, 80)
            if flags:
                self.standby(server)
            stats = server.wait_for(lambda s: s["health"] == "ok" and s["worker_pids"])
            self.assertEqual((stats["worker_deaths_total"], stats["worker_hangs_total"]), (len(signals) - 1, 1))
            self.assertEqual(stats["requests_failed_total"], 0)
            self.assertEqual(len(server.workers()), 2 if flags else 1)
            self.assertEqual(server.zombies(), [])
            deadline = time.monotonic() + 10 * SLOWNESS
            held = self.held_by(server)
            while ((held["threads"] > before["threads"] or len(held["descriptors"]) > len(before["descriptors"]))
                   and time.monotonic() < deadline):  # a thread may be about to end, and the connection of a request
                time.sleep(0.05)
                held = self.held_by(server)
            self.assertLessEqual(len(held["descriptors"]), len(before["descriptors"]),
                                 f"{before['descriptors']} became {held['descriptors']}")
            self.assertLessEqual(held["threads"], before["threads"])
            if SLOWNESS == 1:  # a sanitizer keeps what was freed
                self.assertLess(held["resident"], before["resident"] + (32 << 20))  # the KV cache has more

    def held_by(self, server):
        with open(f"/proc/{server.process.pid}/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {"descriptors": server.descriptors(), "resident": resident,
                "threads": len(os.listdir(f"/proc/{server.process.pid}/task"))}

    def test_a_stopped_worker_is_told_by_health_and_replaced(self):
        server = self.start()
        for busy in (False, True):
            outcomes = self.submit() if busy else []
            if busy:
                server.wait_for(lambda s: s["requests_running"] > 0)
            stopped = server.kill_worker(signal.SIGSTOP)
            deadline = time.monotonic() + 1
            while (answer := server.get("/health"))[0] == 200:
                self.assertLess(time.monotonic(), deadline, "not told within a second")
            self.assertEqual(answer[0], 503)
            self.assertIn(f"the worker process {stopped} hangs".encode(), answer[1])
            stats = server.wait_for(lambda s: s["health"] == "ok")
            self.assertEqual(stats["worker_hangs_total"], 2 if busy else 1)
            self.assertEqual(server.get("/health")[0], 200)
            self.expect_undisturbed(outcomes)
        self.assertEqual(server.stats()["worker_deaths_total"], 0)
        self.assertEqual(server.zombies(), [])

    def test_a_step_that_misses_its_deadline_is_a_hang(self):
        # A step of so many tokens takes longer than the deadline, however often it is tried: its request fails alone.
        server = self.start("--step-deadline", str(0.015 * SLOWNESS), "--max-num-batched-tokens", "8192", "--max-num-seqs", "64",
                            "--threads", "1")
        slow = [self.connection.submit({"op": "generate", "prompt_token_ids": [10 + i] * 1000, "prompt_logprobs": 20,
                                        "max_tokens": 50}) for i in range(2)]
        for outcome in slow:
            self.assertTrue(outcome.ended.wait(60 * SLOWNESS))
            self.assertEqual(outcome.error["code"], "internal")
            self.assertIn("the request crashes workers", outcome.error["message"])
        stats = server.wait_for(lambda s: s["health"] == "ok")
        self.assertGreaterEqual(stats["worker_hangs_total"], 3)
        self.assertEqual(stats["worker_deaths_total"], 0)
        for _ in range(5):  # a busy machine may let a short step wait as long
            (after,) = run(self.connection, [{"op": "generate", "prompt": PROMPTS[0], "max_tokens": 3}])
            if after.error is None:
                break
        self.assertIsNone(after.error)

    def test_a_request_with_which_workers_crash_fails(self):
        server = self.start("--max-num-batched-tokens", "16", "--max-num-seqs", "16", "--no-enable-prefix-caching")
        for _ in range(5):  # a machine that is faster than this test lets the request go on
            poison = self.connection.submit({"op": "generate", "prompt_token_ids": [10] * 1000, "max_tokens": 1})
            while not poison.ended.is_set():
                stats = server.wait_for(lambda s: s["health"] == "ok" and s["requests_running"] > 0 or poison.ended.is_set(),
                                        pause=0.001)
                if poison.ended.is_set() or not stats["requests_running"]:
                    break
                dead = server.kill_worker(signal.SIGSEGV)
                server.wait_for(lambda s: dead not in s["worker_pids"], pause=0.001)
            self.assertTrue(poison.ended.wait(30))
            if poison.error:
                break
        self.assertEqual(poison.error["code"], "internal")
        self.assertIn("the request crashes workers", poison.error["message"])
        self.expect_undisturbed([self.connection.submit(request(i, 80)) for i in range(12)], 80)
        self.assertEqual(server.stats()["requests_failed_total"], 1)

    def test_requests_that_outlive_many_workers_are_not_held_for_their_reason(self):
        server = self.start()
        outcomes = self.submit()
        for _ in range(4):
            told = sum(len(outcome.times) for outcome in outcomes)
            while sum(len(outcome.times) for outcome in outcomes) < told + 300:
                if all(outcome.ended.is_set() for outcome in outcomes):
                    break
                time.sleep(0.001)
            server.kill_worker()
            server.wait_for(lambda s: s["health"] == "ok")
        self.expect_undisturbed(outcomes)
        self.assertEqual(server.stats()["requests_failed_total"], 0)

    def test_a_worker_ends_with_its_engine(self):
        for sig in (signal.SIGKILL, signal.SIGTERM):
            server = self.start()
            (pid,) = server.workers()
            server.process.send_signal(sig)
            server.exit_code = server.process.wait(30)
            self.assertEqual(server.exit_code, -signal.SIGKILL if sig == signal.SIGKILL else 0)
            self.assertTrue(ends(pid, 1), "the worker lives on")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
