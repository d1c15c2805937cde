#!/usr/bin/env python3
"""Tests of the command as a service: what it tells its service manager, and what its unit allows. Standard library only;
what needs systemd-analyze is skipped without it (77 where that is all that was asked for).

usage: service_unit_test.py PAGODA MODEL_DIR SOURCE_DIR [unittest arguments]
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from skipping_main import skipping_main  # noqa: E402

PAGODA, MODEL, SOURCE = map(os.path.abspath, sys.argv[1:4])
UNIT = os.path.join(SOURCE, "packaging", "systemd", "pagoda.service.in")
GPU = os.path.join(SOURCE, "packaging", "systemd", "gpu.conf")
SECONDS = 120
MOST_EXPOSURE = 3.0


class Notification(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "notify")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(self.path)
        self.manager.settimeout(SECONDS)
        self.addCleanup(self.manager.close)

    def start(self, **environment):
        process = subprocess.Popen([PAGODA, "serve", MODEL, "--http", "127.0.0.1:0", "--listen", "none",
                                    "--no-touch-memory", "--log-level", "warn"], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "NOTIFY_SOCKET": self.path, **environment})

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def heard(self):
        return self.manager.recv(4096).decode()

    def test_it_is_ready_when_it_serves_and_tells_that_it_stops(self):
        process = self.start()
        self.assertRegex(self.heard(), r"\AREADY=1\nSTATUS=serving \S+\n\Z")
        host, port = re.fullmatch(r"http on (.*):(\d+)\n", process.stdout.readline()).groups()
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
        process.send_signal(signal.SIGTERM)
        self.assertRegex(self.heard(), r"\ASTOPPING=1\nSTATUS=.*\nEXTEND_TIMEOUT_USEC=42000000\n\Z")
        self.assertEqual(process.wait(SECONDS), 0)

    def test_it_gives_signs_of_life_while_a_watchdog_wants_them(self):
        process = self.start(WATCHDOG_USEC="200000")
        self.assertIn("READY=1", self.heard())
        for _ in range(5):
            self.assertEqual(self.heard(), "WATCHDOG=1\n")
        process.send_signal(signal.SIGSTOP)
        self.manager.settimeout(1)
        with self.assertRaises(TimeoutError):
            while True:
                self.heard()

    def test_a_server_that_cannot_start_is_never_ready(self):
        process = subprocess.run([PAGODA, "serve", "/no/such/folder", "--listen", "127.0.0.1:0"], capture_output=True, timeout=SECONDS,
                                 env={**os.environ, "NOTIFY_SOCKET": self.path}, check=False)
        self.assertEqual(process.returncode, 2)
        self.manager.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.heard()


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Unit(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.unit = os.path.join(self.folder.name, "pagoda.service")
        with open(UNIT, encoding="utf-8") as file:
            text = file.read()
        for name, value in (("COMMAND", PAGODA), ("CONFIG", "/etc/pagoda/serve.json"), ("DOC_DIR", "/usr/share/doc/pagoda")):
            text = text.replace(f"@PAGODA_{name}@", value)
        self.assertNotRegex(text, r"@\w+@")
        with open(self.unit, "w", encoding="utf-8") as file:
            file.write(text)

    def exposure(self):
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", self.unit],
                              capture_output=True, text=True, timeout=SECONDS)
        found = re.search(r"Overall exposure level for pagoda\.service: ([0-9.]+)", done.stdout)
        self.assertTrue(found, done.stdout + done.stderr)
        return float(found[1])

    def test_it_may_do_little(self):
        self.assertLessEqual(self.exposure(), MOST_EXPOSURE)

    def test_it_may_do_little_with_a_gpu_too(self):
        with open(GPU, encoding="utf-8") as gpu, open(self.unit, "a", encoding="utf-8") as unit:
            unit.write(gpu.read())
        self.assertLessEqual(self.exposure(), MOST_EXPOSURE)

    def test_systemd_understands_it(self):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", self.unit], capture_output=True, text=True,
                              timeout=SECONDS)
        complaints = [line for line in done.stderr.splitlines() if "pagoda" in line]
        self.assertEqual(complaints, [], done.stderr)


if __name__ == "__main__":
    skipping_main("__main__", *sys.argv[4:])
