#!/usr/bin/env python3
"""Loads a server for a long time and checks that it stays healthy: scripts/soak runs all of it.

    python3 tools/soak.py readers     1,000 connections, of which 500 never read: what the others see
    python3 tools/soak.py overload    ten times the load that it can serve, for ten minutes
    python3 tools/soak.py aborts      a million short requests, 30 % of them cancelled: memory, descriptors, KV blocks

The load comes from `pagoda bench serve`. --quick does each in seconds; its times mean little, so they are printed but
not checked. Results go to --out (JSON, SVG). Exit code 1 if a bound is exceeded. Needs only the standard library.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from exposition import num_actors  # noqa: E402
from server import Server  # noqa: E402

KEEPS_ITL = 1.2  # times the p99 of this load if all clients read
KEEPS_GOODPUT = 0.9  # share of the peak goodput
REFUSED_WITHIN_MS = 50
GROWS_LESS = 0.01  # share of the resident memory


class Soak:
    def __init__(self, args):
        self.args = args
        self.failures = []

    def expect(self, what, value, bound, is_kept, is_time=False):
        if is_time and self.args.quick:
            print(f"told {what}: {value:.4g}", flush=True)
            return
        print(f"{'ok  ' if is_kept else 'FAIL'} {what}: {value:.4g}, bound {bound:.4g}", flush=True)
        if not is_kept:
            self.failures.append(what)

    def at_most(self, what, value, bound, **kwargs):
        self.expect(what, value, bound, value <= bound, **kwargs)

    def at_least(self, what, value, bound, **kwargs):
        self.expect(what, value, bound, value >= bound, **kwargs)

    def server(self, *flags):
        return Server(self.args.pagoda, self.args.model, "--threads", str(self.args.threads), *flags)

    def bench(self, server, *flags):
        command = [self.args.pagoda, "bench", "serve", "--base-url", server.url, "--json", "--ignore-eos",
                   "--random-vocab-size", str(self.args.vocab), *map(str, flags)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"FAIL {' '.join(command)}: exit {done.returncode}")
        return json.loads(done.stdout)

    def save(self, name, text):
        if self.args.out:
            self.args.out.mkdir(parents=True, exist_ok=True)
            (self.args.out / name).write_text(text)

    # -- the soaks

    def readers(self):
        """Runs a load twice, with clients that all read and with half that never do, in turns."""
        connections, rounds, tokens = (100, 2, 40) if self.args.quick else (1000, self.args.rounds, 128)
        flags = ["--num-prompts", connections, "--random-input-len", 16, "--random-output-len", tokens,
                 "--extra-body", '{"logprobs": 5}', "--timeout", 3600]
        ratios, runs = [], []
        with self.server("--max-queued-requests", "2000", "--http-max-connections", "2000", "--max-num-seqs", "64") as server:
            self.bench(server, *flags)
            for _ in range(rounds):
                all_read = self.bench(server, *flags)
                half_read = self.bench(server, *flags, "--stalled-fraction", 0.5)
                assert half_read["never_read"] > connections / 3, half_read
                ratios.append(half_read["p99_itl_ms"] / all_read["p99_itl_ms"])
                runs.append({"all_read": all_read, "half_read": half_read})
                if half_read["failed"] + all_read["failed"]:
                    self.failures.append("requests failed")
            server.wait_until_idle(60)
        self.save("readers.json", json.dumps(runs, indent=1))
        print("ITL p99, half never read over all read, by round:", ", ".join(f"{ratio:.2f}" for ratio in ratios))
        self.at_most(f"ITL p99 of {connections} connections of which half never read, median of {rounds} rounds",
                     statistics.median(ratios), KEEPS_ITL, is_time=True)

    def overload(self):
        """Measures the peak load, then ten times as many arrivals: refused requests may not slow the others down."""
        seconds, calm_seconds = (6, 4) if self.args.quick else (self.args.seconds, 60)
        places, waiting = 16, 8
        flags = ["--random-input-len", 64, "--random-output-len", 128]
        with self.server("--max-num-seqs", str(places), "--max-queued-requests", str(places + waiting)) as server:
            self.bench(server, *flags, "--max-concurrency", places, "--duration", 2)
            calm = self.bench(server, *flags, "--max-concurrency", places, "--duration", calm_seconds)
            slo = 4 * calm["p99_e2el_ms"]
            peak = calm["request_throughput"]
            loaded = self.bench(server, *flags, "--request-rate", 10 * peak, "--duration", seconds, "--goodput", f"e2el:{slo}")
            server.wait_until_idle(60)
        self.save("overload.json", json.dumps({"calm": calm, "overloaded": loaded}, indent=1))
        print(f"peak {peak:.2f} requests/s, then {10 * peak:.2f} a second: {loaded['completed']} completed, "
              f"{loaded['refused']} refused, sent late by {loaded['p99_send_delay_ms']:.1f} ms (p99)")
        self.at_least("goodput under ten times the load, over the peak", loaded["request_goodput"] / peak, KEEPS_GOODPUT,
                      is_time=True)
        self.at_most("refusals, p99 in ms", loaded["p99_refusal_ms"], REFUSED_WITHIN_MS, is_time=True)
        self.at_least("refusals with Retry-After", loaded["refused_with_retry_after"], loaded["refused"])
        self.at_least("requests refused", loaded["refused"], 1)
        self.at_most("requests failed", loaded["failed"], 0)

    def aborts(self):
        """Sends short requests, of which 30 % are cancelled at a random position. Samples memory all the time."""
        requests = self.args.requests or (3000 if self.args.quick else 1_000_000)
        flags = ["--random-input-len", 12, "--random-output-len", 8, "--max-concurrency", 32, "--abort-fraction", 0.3]
        with self.server("--kv-cache-memory", "0.1", "--touch-memory") as server:
            self.bench(server, *flags, "--num-prompts", 1500 if self.args.quick else max(requests // 10, 20_000), "--seed", 1)
            samples = Samples(server)
            first = samples.now()
            server.wait_until_idle(60)
            actors = num_actors(server)
            with samples:
                counts = self.counts_of_rounds(server, flags, requests)
            stats = server.wait_until_idle(60)
            time.sleep(0.5)
            last = samples.now()
            deadline = time.monotonic() + 30  # a session ends a moment after its connection
            while (more_actors := num_actors(server) - actors) > 0 and time.monotonic() < deadline:
                time.sleep(0.1)
            growth = last["resident"] / first["resident"] - 1
            samples.rows.append(last)
        self.save("aborts.json", json.dumps({"counts": counts, "samples": samples.rows}))
        self.save("aborts.svg", memory_plot(samples.rows, f"{requests} requests, 30 % given up"))
        print(f"{counts}, resident {first['resident'] / 2**20:.1f} MiB before and {last['resident'] / 2**20:.1f} MiB behind")
        self.at_most("growth of resident memory", growth, 0.05 if self.args.quick else GROWS_LESS)
        self.at_most("descriptors more than before", last["descriptors"] - first["descriptors"], 0)
        self.at_most("threads more than before", last["threads"] - first["threads"], 0)
        self.at_most("actors more than before", more_actors, 0)
        self.at_most("KV blocks in use", stats["device_blocks_total"] - stats["device_blocks_free"]
                     - stats["device_blocks_cached"], 0)
        self.at_most("requests failed", counts["failed"], 0)
        self.at_least("share of requests given up", counts["aborted"] / requests, 0.2)

    def counts_of_rounds(self, server, flags, requests):
        """Returns the sums of counts over runs that are so short that the client's own records stay small."""
        most = 50_000
        counts = dict.fromkeys(("completed", "aborted", "failed", "refused"), 0)
        sent = 0
        while sent < requests:
            num = min(most, requests - sent)
            result = self.bench(server, *flags, "--num-prompts", num, "--seed", 2 + sent)
            for key in counts:
                counts[key] += result[key]
            sent += num
        return counts


class Samples:
    """Samples of the resources of a server's process, once a second."""

    def __init__(self, server):
        self.pid = server.process.pid
        self.started = time.monotonic()
        self.rows = []
        self.stopping = threading.Event()

    def now(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        return {"seconds": time.monotonic() - self.started, "resident": resident,
                "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")), "threads": len(os.listdir(f"/proc/{self.pid}/task"))}

    def __enter__(self):
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def run(self):
        while not self.stopping.wait(1):
            self.rows.append(self.now())


def memory_plot(rows, title):
    """Returns resident memory over time, from 0 on, as an SVG image."""
    width, height, left, top = 720, 320, 70, 40
    most = max(row["resident"] for row in rows) * 1.1
    end = max(rows[-1]["seconds"], 1e-9)
    place = lambda row: (f"{left + row['seconds'] / end * (width - left - 20):.1f},"
                         f"{height - 40 - row['resident'] / most * (height - top - 40):.1f}")
    ticks = "".join(
        f'<text x="{left - 6}" y="{height - 36 - share * (height - top - 40):.1f}" text-anchor="end">'
        f"{share * most / 2**20:.0f}</text>" for share in (0, 0.25, 0.5, 0.75, 1))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="12"><rect width="{width}" height="{height}" fill="white"/><text x="{width / 2}" y="22" '
            f'text-anchor="middle">{title}: resident MiB over {end:.0f} s</text>{ticks}<polyline fill="none" '
            f'stroke="#1f77b4" stroke-width="1.5" points="{" ".join(map(place, rows))}"/></svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("soak", choices=["readers", "overload", "aborts"], nargs="+")
    parser.add_argument("--pagoda", default=str(ROOT / "build/release/bin/pagoda"))
    parser.add_argument("--model", default=str(ROOT / "examples/models/pagoda-stories"))
    parser.add_argument("--vocab", type=int, default=300, help="prompts are of token ids below this")
    parser.add_argument("--threads", type=int, default=1, help="of the server's model")
    parser.add_argument("--requests", type=int, help="of aborts (1,000,000)")
    parser.add_argument("--seconds", type=int, default=600, help="of overload")
    parser.add_argument("--rounds", type=int, default=5, help="of readers")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    soak = Soak(args)
    for name in args.soak:
        print(f"== {name}", flush=True)
        getattr(soak, name)()
    sys.exit(1 if soak.failures else 0)


if __name__ == "__main__":
    main()
