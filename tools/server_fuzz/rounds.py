"""One round: sends requests to an undisturbed server one by one, and to a disturbed one at once, and compares."""
import json
import os
import random
import subprocess
import time
from dataclasses import dataclass, field

from .clients import PATIENCE_S, HttpClient, LineClient, LineConnection, ServerSlot, ask_lines, leave_early
from .disturbances import FROM_OUTSIDE, WITH_CRASHES, Restarts, WorkerKiller, end
from .generator import Limits, draw_request
from .judge import Judge
from .setups import AMPLE_FLAGS, KINDS, VARIANTS, add_files, draw_setup, make_variant, variants_of
from server import Server
from worker_load import children

NUM_CONNECTIONS = 4
MAX_KILLS = 15
MAX_CRASHES = 10  # number of signals if workers crash: after each crash requests run in turns


@dataclass
class Options:
    """Settings of the command line for all rounds."""
    pagoda: str
    model: str
    kinds: tuple = KINDS
    variants: tuple = VARIANTS
    num_requests: int = 0  # 0: drawn
    only_requests: tuple = ()  # ids; none: all
    flags: tuple = ()  # additional flags of the disturbed server


@dataclass
class Report:
    """Results of a round."""
    seed: int
    setup: object = None
    problems: list = field(default_factory=list)
    num_requests: int = 0
    counts: dict = field(default_factory=dict)
    seconds: float = 0


class NamedServer(Server):
    """A server of both protocols that knows the name of its model."""

    def __enter__(self):
        super().__enter__()
        self.model = self.json("GET", "/v1/models")["data"][0]["id"]
        return self


class Round:
    def __init__(self, seed, options, folder):
        self.seed, self.options, self.folder = seed, options, folder
        self.report = Report(seed)
        self.problems = self.report.problems
        variants = [v for v in variants_of(options.model) if v in options.variants] or ["plain"]
        kind = options.kinds[seed % len(options.kinds)]
        self.setup = self.report.setup = draw_setup(self.rng("setup"), kind, variants)
        add_files(self.rng("files"), self.setup, folder)
        self.model, flags = make_variant(options.model, self.setup.variant, self.subfolder("model"))
        self.setup.shared += flags
        self.slot = ServerSlot()

    def rng(self, purpose):
        """Returns separate draws for each purpose, so that a change of one does not change the others."""
        return random.Random(f"{self.seed}/{purpose}")

    def subfolder(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def server(self, flags, log_name):
        log = open(os.path.join(self.folder, log_name), "a")
        return NamedServer(self.options.pagoda, self.model, *self.setup.shared, *flags, json_lines=True, log=log)

    def disturbed_server(self):
        return self.server([*self.setup.flags, *self.options.flags], "disturbed.log")

    def run(self):
        begin = time.monotonic()
        try:
            self.ask_undisturbed()
            self.run_disturbed()
            self.replay()
        except Exception as problem:  # noqa: a finding like others
            self.problems.append(f"the round ended early: {problem!r}; {self.end_of_logs()}")
        self.report.seconds = time.monotonic() - begin
        return self.report

    def end_of_logs(self):
        texts = []
        for name in ("ample.log", "disturbed.log"):
            path = os.path.join(self.folder, name)
            if os.path.exists(path):
                with open(path) as file:
                    texts.append(f"{name}: ... {file.read()[-300:]}")
        return "\n".join(texts)

    # The undisturbed server.

    def ask_undisturbed(self):
        with self.server(AMPLE_FLAGS, "ample.log") as server, LineConnection(server) as connection:
            self.draw_requests(connection)
            self.expected = {}
            for request in self.requests:
                if request.path:
                    self.expected[request.id] = ask_http(server, request)
                else:
                    self.expected[request.id] = ask_lines(connection, request)

    def draw_requests(self, connection):
        rng = self.rng("requests")
        connection.send({"op": "model"})
        self.limits = Limits(connection.receive()["vocab_size"], min(5, self.setup.max_num_seqs),
                             thinks=self.setup.variant == "thinking", resumes=self.setup.kind == "recovery")
        count = self.options.num_requests or rng.choice([20, 40, 60])
        requests = [draw_request(rng, number, self.limits) for number in range(count)]
        only = self.options.only_requests
        self.requests = [request for request in requests if not only or request.id in only]
        self.report.num_requests = len(self.requests)

    # The disturbed server.

    def run_disturbed(self):
        self.slot.set(self.disturbed_server().__enter__(), is_final=self.setup.kind != "recovery")
        try:
            clients = self.disturb()
            self.judge(clients)
            self.check_rest()
        finally:
            if self.slot.server:
                self.problems += end(self.slot.server)

    def disturb(self):
        clients = self.make_clients()
        for client in clients:
            client.start()
        killer = self.make_killer()
        if killer:
            killer.start()
        if self.setup.kind == "recovery":
            restarts = Restarts(self.slot, self.disturbed_server, self.rng("restarts"))
            self.problems += restarts.run(lambda: not any(client.is_alive() for client in clients))
            self.report.counts["restarts"] = restarts.num_restarts
        else:
            self.leave_early()
        for client in clients:
            client.join(2 * PATIENCE_S)
            if client.is_alive():
                self.problems.append("a client waits for ever")
        if killer:
            killer.stop()
            self.report.counts["kills"] = len(killer.sent)
        return clients

    def make_clients(self):
        lines = [request for request in self.requests if not request.path]
        clients = [LineClient(self.slot, lines[i::NUM_CONNECTIONS], self.rng(f"client {i}"))
                   for i in range(NUM_CONNECTIONS)]
        http = [HttpClient(self.slot, [request], self.rng(request.id)) for request in self.requests if request.path]
        return clients + http

    def make_killer(self):
        if not self.setup.has("--worker-processes") or self.setup.kind == "calm":
            return None
        if self.setup.kind == "crashes":
            return WorkerKiller(self.slot, self.rng("kills"), WITH_CRASHES, MAX_CRASHES)
        return WorkerKiller(self.slot, self.rng("kills"), FROM_OUTSIDE, MAX_KILLS)

    def leave_early(self):
        rng = self.rng("leaving")
        for _ in range(rng.choice([0, 3, 8])):
            requests = [draw_request(rng, 1000 + i, self.limits) for i in range(rng.choice([1, 4]))]
            leave_early(self.slot.server, requests, rng.random() * 0.2)

    def judge(self, clients):
        judge = Judge(self.setup.pool, self.setup.stream_interval, may_fail=self.setup.kind == "crashes")
        for client in clients:
            self.problems += client.problems
            for request in client.requests:
                found = judge.problems_of(request, client.answers[request.id], self.expected[request.id],
                                          request.id in getattr(client, "cancelled", ()))
                self.problems += [f"{request.id}: {problem}\n      {request.path} {json.dumps(request.body)}"
                                  for problem in found]
        self.report.counts |= {"cut": judge.num_cut, "refused": judge.num_refused, "blamed": judge.num_blamed,
                               "cancelled": judge.num_cancelled, "errors": judge.num_errors}

    def check_rest(self):
        """Checks that without requests all memory is free and no process is left."""
        server = self.slot.server
        stats = server.wait_until_idle(PATIENCE_S)
        if stats["host_blocks_free"] != stats["host_blocks_total"]:
            self.problems.append(f"host blocks are not free: {stats}")
        most = self.setup.has("--worker-processes") + self.setup.has("--standby-worker")
        processes = children(server.process.pid)
        if len(processes) > most or any(state == "Z" for _, state in processes):
            self.problems.append(f"processes are left over: {processes}, at most {most} are needed")
        self.report.counts |= {"preempted": stats["preemptions_recompute_total"] + stats["preemptions_swap_total"],
                               "deaths": stats["worker_deaths_total"], "hangs": stats["worker_hangs_total"]}

    def replay(self):
        """Checks that a journal replays to the recorded decisions."""
        journal = os.path.join(self.folder, "journal")
        if not self.setup.has("--journal"):
            return
        command = [self.options.pagoda, "replay", journal, "--model", self.model]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            self.problems.append(f"replay ends with {done.returncode}: {done.stdout[-800:]} {done.stderr[-800:]}")


def ask_http(server, request):
    """Returns the complete answer to one request."""
    slot = ServerSlot()
    slot.set(server)
    of_streams = ("stream", "stream_options", "resumable")
    body = {name: value for name, value in request.body.items() if name not in of_streams}
    client = HttpClient(slot, [type(request)(request.id, body, request.path)], random.Random(0))
    client.talk(server)
    return client.answers[request.id]
