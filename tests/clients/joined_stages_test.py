#!/usr/bin/env python3
"""Stages of a model on workers that join, as from other hosts: killed, far away or with the wrong flags, every token is
that of a run in one process. Needs the openssl program; standard library only.

usage: joined_stages_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import os
import signal
import subprocess
import threading
import time

import joined_workers
from joined_workers import SLOWNESS, LongWay, OtherHost, Worker, WithWorkers
from ports import free_port
from worker_load import Connection, WorkerServer, lives


def setUpModule():
    joined_workers.set_up()


class JoinedStages(WithWorkers):
    def start_stages(self, *flags, stages=2, spare=0):
        return self.start("--pipeline-parallel-size", str(stages), *flags, workers=stages + spare)

    def pids(self, stages=2):
        return self.server.wait_for(lambda s: len(s["worker_pids"]) == stages, 60 * SLOWNESS)["worker_pids"]

    def worker_of(self, pid):
        (worker,) = [worker for worker in self.workers if pid in worker.child()]
        return worker

    def test_tokens_are_those_of_one_device(self):
        for stages in 2, 3:
            with self.subTest(stages=stages):
                self.start_stages("--max-num-batched-tokens", "256", stages=stages)  # prompts come in chunks, too
                self.assertEqual(len(self.pids(stages)), stages)
                self.assertEqual(self.server.workers(), [])  # none is a child of the server
                self.expect_undisturbed(self.submit())
                self.assertEqual(self.server.stats()["worker_restarts_total"], 0)

    def test_small_pools_preempt_and_swap_as_on_one_device(self):
        for preemption in "recompute", "swap":
            with self.subTest(preemption=preemption):
                self.start_stages("--num-device-blocks", "24", "--num-host-blocks", "60", "--max-model-len", "512",
                                  "--preemption-mode", preemption)
                self.expect_undisturbed(self.submit())
                self.assertGreater(self.server.stats()[f"preemptions_{preemption}_total"], 0)

    def test_a_stage_that_is_killed_loses_nothing(self):
        server = self.start_stages(stages=3, spare=1)
        for deaths, stage in enumerate([0, 1, 2, 1], 1):
            pid = self.pids(3)[stage]
            outcomes = self.submit()
            server.wait_for(lambda s: s["requests_running"] > 0)
            os.kill(pid, signal.SIGKILL)
            self.expect_undisturbed(outcomes)
            stats = server.wait_for(lambda s: s["health"] == "ok")
            self.assertEqual(stats["requests_failed_total"], 0)
            self.assertGreaterEqual(stats["worker_deaths_total"], deaths)

    def test_a_host_that_goes_is_waited_for(self):
        server = self.start_stages()
        gone = self.worker_of(self.pids()[0])
        outcomes = self.submit()
        server.wait_for(lambda s: s["requests_running"] > 0)
        gone.end(signal.SIGKILL)
        server.wait_for(lambda s: s["health"] != "ok")
        time.sleep(1)  # the other stage has loaded again, and waits
        self.assertNotEqual(server.stats()["health"], "ok")
        self.workers.append(self.join())
        self.expect_undisturbed(outcomes)
        self.assertEqual(server.stats()["requests_failed_total"], 0)

    def test_a_stage_that_is_stopped_is_replaced(self):
        self.start_stages("--step-deadline", str(SLOWNESS), spare=1)
        pid = self.pids()[1]
        outcomes = self.submit()
        self.server.wait_for(lambda s: s["requests_running"] > 0)
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: lives(pid) and os.kill(pid, signal.SIGCONT))
        self.expect_undisturbed(outcomes)
        self.assertGreaterEqual(self.server.stats()["worker_hangs_total"], 1)

    def test_one_stands_by_for_each_stage(self):
        server = self.start_stages("--standby-worker", spare=2)
        self.expect_undisturbed(self.submit())
        for _ in range(2):
            pid = self.pids()[0]
            outcomes = self.submit()
            server.wait_for(lambda s: s["requests_running"] > 0)
            os.kill(pid, signal.SIGKILL)
            self.expect_undisturbed(outcomes)
            server.wait_for(lambda s: s["health"] == "ok")

    def test_a_host_far_away_has_a_stage(self):
        try:
            host = OtherHost().__enter__()
        except OSError as error:
            self.skipTest(f"no network of its own: {error}")
        self.addCleanup(host.__exit__)
        self.port = free_port()
        way = LongWay(self.port, 0.001, host="0.0.0.0").__enter__()
        self.addCleanup(way.__exit__)
        far = Worker(way.port, host=host.ENGINE, prefix=host.prefix())
        self.addCleanup(far.end)
        self.workers = [far, self.join()]
        self.server = WorkerServer(joined_workers.pagoda, joined_workers.model, *self.engine_flags(host="0.0.0.0"),
                                   "--pipeline-parallel-size", "2")
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.connection = Connection(self.server.lines)
        self.addCleanup(self.connection.close)
        self.expect_undisturbed(self.submit())
        # The host goes while it computes, and comes back.
        outcomes = self.submit()
        self.server.wait_for(lambda s: s["requests_running"] > 0)
        host.cut()
        self.server.wait_for(lambda s: s["health"] != "ok", 60 * SLOWNESS)
        host.mend()
        self.expect_undisturbed(outcomes)

    def test_the_server_ends_while_it_waits_for_a_stage(self):
        self.port = free_port()
        self.join()
        server = subprocess.Popen([joined_workers.pagoda, "serve", "--model", joined_workers.model, "--worker-processes",
                                   "--pipeline-parallel-size", "2", "--listen", "none", "--http", "127.0.0.1:0",
                                   *self.engine_flags()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.kill)
        loaded = threading.Event()

        def read():
            for line in server.stderr:
                if "is ready" in line or "has joined" in line:
                    loaded.set()

        reader = threading.Thread(target=read)
        reader.start()
        self.assertTrue(loaded.wait(60 * SLOWNESS))
        time.sleep(0.5)
        server.terminate()
        server.wait(30 * SLOWNESS)
        reader.join()
        server.stderr.close()

    def test_ranks_that_share_layers_are_refused_by_name(self):
        self.port = free_port()
        refused = subprocess.run([joined_workers.pagoda, "serve", "--model", joined_workers.model, "--worker-processes",
                                  "--tensor-parallel-size", "2", "--listen", "none", "--http", "127.0.0.1:0",
                                  *self.engine_flags()], capture_output=True, text=True, timeout=60 * SLOWNESS)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("tensor_parallel_size must be 1 with worker_listen: ranks that share each layer are on one host",
                      refused.stderr)


if __name__ == "__main__":
    joined_workers.main()
