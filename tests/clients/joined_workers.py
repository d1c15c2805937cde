"""Workers that join an engine over TLS, as from other hosts: their certificates, processes and hosts, for tests. Needs the
openssl program; standard library only.
"""
import contextlib
import os
import queue
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from ports import free_port
from worker_load import Connection, WorkerServer, children, request, run

SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers, which keep what was freed

pagoda = model = None
expected = {}  # by request number
files = None  # a folder of keys and certificates


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], cwd=files, check=True, capture_output=True)


def make_ca(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def make_certificate(ca, name, hosts):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={hosts}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial",
            "-days", "1", "-copy_extensions", "copy", "-out", f"{name}.pem")


def path(name):
    return os.path.join(files, name)


def make_certificates():
    """Makes the certificates of an engine, of a worker and of a stranger. Returns their folder, which the caller removes."""
    global files
    files = tempfile.mkdtemp()
    make_ca("ca")
    make_ca("strange-ca")
    make_certificate("ca", "engine", f"IP:127.0.0.1,IP:{OtherHost.ENGINE},DNS:localhost")
    make_certificate("ca", "elsewhere", "DNS:elsewhere.example")
    make_certificate("ca", "worker", "DNS:worker")
    make_certificate("strange-ca", "stranger", "DNS:stranger")
    return files


def engine_flags(port, who="engine", host="127.0.0.1"):
    """Returns the flags of an engine whose workers join."""
    return ["--worker-listen", f"{host}:{port}", "--worker-tls-cert", path(f"{who}.pem"), "--worker-tls-key",
            path(f"{who}.key"), "--worker-tls-ca", path("ca.pem")]


def set_up():
    """Makes the certificates, and runs the requests undisturbed. For setUpModule()."""
    unittest.addModuleCleanup(shutil.rmtree, make_certificates())
    with WorkerServer(pagoda, model, "--no-worker-processes") as server:
        connection = Connection(server.lines)
        for i, outcome in enumerate(run(connection, [request(i) for i in range(12)])):
            assert outcome.error is None, outcome.error
            expected[i] = outcome.tokens()
        connection.close()


class Worker:
    """pagoda worker --join, with what it logs."""

    def __init__(self, port, *flags, host="127.0.0.1", who="worker", address_space=None, prefix=()):
        self.lines = []
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        self.process = subprocess.Popen(
            [*prefix, pagoda, "worker", "--join", f"{host}:{port}", "--tls-cert", path(f"{who}.pem"), "--tls-key",
             path(f"{who}.key"), "--tls-ca", path("ca.pem"), *flags],
            stderr=subprocess.PIPE, text=True, preexec_fn=limit if address_space else None)
        self.thread = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.thread.start()

    def child(self):
        """The process that works, or would."""
        return [pid for pid, state in children(self.process.pid) if state != "Z"]

    def wait_for_line(self, part, seconds=30):
        deadline = time.monotonic() + seconds
        while not any(part in line for line in list(self.lines)):
            assert time.monotonic() < deadline, f"{part!r} is not in {self.lines}"
            time.sleep(0.01)

    def end(self, sig=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(30)
        self.thread.join(30)
        self.process.stderr.close()
        return code


class OtherHost:
    """A network of its own with one cable to this one, which can be cut: `with OtherHost() as host`. Raises OSError where
    that cannot be had."""

    ENGINE, WORKER = "198.18.77.1", "198.18.77.2"  # of a range that is for tests (RFC 2544)

    def __enter__(self):
        self.name, self.cable = f"pagoda-{os.getpid()}", f"pagoda{os.getpid()}"
        try:
            self.ip("netns", "add", self.name)
            self.ip("link", "add", self.cable, "type", "veth", "peer", "name", "engine", "netns", self.name)
            self.ip("addr", "add", f"{self.ENGINE}/30", "dev", self.cable)
            self.ip("link", "set", self.cable, "up")
            self.ip("-n", self.name, "addr", "add", f"{self.WORKER}/30", "dev", "engine")
            self.ip("-n", self.name, "link", "set", "engine", "up")
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "link", "del", self.cable], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)

    def ip(self, *arguments):
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(done.stderr)

    def prefix(self):
        return ["ip", "netns", "exec", self.name]

    def cut(self):
        self.ip("link", "set", self.cable, "down")

    def mend(self):
        self.ip("link", "set", self.cable, "up")


class LongWay:
    """A port whose connections go on to another port of this host, with a delay each way: `with LongWay(port, 0.001)`."""

    def __init__(self, port, seconds, host="127.0.0.1"):
        self.target, self.seconds = port, seconds
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.ends = []

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        for end in self.ends:
            end.close()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                if self.listener.fileno() < 0:
                    return
                here.close()  # nobody listens there
                continue
            for end in here, there:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ends += [here, there]
            self.pass_on(here, there)
            self.pass_on(there, here)

    def pass_on(self, source, target):
        pieces = queue.SimpleQueue()  # (time to send, bytes); no bytes: the source has ended

        def read():
            data = b"-"
            while data:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                pieces.put((time.monotonic() + self.seconds, data))

        def write():
            data = b"-"
            while data:
                due, data = pieces.get()
                time.sleep(max(0, due - time.monotonic()))
                try:
                    target.sendall(data)
                except OSError:
                    break
            for end in source, target:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        for work in read, write:
            threading.Thread(target=work, daemon=True).start()


class WithWorkers(unittest.TestCase):
    """A server whose workers join, and requests whose tokens are known."""

    def start(self, *flags, workers=1, prefix=()):
        self.port = free_port()
        self.workers = [self.join(prefix=prefix) for _ in range(workers)]
        self.server = WorkerServer(pagoda, model, *self.engine_flags(), *flags)
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.connection = Connection(self.server.lines)
        self.addCleanup(self.connection.close)
        return self.server

    def engine_flags(self, *who, **where):
        return engine_flags(self.port, *who, **where)

    def join(self, *flags, **options):
        worker = Worker(self.port, *flags, **options)
        self.addCleanup(worker.end)
        return worker

    def submit(self):
        return [self.connection.submit(request(i)) for i in range(12)]

    def expect_undisturbed(self, outcomes):
        for i, outcome in enumerate(outcomes):
            self.assertTrue(outcome.ended.wait(120), f"request {i} was lost")
            self.assertIsNone(outcome.error)
            self.assertEqual(outcome.tokens(), expected[i])
        self.assertEqual(self.connection.problems, [])


def main():
    global pagoda, model
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    if shutil.which("openssl") is None:
        print("no openssl program: skipped")
        sys.exit(77)
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
