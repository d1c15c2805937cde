#!/usr/bin/env python3
"""Kills the worker process of a server under load again and again, and compares every token with those of an
undisturbed run of the same requests. Exits with 1 if anything was lost, repeated or changed.

usage: tools/kill_workers.py PAGODA MODEL [--duration SECONDS] [--every SECONDS] [--clients N] [--stop] [-- FLAGS...]

The last line is JSON: kills, requests that ended, the longest silence of any stream at each kill (median, 99th
percentile, largest), and the time until the next worker was ready.

--poison TOKENS sends a request with a prompt of so many tokens in place of each kill. Give flags by which a step with
the prompt, and no other one, misses its deadline, so that the request fails as one that crashes workers:

    tools/kill_workers.py PAGODA MODEL --poison 2000 --every 20 -- --step-deadline 0.5 --max-num-batched-tokens 2048

Then the JSON has the time until such a request has failed (`search_s`), and the tokens per second of the others in
this time and in the rest of the time.
"""
import argparse
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "clients"))
from worker_load import Connection, WorkerServer, request, run  # noqa: E402

NUM_KINDS = 24


class Client(threading.Thread):
    """Sends requests one after the other and compares the events."""

    def __init__(self, server, first, max_tokens, expected, until):
        super().__init__()
        self.server, self.next, self.max_tokens = server, first, max_tokens
        self.expected, self.until = expected, until
        self.num_ended = 0
        self.problems = []
        self.silences = []  # (from, to) between two events of a request
        self.deltas = []  # (time, number of tokens)

    def run(self):
        try:
            self.ask()
        except Exception as problem:
            self.problems.append(f"a client has failed: {problem!r}")

    def ask(self):
        connection = Connection(self.server.lines)
        while time.monotonic() < self.until and not self.problems:
            kind = self.next % NUM_KINDS
            self.next += 1
            outcome = connection.submit(request(kind, self.max_tokens))
            if not outcome.ended.wait(300):
                self.problems.append(f"request {kind} did not end")
            elif outcome.error:
                self.problems.append(f"request {kind}: {outcome.error}")
            elif outcome.tokens() != self.expected[kind]:
                self.problems.append(f"request {kind} has other tokens: {outcome.tokens()}, not {self.expected[kind]}")
            self.silences += zip(outcome.times, outcome.times[1:])
            self.deltas += outcome.deltas
            self.num_ended += 1
        self.problems += connection.problems
        connection.close()


def fail_by_poison(server, number, num_tokens):
    """Sends a request that crashes workers. Returns what is wrong if it does not fail for that reason."""
    connection = Connection(server.lines)
    outcome = connection.submit({"op": "generate", "prompt_token_ids": [10 + number] * num_tokens, "max_tokens": 1})
    ended = outcome.ended.wait(300)
    connection.close()
    if not ended:
        return ["the poison did not end"]
    if not outcome.error or "the request crashes workers" not in outcome.error["message"]:
        return [f"the poison has ended with {outcome.error or outcome.outputs}"]
    return connection.problems


def tokens_per_s(deltas, windows):
    """Tokens in these spans of time."""
    seconds = sum(end - begin for begin, end in windows)
    tokens = sum(count for time, count in deltas if any(begin <= time < end for begin, end in windows))
    return round(tokens / seconds, 1) if seconds else None


def share(values, part):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(part * len(values)))], 3) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pagoda")
    parser.add_argument("model")
    parser.add_argument("--duration", type=float, default=60)
    parser.add_argument("--every", type=float, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--stop", action="store_true", help="SIGSTOP instead of SIGKILL")
    parser.add_argument("--poison", type=int, metavar="TOKENS", help="send such a prompt instead of a kill")
    arguments, flags = parser.parse_known_args()
    flags = [flag for flag in flags if flag != "--"]
    kills, ends, poison_problems = [], [], []
    with WorkerServer(arguments.pagoda, arguments.model, *flags) as server:
        connection = Connection(server.lines)
        outcomes = run(connection, [request(i, arguments.max_tokens) for i in range(NUM_KINDS)], 600)
        expected = [outcome.tokens() for outcome in outcomes]
        errors = [outcome.error for outcome in outcomes if outcome.error]
        assert not errors, errors
        undisturbed = [b - a for outcome in outcomes for a, b in zip(outcome.times[1:], outcome.times[2:])]
        connection.close()
        begin = time.monotonic()
        until = begin + arguments.duration
        clients = [Client(server, 5 * i, arguments.max_tokens, expected, until) for i in range(arguments.clients)]
        for client in clients:
            client.start()
        while time.monotonic() + arguments.every < until and not any(client.problems for client in clients):
            time.sleep(arguments.every)
            if arguments.poison:
                kills.append(time.monotonic())
                poison_problems += fail_by_poison(server, len(kills), arguments.poison)
            else:
                dead = server.kill_worker(signal.SIGSTOP if arguments.stop else signal.SIGKILL)
                kills.append(time.monotonic())
                server.wait_for(lambda s: s["worker_pids"] != [dead] and s["health"] == "ok", pause=0.01)
            ends.append(time.monotonic())
        for client in clients:
            client.join()
        stats = server.stats()
        zombies = server.zombies()
    problems = poison_problems + [problem for client in clients for problem in client.problems]
    silences = [silence for client in clients for silence in client.silences]
    gaps = [max((b - a for a, b in silences if a <= kill <= b), default=0) for kill in kills]
    restarts = [end - kill for kill, end in zip(kills, ends)]
    counted = stats["worker_hangs_total" if arguments.stop else "worker_deaths_total"]
    if not arguments.poison and counted != len(kills):
        problems.append(f"{counted} were counted of {len(kills)}")
    if not kills or any(client.num_ended == 0 for client in clients):
        problems.append("too short a time to tell anything")
    if zombies:
        problems.append(f"zombies: {zombies}")
    for problem in problems:
        print(problem, file=sys.stderr)
    after = {"restart_s": {"median": share(restarts, 0.5), "max": share(restarts, 1)}}
    if arguments.poison:
        deltas = [delta for client in clients for delta in client.deltas]
        searches = list(zip(kills, ends))
        rest = list(zip([begin, *ends], [*kills, max([until, *ends])]))
        after = {"search_s": {"median": share(restarts, 0.5), "max": share(restarts, 1)},
                 "crashes": stats["worker_hangs_total"] + stats["worker_deaths_total"],
                 "tokens_per_s": {"searches": tokens_per_s(deltas, searches), "rest": tokens_per_s(deltas, rest)}}
    print(json.dumps({
        "kills": len(kills), "requests": sum(client.num_ended for client in clients), "problems": len(problems),
        "gap_s": {"median": share(gaps, 0.5), "p99": share(gaps, 0.99), "max": share(gaps, 1)},
        "undisturbed_gap_s": {"median": share(undisturbed, 0.5), "p99": share(undisturbed, 0.99)},
        **after,
        "tokens": stats["generation_tokens_total"], "failed": stats["requests_failed_total"]}))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
