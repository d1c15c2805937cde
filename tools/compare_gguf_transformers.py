#!/usr/bin/env python3
"""Compares greedy tokens and log-probabilities of pagoda and of Hugging Face transformers, on the same GGUF file.

    python tools/compare_gguf_transformers.py --model build/models/gemma3.gguf --text FILE
    python tools/compare_gguf_transformers.py --model build/models/gemma3.gguf --prompts 1 --prompt-tokens 700 1500 \\
        --text FILE FILE

Passages of each --text become prompts of --prompt-tokens tokens each (one number, or one for each file), tokenized by
transformers. Both programs dequantise the weights and compute in float32. For each passage this prints a line of JSON:

- same_prompt: pagoda's tokenizer gives the same prompt.
- max_logprob_difference: the largest difference between the log-probabilities of the prompt's tokens.
- equal_tokens: how many greedy tokens are the same, of --max-tokens, before the first different one.
- max_top_difference: the largest difference between the log-probabilities of pagoda's 20 likeliest tokens at each of
  these positions, and at that of the first different token.
- smallest_gap: the smallest distance, in any of transformers' steps, between its two likeliest tokens.
- gap: by how much transformers prefers its token to pagoda's where texts part. 0.01 or less is a close call, which
  another order of sums can turn.

With --check it exits with 1 if a prompt differs, if texts part elsewhere than at a close call, or if log-probabilities
differ by more than --tolerance.
"""
import argparse
import json
import os
import sys
from types import SimpleNamespace

import torch
import transformers

from compare_greedy import CLOSE_CALL, passages
from compare_llama_server import Pagoda


@torch.no_grad()
def of_transformers(model, prompt: list, max_tokens: int) -> tuple[list, list, list]:
    """Returns the log-probabilities of the prompt's tokens but the first, the greedy tokens, and the log-probabilities of
    the vocabulary before each of these."""
    run = model(input_ids=torch.tensor([prompt]), use_cache=True)
    of_prompt = [torch.log_softmax(run.logits[0, i - 1].float(), 0)[prompt[i]].item() for i in range(1, len(prompt))]
    tokens, logprobs = [], []
    for _ in range(max_tokens):
        logprobs.append(torch.log_softmax(run.logits[0, -1].float(), 0))
        tokens.append(int(logprobs[-1].argmax()))
        run = model(input_ids=torch.tensor([[tokens[-1]]]), past_key_values=run.past_key_values, use_cache=True)
    return of_prompt, tokens, logprobs


def compare(server: Pagoda, model, prompt: list, max_tokens: int) -> dict:
    of_prompt, tokens, logprobs = of_transformers(model, prompt, max_tokens)
    ours = server.ask({"prompt_token_ids": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
                       "prompt_logprobs": 0, "logprobs": 20, "stream": False})
    output = ours["outputs"][0]
    at = next((i for i, (a, b) in enumerate(zip(output["token_ids"], tokens)) if a != b), None)
    comparable = max_tokens if at is None else at + 1  # positions after the same tokens
    entries = [entry["logprob"] for entry in ours["prompt_logprobs"] if entry]
    of_top = [top["logprob"] - theirs[top["token_id"]].item()
              for entry, theirs in zip(output["logprobs"][:comparable], logprobs) for top in entry["top"]]
    best = [theirs.topk(2).values for theirs in logprobs]
    return {"max_logprob_difference": torch.tensor(entries).sub(torch.tensor(of_prompt)).abs().max().item(),
            "equal_tokens": max_tokens if at is None else at,
            "max_top_difference": torch.tensor(of_top).abs().max().item(),
            "smallest_gap": min((first - second).item() for first, second in best),
            "gap": None if at is None else (logprobs[at][tokens[at]] - logprobs[at][output["token_ids"][at]]).item()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/release/bin/pagoda")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--text", required=True, nargs="+", metavar="FILE")
    parser.add_argument("--prompts", type=int, default=10, help="of each text")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[600], metavar="N")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if len(args.prompt_tokens) not in (1, len(args.text)):
        parser.error("--prompt-tokens: one number, or one for each text")
    folder, name = os.path.split(os.path.abspath(args.model))
    torch.set_num_threads(args.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    server = Pagoda(SimpleNamespace(pagoda=args.pagoda, model=args.model, threads=args.threads, clients=1,
                                    pagoda_args="--quantize none --dtype float32 --kv-cache-dtype float32 --log-level warn"))
    is_wrong = False
    try:
        for i, path in enumerate(args.text):
            length = args.prompt_tokens[i % len(args.prompt_tokens)]
            with open(path, encoding="utf-8") as file:
                texts = passages(file.read(), args.prompts, length)
            for text in texts:
                prompt = tokenizer(text)["input_ids"][:length]
                is_same = server.ask({"op": "tokenize", "text": text})["token_ids"][:length] == prompt
                result = {"text": path, "prompt_tokens": len(prompt), "same_prompt": is_same,
                          **compare(server, model, prompt, args.max_tokens)}
                is_wrong |= not is_same or (result["gap"] is not None and result["gap"] > CLOSE_CALL)
                for key in ("max_logprob_difference", "max_top_difference"):
                    is_wrong |= not result[key] <= args.tolerance  # NaN is wrong, too
                print(json.dumps(result), flush=True)
    finally:
        server.stop()
    sys.exit(1 if is_wrong and args.check else 0)


if __name__ == "__main__":
    main()
