#!/usr/bin/env python3
"""Workers that join an engine over TLS, as from other hosts: killed, strangers among them, or with another model, every
token is that of a run in one process. Needs the openssl program; standard library only.

usage: joined_worker_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import joined_workers
from joined_workers import SLOWNESS, OtherHost, WithWorkers, path
from ports import free_port
from worker_load import Connection, WorkerServer, ends, lives


def setUpModule():
    joined_workers.set_up()


def tls(port, who=None):
    """A connection that the engine has accepted, as far as the handshake tells."""
    context = ssl.create_default_context(cafile=path("ca.pem"))
    if who:
        context.load_cert_chain(path(f"{who}.pem"), path(f"{who}.key"))
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname="127.0.0.1")


def send_until_closed(connection, piece, count):
    """Pieces until the other end has closed, or stops reading."""
    connection.settimeout(5)
    try:
        for _ in range(count):
            connection.sendall(piece)
        connection.recv(1)
    except OSError:  # ssl.SSLError is one
        pass
    finally:
        connection.close()


class JoinedWorkers(WithWorkers):
    def serving(self):
        """Whose process serves."""
        (pid,) = self.server.wait_for(lambda s: s["worker_pids"])["worker_pids"]
        (worker,) = [worker for worker in self.workers if pid in worker.child()]
        return worker, pid

    def test_the_engine_waits_for_a_worker_and_starts_none(self):
        server = self.start()
        self.assertEqual(server.workers(), [])
        self.expect_undisturbed(self.submit())
        self.serving()

    def test_the_kv_cache_is_as_large_as_the_workers_host_allows(self):
        if SLOWNESS != 1:
            self.skipTest("a sanitizer needs all of the address space")
        self.port = free_port()
        # Of rows that no host has room for in its share.
        flags = ["--max-num-seqs", "4096", "--kv-cache-memory", "0", "--no-touch-memory"]
        small = self.join(address_space=2 << 30)
        self.server = WorkerServer(joined_workers.pagoda, joined_workers.model, *self.engine_flags(), *flags)
        with self.server as server:
            self.connection = Connection(server.lines)
            blocks = server.stats()["device_blocks_total"]
            self.expect_undisturbed(self.submit())
            self.connection.close()
        small.end()
        self.join()
        with WorkerServer(joined_workers.pagoda, joined_workers.model, *self.engine_flags(), *flags) as server:
            self.assertGreater(server.stats()["device_blocks_total"], 1.5 * blocks)

    def test_times_do_not_depend_on_the_clock_of_the_workers_host(self):
        another_clock = ["unshare", "--time", "--monotonic", "1000000", "--fork", "--kill-child"]
        if subprocess.run([*another_clock, "true"], capture_output=True).returncode != 0:
            self.skipTest("no clock of its own")
        self.start(prefix=another_clock)
        self.addCleanup(self.workers[0].end, signal.SIGKILL)  # unshare holds other signals back
        outcomes = self.submit()
        self.expect_undisturbed(outcomes)
        for outcome in outcomes:
            timing = outcome.done["timing"]
            self.assertLess(0, timing["ttft_ms"])
            self.assertLessEqual(timing["ttft_ms"], timing["total_ms"])
            self.assertLess(timing["total_ms"], 120_000)

    def test_a_worker_that_is_killed_loses_nothing_and_joins_again(self):
        server = self.start(workers=2)
        for deaths in range(1, 5):
            worker, pid = self.serving()
            outcomes = self.submit()
            server.wait_for(lambda s: s["requests_running"] > 0)
            os.kill(pid, signal.SIGKILL)
            self.expect_undisturbed(outcomes)
            stats = server.wait_for(lambda s: s["health"] == "ok")
            self.assertEqual((stats["worker_deaths_total"], stats["requests_failed_total"]), (deaths, 0))
            worker.wait_for_line("has ended")
        # The only one that is left goes with its host; another joins while requests wait.
        worker, pid = self.serving()
        for other in self.workers:
            if other is not worker:
                other.end()
        outcomes = self.submit()
        server.wait_for(lambda s: s["requests_running"] > 0)
        worker.end(signal.SIGKILL)
        server.wait_for(lambda s: s["health"] != "ok")
        self.assertTrue(ends(pid), "the worker still runs after its host process has ended")
        self.workers = [self.join()]
        self.expect_undisturbed(outcomes)
        self.assertEqual(server.stats()["requests_failed_total"], 0)

    def test_a_request_with_which_workers_crash_fails(self):
        server = self.start("--max-num-batched-tokens", "16", "--max-num-seqs", "16", "--no-enable-prefix-caching",
                            workers=2)
        for _ in range(5):  # a machine that is faster than this test lets the request go on
            poison = self.connection.submit({"op": "generate", "prompt_token_ids": [10] * 1000, "max_tokens": 1})
            while not poison.ended.is_set():
                stats = server.wait_for(lambda s: s["health"] == "ok" and s["requests_running"] > 0 or poison.ended.is_set(),
                                        pause=0.001)
                if poison.ended.is_set() or not stats["requests_running"] or not stats["worker_pids"]:
                    break
                dead = stats["worker_pids"][0]
                os.kill(dead, signal.SIGSEGV)
                server.wait_for(lambda s: dead not in s["worker_pids"], pause=0.001)
            self.assertTrue(poison.ended.wait(60))
            if poison.error:
                break
        self.assertEqual(poison.error["code"], "internal")
        self.assertIn("the request crashes workers", poison.error["message"])
        self.expect_undisturbed(self.submit())
        self.assertEqual(server.stats()["requests_failed_total"], 1)

    def test_a_worker_that_crashes_while_it_loads_says_why(self):
        self.port = free_port()
        log = tempfile.TemporaryFile("w+")
        self.addCleanup(log.close)
        engine = subprocess.Popen([joined_workers.pagoda, "serve", "--model", joined_workers.model, "--worker-processes",
                                   "--listen", "none", "--http", "127.0.0.1:0",
                                   *self.engine_flags()], stderr=log, stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: (engine.kill(), engine.wait()))
        worker = self.join()
        deadline = time.monotonic() + 60
        crashed = 0
        while crashed < 3:
            self.assertLess(time.monotonic(), deadline)
            for pid in worker.child():
                try:
                    os.kill(pid, signal.SIGSEGV)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)
            log.seek(0)
            said = log.read()
            crashed = said.count("was killed by signal 11")
        self.assertIn("was killed by signal 11", said)

    def test_a_worker_that_is_stopped_is_replaced(self):
        server = self.start("--step-deadline", "1", workers=2)
        _, pid = self.serving()
        outcomes = self.submit()
        server.wait_for(lambda s: s["requests_running"] > 0)
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: lives(pid) and os.kill(pid, signal.SIGCONT))
        self.expect_undisturbed(outcomes)
        self.assertEqual(server.stats()["worker_hangs_total"], 1)

    def start_beside_another_host(self, *flags):
        """The engine, a worker of the other host that serves, and one of this host that waits."""
        try:
            host = OtherHost().__enter__()
        except OSError as error:
            self.skipTest(f"no network of its own: {error}")
        self.addCleanup(host.__exit__)
        self.port = free_port()
        far = self.join(host=host.ENGINE, prefix=host.prefix())
        self.server = WorkerServer(joined_workers.pagoda, joined_workers.model, *self.engine_flags(host="0.0.0.0"), *flags)
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.connection = Connection(self.server.lines)
        self.addCleanup(self.connection.close)
        self.workers = [far, self.join()]
        self.assertIs(self.serving()[0], far)
        return host, far

    def test_a_host_that_vanishes_without_a_word_is_noticed(self):
        host, far = self.start_beside_another_host()
        pid = self.serving()[1]
        self.expect_undisturbed(self.submit())
        began = time.monotonic()
        host.cut()
        self.server.wait_for(lambda s: s["worker_restarts_total"] == 1, 60)
        self.assertLess(time.monotonic() - began, 30 * SLOWNESS)
        self.expect_undisturbed(self.submit())
        self.assertIsNot(self.serving()[0], far)
        # It has noticed, too, and comes back as soon as it can.
        self.assertTrue(ends(pid, 30))
        host.mend()
        self.workers[1].end()
        self.assertIs(self.serving()[0], far)
        self.expect_undisturbed(self.submit())

    def test_a_host_that_vanishes_while_it_computes_is_noticed_at_the_deadline_of_its_step(self):
        host, far = self.start_beside_another_host("--step-deadline", "1")
        outcomes = self.submit()
        self.server.wait_for(lambda s: s["requests_running"] > 0)
        host.cut()
        self.expect_undisturbed(outcomes)
        self.assertEqual(self.server.stats()["worker_hangs_total"], 1)
        self.assertIsNot(self.serving()[0], far)

    def test_one_stands_by(self):
        server = self.start("--standby-worker", workers=2)
        for deaths in (1, 2):
            _, pid = self.serving()
            outcomes = self.submit()
            server.wait_for(lambda s: s["requests_running"] > 0)
            os.kill(pid, signal.SIGKILL)
            self.expect_undisturbed(outcomes)
            self.assertEqual(server.stats()["worker_deaths_total"], deaths)

    def test_a_worker_ends_when_it_is_told_to_and_with_its_engine_waits_for_another(self):
        server = self.start()
        worker, pid = self.serving()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(30), 0)
        self.assertTrue(ends(pid))
        worker.wait_for_line("cannot connect")
        self.assertEqual(worker.end(), 0)

    def test_who_does_not_fit_is_told_why_and_the_engine_takes_the_next(self):
        self.port = free_port()
        other = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, other)
        copy = os.path.join(other, "model")
        shutil.copytree(joined_workers.model, copy)
        same = self.join("--model", copy, "--threads", "1")
        del same
        with open(os.path.join(copy, "config.json"), "a") as file:
            file.write("\n")
        wrong = self.join("--model", copy)
        absent = self.join("--model", os.path.join(other, "absent"))
        gpu = self.join("--device", "cuda:1")
        strange = self.join(who="stranger")
        self.server = WorkerServer(joined_workers.pagoda, joined_workers.model, *self.engine_flags())

        def make_one_fit():  # which the server waits for
            wrong.wait_for_line("is not the engine's model", 30 * SLOWNESS)
            absent.wait_for_line("absent", 30 * SLOWNESS)
            gpu.wait_for_line("the engine's device is cpu", 30 * SLOWNESS)
            shutil.copy(os.path.join(joined_workers.model, "config.json"), copy)

        mender = threading.Thread(target=make_one_fit)
        mender.start()
        self.addCleanup(mender.join)
        with self.server:
            wrong.wait_for_line("is not the engine's model")
            absent.wait_for_line("absent")
            gpu.wait_for_line("the engine's device is cpu")
            strange.wait_for_line("lost the engine")
            self.connection = Connection(self.server.lines)
            self.expect_undisturbed(self.submit())
            self.connection.close()

    def test_an_engine_that_is_not_the_one_it_says_is_not_joined(self):
        self.port = free_port()
        worker = self.join()
        server = subprocess.Popen([joined_workers.pagoda, "serve", "--model", joined_workers.model, "--worker-processes", "--listen", "127.0.0.1:0",
                                   *self.engine_flags("elsewhere")], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        worker.wait_for_line("cannot verify the engine")
        self.assertEqual(worker.child(), [])

    def test_strangers_harm_nothing(self):
        server = self.start()
        self.expect_undisturbed(self.submit())
        before = self.resident()
        outcomes = self.submit()
        # 10^6 frames of 64 bytes before the handshake, and as many after one without a certificate that counts.
        frames = os.urandom(64) * 1000
        for count in range(1000):
            if count % 10 == 0:
                # Half of a handshake, left open.
                half = socket.create_connection(("127.0.0.1", self.port), 30)
                half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
                self.addCleanup(half.close)
            send_until_closed(socket.create_connection(("127.0.0.1", self.port), 30), frames, 1)
        for who in [None, "stranger"] * 20:
            try:
                connection = tls(self.port, who)
            except OSError:
                continue
            send_until_closed(connection, frames, 50)
        self.expect_undisturbed(outcomes)
        if SLOWNESS == 1:
            self.assertLess(self.resident() - before, 64 << 20)
        self.assertEqual(server.stats()["health"], "ok")
        self.assertEqual(server.stats()["worker_deaths_total"], 0)

    def test_who_has_a_certificate_and_talks_nonsense_is_dropped_when_its_turn_comes(self):
        server = self.start()
        _, pid = self.serving()
        before = self.resident()
        kinds = [b"\xff" * 64, (10).to_bytes(4, "little") + b"\0" * 10, (32 << 20).to_bytes(4, "little") + b"\1" * 60,
                 b"\0\0\0\0" * 16]
        ends = []
        for kind in kinds:  # each waits before the worker that joins again, and sends 250,000 frames
            ends.append(threading.Thread(target=send_until_closed, args=(tls(self.port, "worker"), kind * 1000, 250)))
            ends[-1].start()
        time.sleep(0.5)  # they have joined
        outcomes = self.submit()
        server.wait_for(lambda s: s["requests_running"] > 0)
        os.kill(pid, signal.SIGKILL)
        self.expect_undisturbed(outcomes)
        for end in ends:
            end.join(60)
        stats = server.wait_for(lambda s: s["health"] == "ok")
        self.assertEqual(stats["requests_failed_total"], 0)
        self.assertLessEqual(stats["worker_deaths_total"], 1 + len(kinds))  # some have gone before their turn
        if SLOWNESS == 1:
            self.assertLess(self.resident() - before, 64 << 20)

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def test_flags_that_do_not_fit_are_refused_by_name(self):
        self.port = 1
        engine = ["serve", "--model", joined_workers.model, "--listen", "127.0.0.1:0"]
        good = self.engine_flags()
        joining = ["worker", "--join", "127.0.0.1:1", "--tls-cert", path("worker.pem"), "--tls-key", path("worker.key")]
        for arguments, message in [
                (engine + good, "worker_listen needs worker_processes"),
                (engine + ["--worker-processes", *good[:2]], "worker_tls_cert is needed by worker_listen"),
                (engine + ["--worker-tls-ca", path("ca.pem")], "worker_tls_ca needs worker_listen"),
                (engine + ["--worker-processes", *good[:-1], path("engine.key")], "engine.key is not a certificate"),
                (engine + ["--worker-processes", *good[:-1], path("none.pem")], "cannot read"),
                (engine + ["--worker-processes", "--worker-listen", "nowhere", *good[2:]], "must be HOST:PORT"),
                (joining, "tls_ca is required with join"),
                (joining + ["--tls-ca", path("ca.key")], "ca.key is not a certificate"),
                (joining[:-1] + [path("engine.key"), "--tls-ca", path("ca.pem")], "engine.key is not the private key"),
                (["worker", "--join", "x", *joining[3:], "--tls-ca", path("ca.pem")], "join must be HOST:PORT")]:
            ended = subprocess.run([joined_workers.pagoda, *arguments], capture_output=True, text=True, timeout=60)
            self.assertIn(message, ended.stderr)
            self.assertIn(ended.returncode, (1, 2))


if __name__ == "__main__":
    joined_workers.main()
