#!/usr/bin/env python3
"""Compares the log-probabilities of pagoda and of llama.cpp on the same GGUF file, for the same tokens.

    python tools/make_gguf_source.py dequantized build/models/gemma3.gguf --out build/models/gemma3-f32.gguf
    python tools/compare_llama_logits.py --model build/models/gemma3.gguf --exact build/models/gemma3-f32.gguf \\
        --text FILE...

The first --prompt-tokens tokens of each text (one number, or one for each text) are a prompt, and pagoda continues it
with --max-tokens greedy tokens. At the last position of the prompt and at those of its greedy tokens but the last, the
tool takes pagoda's 20 likeliest tokens and compares their log-probabilities between:

- pagoda and llama.cpp: as each runs the file, which rounds activations and the KV cache;
- pagoda exact: weights dequantised, everything in float32;
- llama.cpp exact: the file of --exact, whose weights are F32, with a KV cache of float32.

pagoda exact gets the greedy tokens together with the prompt; the others get one after the other. The tool prints a line
of JSON for each text, and a table of all: mean and largest difference, and at how many positions the likeliest token is
the same. Rounding explains the difference between pagoda and llama.cpp if their exact runs are equal, and if it is
hardly larger than what each of them has to its own exact run. With --check it exits with 1 if tokens of a prompt
differ, or if exact runs differ by more than --tolerance: llama.cpp looks GELU up in a table of float16, and so is not
quite exact.

Needs numpy and the Python package llama-cpp-python (CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python==0.3.36,
or its source on PYTHONPATH and a built libllama.so, whose folder LLAMA_CPP_LIB_PATH names).
"""
import argparse
import json
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import llama_cpp
import numpy as np

from compare_llama_server import Pagoda

TOP = 20
MORE = 200  # so that the likeliest tokens of one run of pagoda are among these of the other
EXACT = "--quantize none --dtype float32 --kv-cache-dtype float32"
PAIRS = [("pagoda", "llama.cpp"), ("pagoda", "pagoda exact"), ("llama.cpp", "llama.cpp exact"),
         ("pagoda exact", "llama.cpp exact"), ("pagoda exact", "llama.cpp")]


@contextmanager
def started(args, flags: str):
    server = Pagoda(SimpleNamespace(pagoda=args.pagoda, model=args.model, threads=args.threads, clients=1,
                                    pagoda_args=f"{flags} --max-logprobs {MORE} --log-level warn"))
    try:
        yield server
    finally:
        server.stop()


def of_entries(entries: list) -> list:
    return [{top["token_id"]: top["logprob"] for top in entry["top"]} for entry in entries]


def continued(server: Pagoda, prompt: list, max_tokens: int) -> tuple[list, list]:
    """Returns the greedy tokens, and the log-probabilities before each of them."""
    output = server.ask({"prompt_token_ids": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                         "stream": False, "logprobs": MORE})["outputs"][0]
    return output["token_ids"], of_entries(output["logprobs"])


def forced(server: Pagoda, prompt: list, tokens: list) -> list:
    entries = server.ask({"prompt_token_ids": prompt + tokens, "max_tokens": 1, "temperature": 0, "stream": False,
                          "prompt_logprobs": MORE})["prompt_logprobs"]
    return of_entries(entries[len(prompt):])


class Llama:
    def __init__(self, model: str, context: int, threads: int, **settings):
        self.llama = llama_cpp.Llama(model, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False,
                                     **settings)

    def tokenize(self, text: str) -> list:
        return self.llama.tokenize(text.encode(), add_bos=True, special=True)

    def forced(self, prompt: list, tokens: list) -> list:
        self.llama.reset()
        self.llama.eval(prompt)
        rows = [self.logprobs()]
        for token in tokens[:-1]:
            self.llama.eval([token])
            rows.append(self.logprobs())
        return rows

    def logprobs(self) -> np.ndarray:
        logits = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
        row = np.ctypeslib.as_array(logits, shape=(self.llama.n_vocab(),)).astype(np.float64)
        row -= row.max()
        return row - np.log(np.exp(row).sum())


def best(row) -> int:
    return max(row, key=row.get) if isinstance(row, dict) else int(row.argmax())


def difference(ours: list, theirs: list, likeliest: list) -> dict:
    """Of the likeliest tokens, which are a list of tokens for each position. Some may be missing in a row of pagoda."""
    changes = [abs(a[token] - b[token]) for a, b, tokens in zip(ours, theirs, likeliest) for token in tokens
               if all(not isinstance(row, dict) or token in row for row in (a, b))]
    return {"mean": float(np.mean(changes)), "max": float(np.max(changes)), "compared": len(changes),
            "same_best": sum(best(a) == best(b) for a, b in zip(ours, theirs)), "positions": len(ours)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--exact", required=True, help="its weights in F32")
    parser.add_argument("--text", required=True, nargs="+", metavar="FILE")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[600], metavar="N")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if len(args.prompt_tokens) not in (1, len(args.text)):
        parser.error("--prompt-tokens: one number, or one for each text")

    lengths = [args.prompt_tokens[i % len(args.prompt_tokens)] for i in range(len(args.text))]
    context = max(lengths) + args.max_tokens
    runs = []
    with started(args, "") as server:
        llama = Llama(args.model, context, args.threads)
        for path, length in zip(args.text, lengths):
            with open(path, encoding="utf-8") as file:
                text = file.read()[:20 * length]
            prompt = server.ask({"op": "tokenize", "text": text})["token_ids"][:length]
            greedy, ours = continued(server, prompt, args.max_tokens)
            runs.append({"text": path, "same_prompt": llama.tokenize(text)[:length] == prompt, "prompt": prompt,
                         "greedy": greedy, "likeliest": [sorted(row, key=row.get)[-TOP:] for row in ours],
                         "pagoda": ours, "llama.cpp": llama.forced(prompt, greedy)})
    is_wrong = False
    with started(args, EXACT) as server:
        llama = Llama(args.exact, context, args.threads, type_k=0, type_v=0)  # 0: F32
        for run in runs:
            run["pagoda exact"] = forced(server, run["prompt"], run["greedy"])
            run["llama.cpp exact"] = llama.forced(run["prompt"], run["greedy"])
            found = {" / ".join(pair): difference(run[pair[0]], run[pair[1]], run["likeliest"]) for pair in PAIRS}
            is_wrong |= not run["same_prompt"] or not found["pagoda exact / llama.cpp exact"]["max"] <= args.tolerance
            print(json.dumps({"text": run["text"], "prompt_tokens": len(run["prompt"]), "same_prompt": run["same_prompt"],
                              **found}), flush=True)
    print("| | mean difference | largest | same likeliest |\n|---|---|---|---|")
    for pair in PAIRS:
        total = difference(*([row for run in runs for row in run[key]] for key in (*pair, "likeliest")))
        print(f"| {' / '.join(pair)} | {total['mean']:.2g} | {total['max']:.2g} | "
              f"{total['same_best']} of {total['positions']} |")
    sys.exit(1 if is_wrong and args.check else 0)


if __name__ == "__main__":
    main()
