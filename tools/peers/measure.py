"""The programs of this folder share this module: it reads their flags, takes the times and prints one line of JSON.

A program gives `measure(load)` a function that loads its engine. The engine has

    run(prompts, num_tokens)   generates greedily for all prompts (lists of token IDs) at once; returns seconds: first
                               until every prompt has its first token, then of each later step
    logits(tokens)             returns an array [tokens, vocabulary] for one prompt; only for --accuracy
"""
import argparse
import json
import os
import random
import statistics
import sys
import time

WINDOW = 512


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prefill", type=int, default=WINDOW)
    parser.add_argument("--streams", default="1,16,32")
    parser.add_argument("--context", type=int, default=64, help="prompt tokens of each stream")
    parser.add_argument("--tokens", type=int, default=24, help="decoded by each stream")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--only-first-token", action="store_true", help="measures nothing but the start")
    parser.add_argument("--accuracy", help="file of reference.py; measures accuracy and no speed")
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE, of the engine")
    args = parser.parse_args()
    args.option = dict(option.split("=", 1) for option in args.option)
    return args


def prompts_of(args, count: int, length: int, seed: int) -> list:
    numbers = random.Random(seed)
    return [[numbers.randrange(100, args.vocabulary) for _ in range(length)] for _ in range(count)]


def accuracy(engine, file: str) -> dict:
    """Returns the mean KL divergence from the reference and how often the likeliest token is the same."""
    import numpy

    reference = numpy.load(file)
    divergences, same = [], []
    for tokens, expected in zip(reference["tokens"], reference["log_probabilities"]):
        half = len(tokens) // 2
        logits = numpy.asarray(engine.logits(tokens.tolist()), dtype=numpy.float64)[half:]
        found = logits - numpy.logaddexp.reduce(logits, axis=1, keepdims=True)
        expected = expected.astype(numpy.float64)
        divergences.append((numpy.exp(expected) * (expected - found)).sum(axis=1))
        same.append(expected.argmax(axis=1) == found.argmax(axis=1))
    return {"kld": float(numpy.concatenate(divergences).mean()), "same_top": float(numpy.concatenate(same).mean())}


def speeds(engine, args) -> dict:
    engine.run(prompts_of(args, 1, 32, 1), 2)
    result = {f"prefill {args.prefill}": args.prefill / engine.run(prompts_of(args, 1, args.prefill, 2), 1)[0]}
    for count in map(int, filter(None, args.streams.split(","))):
        steps = engine.run(prompts_of(args, count, args.context, 3), args.tokens)[1:]
        result[f"decode {count}"] = count / statistics.median(steps)
    return result


def measure(load) -> None:
    args = flags()
    engine = load(args)
    if args.only_first_token:
        engine.run(prompts_of(args, 1, 8, 1), 1)
        result = {"first_token_at": time.time()}
    else:
        result = accuracy(engine, args.accuracy) if args.accuracy else speeds(engine, args)
    print(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # some engines hang or crash in their destructors
