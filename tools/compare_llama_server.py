#!/usr/bin/env python3
"""Sends equal loads to `pagoda serve` and to llama-server, in turns; prints output tokens a second and latencies.

    python3 tools/compare_llama_server.py --model DIR --llama-server FILE --gguf FILE --clients 16

Each client has one connection and sends its next request when the last is done. Prompts are random token ids, equal for
both servers. Every request generates exactly --output-len tokens, greedily. TTFT and ITL are measured at the client.
Without --llama-server only pagoda is measured. Needs only the standard library. Run it on a quiet machine.
"""
import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import time


class Pagoda:
    name = "pagoda"

    def __init__(self, args):
        command = [args.pagoda, "serve", "--model", args.model, "--threads", str(args.threads), "--listen", "127.0.0.1:0",
                   "--max-num-seqs", str(args.clients), "--no-enable-prefix-caching", "--kv-cache-memory", "2",
                   *args.pagoda_args.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if "listening on" not in line:
            sys.exit(f"pagoda did not start: {line}")
        self.port = int(line.rsplit(":", 1)[1])

    def ask(self, message: dict) -> dict:
        """Returns the event that answers one message, which is not a stream."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(json.dumps({"id": "r", **message}).encode() + b"\n")
            event = json.loads(connection.makefile().readline())
        if event["event"] == "error":
            sys.exit(f"pagoda: {event}")
        return event

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)

    async def generate(self, connection, prompt, output_len):
        """Yields the number of new tokens of each event."""
        reader, writer = connection
        writer.write(json.dumps({"id": "r", "prompt_token_ids": prompt, "max_tokens": output_len, "temperature": 0,
                                 "ignore_eos": True}).encode() + b"\n")
        while True:
            event = json.loads(await reader.readline())
            if event["event"] == "delta":
                yield len(event["token_ids"])
            elif event["event"] == "done":
                return
            else:
                sys.exit(f"pagoda: {event}")


class LlamaServer:
    name = "llama-server"

    def __init__(self, args):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        context = args.clients * (args.input_len + args.output_len + 64)
        command = [args.llama_server, "-m", args.gguf, "-t", str(args.threads), "-tb", str(args.threads), "-np",
                   str(args.clients), "-c", str(context), "--host", "127.0.0.1", "--port", str(self.port), "--no-webui",
                   *args.llama_args.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 180
        while not self.healthy():
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit("llama-server did not start")
            time.sleep(0.3)

    def healthy(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as probe:
                probe.sendall(b"GET /health HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n")
                return b" 200 " in probe.recv(200)
        except OSError:
            return False

    async def connect(self):
        return None

    async def generate(self, connection, prompt, output_len):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        body = json.dumps({"prompt": prompt, "n_predict": output_len, "stream": True, "ignore_eos": True, "temperature": 0,
                           "top_k": 1, "cache_prompt": False, "return_tokens": True}).encode()
        writer.write(b"POST /completion HTTP/1.1\r\nHost: l\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        told = 0
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("stop"):
                total = event["tokens_predicted"]
                if total != output_len:
                    sys.exit(f"llama-server: {total} tokens instead of {output_len}")
                if total > told:
                    yield total - told
                break
            told += len(event.get("tokens") or [0])
            yield len(event.get("tokens") or [0])
        writer.close()


async def client(server, prompts, output_len, results):
    connection = await server.connect()
    for prompt in prompts:
        sent = last = time.monotonic()
        first = True
        async for count in server.generate(connection, prompt, output_len):
            now = time.monotonic()
            if first:
                results["ttft"].append(now - sent)
            else:
                results["itl"] += [(now - last) / count] * count
            first, last = False, now
            results["tokens"] += count


async def load(server, args, seed):
    rng = random.Random(seed)
    results = {"ttft": [], "itl": [], "tokens": 0}
    prompts = [[[rng.randrange(300, args.vocab) for _ in range(args.input_len)] for _ in range(args.requests)]
               for _ in range(args.clients)]
    start = time.monotonic()
    await asyncio.gather(*(client(server, each, args.output_len, results) for each in prompts))
    seconds = time.monotonic() - start
    itl = sorted(results["itl"])
    return {"tokens_per_s": results["tokens"] / seconds, "ttft_p50_ms": 1e3 * statistics.median(results["ttft"]),
            "itl_p50_ms": 1e3 * itl[len(itl) // 2], "itl_p99_ms": 1e3 * itl[int(len(itl) * 0.99)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pagoda-args", default="", help="more flags of pagoda serve")
    parser.add_argument("--llama-server")
    parser.add_argument("--gguf")
    parser.add_argument("--llama-args", default="", help="more flags of llama-server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=2, help="of each client, one after another")
    parser.add_argument("--input-len", type=int, default=96)
    parser.add_argument("--output-len", type=int, default=48)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if (args.llama_server is None) != (args.gguf is None):
        parser.error("--llama-server and --gguf belong together")

    kinds = [Pagoda] + ([LlamaServer] if args.llama_server else [])
    rounds = {kind.name: [] for kind in kinds}
    for number in range(args.rounds):
        for kind in kinds:
            server = kind(args)
            try:
                rounds[kind.name].append(asyncio.run(load(server, args, number)))
            finally:
                server.process.terminate()
                server.process.wait()
            if sys.stderr.isatty():
                print(f"{kind.name}: {rounds[kind.name][-1]['tokens_per_s']:.1f} tokens/s", file=sys.stderr)
    medians = {name: {key: round(statistics.median(r[key] for r in runs), 1) for key in runs[0]}
               for name, runs in rounds.items()}
    if args.json:
        print(json.dumps(medians))
        return
    keys = list(next(iter(medians.values())))
    print("| | " + " | ".join(keys) + " |\n|---|" + "---|" * len(keys))
    for name, values in medians.items():
        print(f"| {name} | " + " | ".join(str(values[key]) for key in keys) + " |")


if __name__ == "__main__":
    main()
