#!/usr/bin/env python3
"""Compares greedy text of pagoda and of llama.cpp, on the same GGUF file.

    python3 tools/compare_greedy.py --llama-server FILE --model build/models/smollm2-f32.gguf --text FILE

Both programs get passages of --text as prompts, as text, and write --max-tokens tokens each with temperature 0, a KV
cache of float32 and one request at a time. If two texts differ, this prints the first different token, and how much
more likely pagoda's token was to pagoda than llama.cpp's: 0.01 or less is a close call, which another order of sums can
turn. With F32 weights both programs keep activations in float32. With other weights llama.cpp rounds them to 16 or 8
bits, and texts differ sooner. With --check it exits with 1 if texts differ elsewhere than at a close call. Needs only
the standard library.
"""
import argparse
import json
import re
import socket
import sys
import urllib.request
from types import SimpleNamespace

from compare_llama_server import LlamaServer, Pagoda

CLOSE_CALL = 0.01


def of_llama(server: LlamaServer, prompt: str, max_tokens: int) -> tuple[list, str]:
    body = {"prompt": prompt, "n_predict": max_tokens, "temperature": 0, "top_k": 1, "cache_prompt": False, "return_tokens": True,
            "ignore_eos": True}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        said = json.load(answer)
    return said["tokens"], said["content"]


def of_pagoda(server: Pagoda, prompt: str, max_tokens: int) -> tuple[list, str, list]:
    """Returns its tokens and text, and the log-probabilities of the ten most likely tokens at each position."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        body = {"id": "r", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 10, "ignore_eos": True,
                "stream": False}
        connection.sendall(json.dumps(body).encode() + b"\n")
        event = json.loads(connection.makefile().readline())
    if event["event"] != "done":
        sys.exit(f"pagoda: {event}")
    output = event["outputs"][0]
    likeliest = [{top["token_id"]: top["logprob"] for top in entry["top"]} for entry in output["logprobs"]]
    return output["token_ids"], output["text"], likeliest


def passages(text: str, count: int, words: int) -> list:
    pieces = re.findall(r"\S+\s*", text)
    step = max(words, len(pieces) // count)
    found = ["".join(pieces[i * step:i * step + words]).rstrip() for i in range(count)]
    return [passage for passage in found if passage]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--model", required=True, action="append", help="a GGUF file; may be repeated")
    parser.add_argument("--text", required=True)
    parser.add_argument("--passages", type=int, default=20)
    parser.add_argument("--words", type=int, default=40, help="of a passage")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with open(args.text, encoding="utf-8") as file:
        prompts = passages(file.read(), args.passages, args.words)
    wrong = False
    for model in args.model:
        settings = SimpleNamespace(
            pagoda=args.pagoda, model=model, gguf=model, llama_server=args.llama_server, threads=args.threads, clients=1,
            input_len=16 * args.words, output_len=args.max_tokens, pagoda_args="--kv-cache-dtype float32 --log-level warn",
            llama_args="-ctk f32 -ctv f32 -fa off")
        servers = []
        try:
            for kind in (Pagoda, LlamaServer):
                servers.append(kind(settings))
            compared = [compare(*servers, prompt, args.max_tokens) for prompt in prompts]
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()
        same = sum(difference is None for difference in compared)
        differences = [difference for difference in compared if difference is not None]
        wide = [d for d in differences if d["gap"] is None or d["gap"] > CLOSE_CALL]
        wrong |= bool(wide)
        report = {"model": model, "passages": len(prompts), "same": same, "close_calls": len(differences) - len(wide),
                  "others": wide}
        if args.json:
            print(json.dumps(report))
            continue
        print(f"{model}: {same} of {len(prompts)} texts of {args.max_tokens} tokens are the same, {report['close_calls']} part at a "
              f"close call, {len(wide)} elsewhere")
        for d in wide:
            print(f"  token {d['at']}: {d['pagoda']!r} {'' if d['gap'] is None else 'by %.3f ' % d['gap']}before {d['llama.cpp']!r}")
    sys.exit(1 if wrong and args.check else 0)


def compare(pagoda: Pagoda, llama: LlamaServer, prompt: str, max_tokens: int) -> dict | None:
    """Returns the first difference; None if the texts are equal."""
    tokens, text, likeliest = of_pagoda(pagoda, prompt, max_tokens)
    other_tokens, other_text = of_llama(llama, prompt, max_tokens)
    if text == other_text or tokens == other_tokens:  # the last token may end within a character
        return None
    at = next((i for i, (a, b) in enumerate(zip(tokens, other_tokens)) if a != b), min(len(tokens), len(other_tokens)))
    gap = None  # if llama.cpp's token is not among the most likely ones
    if at < len(tokens) and at < len(other_tokens) and other_tokens[at] in likeliest[at]:
        gap = likeliest[at][tokens[at]] - likeliest[at][other_tokens[at]]
    return {"at": at, "gap": gap, "pagoda": text[-80:], "llama.cpp": other_text[-80:]}


if __name__ == "__main__":
    main()
