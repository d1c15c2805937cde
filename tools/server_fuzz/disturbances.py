"""Disturbances of a server while its clients wait."""
import os
import signal
import subprocess
import threading
import time

from worker_load import children, lives

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
WITH_CRASHES = (*FROM_OUTSIDE, *[signal.SIGSEGV] * 4)


class WorkerKiller(threading.Thread):
    """Sends signals to the worker processes of the server of a slot, including those that load or stand by."""

    def __init__(self, slot, rng, signals, most):
        super().__init__(daemon=True)
        self.slot, self.rng, self.signals, self.most = slot, rng, signals, most
        self.stopped = threading.Event()
        self.sent = []

    def run(self):
        while len(self.sent) < self.most and not self.stopped.wait(self.rng.choice([0.02, 0.1, 0.3, 0.8])):
            self.kill_one()

    def kill_one(self):
        server = self.slot.server
        workers = [pid for pid, state in children(server.process.pid) if state != "Z"] if server else []
        if not workers:
            return
        name = self.rng.choice(self.signals)
        try:
            os.kill(self.rng.choice(workers), name)
            self.sent.append(name)
        except ProcessLookupError:
            pass

    def stop(self):
        self.stopped.set()
        self.join()


class Restarts:
    """Kills a server, or makes it end, and starts another that recovers its requests."""

    def __init__(self, slot, make, rng):
        self.slot, self.make, self.rng = slot, make, rng
        self.num_restarts = 0

    def run(self, is_done):
        """Restarts the server a few times while clients wait. Returns the problems."""
        problems = []
        for number in range(most := self.rng.choice([1, 2, 4])):
            deadline = time.monotonic() + self.rng.choice([0.05, 0.3, 1, 2])
            while time.monotonic() < deadline and not is_done():
                time.sleep(0.01)
            problems += self.restart(is_last=number == most - 1)
        return problems

    def restart(self, is_last):
        server = self.slot.server
        workers = [pid for pid, _ in children(server.process.pid)]
        self.slot.set(None, is_final=False)
        if self.rng.random() < 0.7:
            problems = kill(server)
        else:
            problems = end(server)
        for _ in range(self.rng.choice([0, 0, 1])):
            kill_while_it_starts(self.make(), self.rng.random() * 0.6)
        problems += [f"the worker {pid} outlives its server" for pid in workers if not ends_soon(pid)]
        self.slot.set(self.make().__enter__(), is_final=is_last)
        self.num_restarts += 1
        return problems


def kill(server):
    server.process.kill()
    server.process.wait()
    server.process.stdout.close()
    return []


def end(server):
    try:
        server.__exit__()
    except Exception as problem:  # noqa: the round reports it
        return [f"when the server was to end: {problem!r}"]
    return []


def kill_while_it_starts(server, seconds):
    process = subprocess.Popen(server.command, stdout=subprocess.PIPE, stderr=server.log, text=True)
    time.sleep(seconds)
    process.kill()
    process.wait()
    process.stdout.close()


def ends_soon(pid, seconds=10):
    deadline = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)
