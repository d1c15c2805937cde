#!/usr/bin/env python3
"""Beam search and prompt logprob goldens of the demo model from Hugging Face transformers.

usage: make_beam_engine_goldens.py [OUTPUT_FOLDER]     (default tests/data/sampling)

Writes beam_engine.json: per case the prompt, the settings and the result (tokens, sequence score) of transformers'
generate(num_beams=...); and for each prompt the log-probability, rank and best tokens of every prompt token. Arithmetic
is float32 over the stored weights. A case whose tokens change when the weights are disturbed by a part in 10,000 is a
close call and is left out, so that an engine with other rounding must give these tokens. Deterministic; needs torch and
transformers.
"""
import copy
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

ROOT = pathlib.Path(__file__).parent.parent
PROMPTS = ["Once upon a time", "One day, Lily went to the park and", "The old bear sat in his house and looked out of the"]
EOS, PERIOD = 1, "."
TOP = 3


def run(model, prompt, case):
    config = GenerationConfig(
        max_new_tokens=case["max_tokens"], num_beams=case["width"], num_return_sequences=case["n"],
        early_stopping={"no": False, "yes": True, "never": "never"}[case["early_stopping"]],
        length_penalty=case["length_penalty"], eos_token_id=case["ending_tokens"] or None, pad_token_id=0,
        return_dict_in_generate=True, output_scores=True, do_sample=False)
    tokens = torch.tensor([prompt])
    out = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=config)
    results = []
    for tokens, score, beams in zip(out.sequences, out.sequences_scores, out.beam_indices):
        length = int((beams >= 0).sum())
        results.append({"tokens": tokens[len(prompt):len(prompt) + length].tolist(), "score": round(float(score), 5)})
    return results


def disturbed(model, seed):
    torch.manual_seed(seed)
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.mul_(1 + 1e-4 * torch.randn_like(parameter))
    return other


def prompt_logprobs(model, prompt):
    logprobs = torch.log_softmax(model(torch.tensor([prompt])).logits[0], dim=-1)
    entries = []
    for row, token in zip(logprobs[:-1], prompt[1:]):
        best = torch.topk(row, TOP)
        entries.append({"token": token, "logprob": round(float(row[token]), 5), "rank": 1 + int((row > row[token]).sum()),
                        "top": [[int(t), round(float(p), 5)] for t, p in zip(best.indices, best.values)]})
    return entries


def main():
    folder = ROOT / "examples/models/pagoda-stories"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    period = tokenizer.encode(PERIOD, add_special_tokens=False)[-1]
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    cases = []
    with torch.no_grad():
        others = [disturbed(model, seed) for seed in (1, 2)]
        for width, n, max_tokens in ((3, 1, 12), (4, 2, 32), (4, 4, 16), (7, 3, 24)):
            for early_stopping in ("no", "yes", "never"):
                for length_penalty in (0.0, 1.5):
                    for ending_tokens in ([EOS], [EOS, period]):
                        case = {"prompt": len(cases) % len(prompts), "width": width, "n": n, "max_tokens": max_tokens,
                                "early_stopping": early_stopping, "length_penalty": length_penalty,
                                "ending_tokens": ending_tokens}
                        prompt = prompts[case["prompt"]]
                        case["outputs"] = run(model, prompt, case)
                        tokens = [output["tokens"] for output in case["outputs"]]
                        if all([o["tokens"] for o in run(m, prompt, case)] == tokens for m in others):
                            cases.append(case)
        golden = {"prompts": prompts, "prompt_logprobs": [prompt_logprobs(model, prompt) for prompt in prompts],
                  "cases": cases}
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "tests/data/sampling")
    out.mkdir(parents=True, exist_ok=True)
    (out / "beam_engine.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
