#!/usr/bin/env python3
"""Compares greedy tokens and log-probabilities of pagoda and of Hugging Face transformers, on the same GGUF file.

    python tools/compare_gguf_transformers.py --model build/models/gemma3.gguf --text FILE

Passages of --text become prompts of --prompt-tokens tokens each, tokenized by transformers. Both programs dequantise the
weights and compute in float32. For each passage this prints the largest difference between the log-probabilities of the
prompt's tokens, and whether the greedy tokens are the same; also whether pagoda's tokenizer gives the same prompt. If
two texts differ, it prints the first different token, and by how much the model prefers transformers' token to
pagoda's: 0.01 or less is a close call, which another order of sums can turn. With --check it exits with 1 if texts
differ elsewhere, or if log-probabilities of a prompt differ by more than --tolerance.
"""
import argparse
import json
import os
import socket
import sys
from types import SimpleNamespace

import torch
import transformers

from compare_greedy import CLOSE_CALL, passages
from compare_llama_server import Pagoda


def ask(server: Pagoda, message: dict) -> dict:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(json.dumps({"id": "r", "stream": False, **message}).encode() + b"\n")
        event = json.loads(connection.makefile().readline())
    if event["event"] != "done":
        sys.exit(f"pagoda: {event}")
    return event


@torch.no_grad()
def of_transformers(model, prompt: list, max_tokens: int) -> tuple[list, list, list]:
    """Returns the log-probabilities of the prompt's tokens but the first, the greedy tokens, and the logits before each of
    these."""
    run = model(input_ids=torch.tensor([prompt]), use_cache=True)
    logprobs = torch.log_softmax(run.logits[0].float(), 1)
    of_prompt = [logprobs[i - 1, prompt[i]].item() for i in range(1, len(prompt))]
    tokens, logits = [], []
    for _ in range(max_tokens):
        logits.append(run.logits[0, -1].float())
        tokens.append(int(logits[-1].argmax()))
        run = model(input_ids=torch.tensor([[tokens[-1]]]), past_key_values=run.past_key_values, use_cache=True)
    return of_prompt, tokens, logits


def compare(server: Pagoda, model, text: str, prompt: list, max_tokens: int) -> dict:
    of_prompt, tokens, logits = of_transformers(model, prompt, max_tokens)
    ours = ask(server, {"prompt_token_ids": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                        "prompt_logprobs": 0})
    read = ask(server, {"prompt": text, "max_tokens": 1, "temperature": 0})
    greedy = ours["outputs"][0]["token_ids"]
    at = next((i for i, (a, b) in enumerate(zip(greedy, tokens)) if a != b), None)
    entries = [entry for entry in ours["prompt_logprobs"] if entry]
    return {"prompt_tokens": len(prompt), "same_prompt_length": read["usage"]["prompt_tokens"] == len(prompt),
            "max_logprob_difference": float(torch.tensor([a["logprob"] for a in entries]).sub(torch.tensor(of_prompt)).abs().max()),
            "differs_at": at, "gap": None if at is None else (logits[at][tokens[at]] - logits[at][greedy[at]]).item()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--text", required=True)
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--prompt-tokens", type=int, default=600)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    folder, name = os.path.split(os.path.abspath(args.model))
    torch.set_num_threads(args.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    with open(args.text, encoding="utf-8") as file:
        texts = passages(file.read(), args.prompts, args.prompt_tokens)
    server = Pagoda(SimpleNamespace(pagoda=args.pagoda, model=args.model, threads=args.threads, clients=1,
                                    pagoda_args="--quantize none --dtype float32 --kv-cache-dtype float32 --log-level warn"))
    is_wrong = False
    try:
        for text in texts:
            prompt = tokenizer(text)["input_ids"][:args.prompt_tokens]
            is_whole = len(tokenizer(text)["input_ids"]) <= args.prompt_tokens
            result = compare(server, model, text if is_whole else tokenizer.decode(prompt, skip_special_tokens=True),
                             prompt, args.max_tokens)
            is_wrong |= not result["max_logprob_difference"] <= args.tolerance  # NaN is wrong, too
            is_wrong |= result["differs_at"] is not None and result["gap"] > CLOSE_CALL
            print(json.dumps(result), flush=True)
    finally:
        server.process.kill()
        server.process.wait()
    sys.exit(1 if is_wrong and args.check else 0)


if __name__ == "__main__":
    main()
