"""Writes windows of tokens and transformers' float32 log-probabilities of their second halves, for --accuracy.

    reference.py MODEL --tokens FILE --windows N --out FILE

FILE has token IDs as JSON. Windows are those of `pagoda bench accuracy` for a tokenizer that puts no
token before a text.
"""
import argparse
import json
from pathlib import Path

import numpy
import torch
import transformers

from measure import WINDOW

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--tokens", type=Path, required=True)
parser.add_argument("--windows", type=int, default=4)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--out", required=True)
args = parser.parse_args()
torch.set_num_threads(args.threads)
model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
ids = json.loads(args.tokens.read_text())
windows = [ids[start:start + WINDOW] for start in range(0, min(len(ids) - WINDOW + 1, args.windows * WINDOW), WINDOW)]
if not windows:
    parser.error(f"{args.tokens} has {len(ids)} tokens, and a window has {WINDOW}")
with torch.no_grad():
    rows = [model(torch.tensor([window])).logits[0, WINDOW // 2:].log_softmax(-1).numpy() for window in windows]
with open(args.out, "wb") as file:
    numpy.savez(file, tokens=numpy.array(windows, dtype=numpy.int64), log_probabilities=numpy.stack(rows))
