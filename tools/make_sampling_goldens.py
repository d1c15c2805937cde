#!/usr/bin/env python3
"""Makes goldens of Hugging Face transformers' logits processors.

usage: make_sampling_goldens.py [OUTPUT_FOLDER]     (default tests/data/sampling)

Writes warpers.json: rows of logits, and per case the settings with the probabilities (token id -> probability) that remain
after transformers' repetition penalty, temperature, min_p, top_k and top_p, applied in this order. Deterministic; needs
torch and transformers.
"""
import json
import pathlib
import sys

import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

VOCAB = 60
CONTEXT = [3, 3, 17, 42, 8]


def run(logits, case):
    ids, scores = torch.tensor([CONTEXT]), logits.clone()[None]
    if case["repetition_penalty"] != 1:
        scores = RepetitionPenaltyLogitsProcessor(case["repetition_penalty"])(ids, scores)
    scores = TemperatureLogitsWarper(case["temperature"])(ids, scores)
    if case["min_p"] > 0:
        scores = MinPLogitsWarper(case["min_p"])(ids, scores)
    if case["top_k"] > 0:
        scores = TopKLogitsWarper(case["top_k"])(ids, scores)
    if case["top_p"] < 1:
        scores = TopPLogitsWarper(case["top_p"])(ids, scores)
    probabilities = torch.softmax(scores[0].double(), dim=-1)
    return [[token, round(float(p), 7)] for token, p in enumerate(probabilities) if p > 0]


def main():
    torch.manual_seed(4321)
    rows = [(torch.randn(VOCAB) * spread * 1000).round() / 1000 for spread in (1.0, 3.0)]
    cases = []
    for row in range(len(rows)):
        for temperature in (0.7, 1.0, 1.6):
            for top_k, top_p, min_p in ((0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.1), (12, 0.75, 0.0),
                                        (20, 0.9, 0.05), (0, 0.95, 0.02)):
                for repetition_penalty in (1.0, 1.3):
                    cases.append({"row": row, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
                                  "repetition_penalty": repetition_penalty})
    for case in cases:
        case["probabilities"] = run(rows[case["row"]], case)
    golden = {"context": CONTEXT, "logits": [[round(x, 3) for x in row.tolist()] for row in rows], "cases": cases}
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/data/sampling")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "warpers.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
