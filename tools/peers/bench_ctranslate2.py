"""Measures CTranslate2: a converted model; the option compute_type is its own."""
import json
import time

from measure import measure


class Engine:
    def __init__(self, args):
        import ctranslate2

        self._ctranslate2 = ctranslate2
        self._generator = ctranslate2.Generator(args.model, device="cpu", inter_threads=1, intra_threads=args.threads,
                                                compute_type=args.option.get("compute_type", "default"))
        with open(f"{args.model}/vocabulary.json", encoding="utf-8") as file:
            self._tokens = json.load(file)

    def run(self, prompts, num_tokens):
        words = [[self._tokens[token] for token in prompt] for prompt in prompts]
        times, start = [], time.perf_counter()

        def stepped(result):
            nonlocal start
            if result.batch_id == len(prompts) - 1:
                now = time.perf_counter()
                times.append(now - start)
                start = now
            return False

        self._generator.generate_batch(words, max_length=num_tokens, min_length=num_tokens, sampling_topk=1, end_token=[],
                                       include_prompt_in_result=False, callback=stepped)
        return times

    def logits(self, tokens):
        import numpy

        return numpy.array(self._generator.forward_batch([tokens]))[0]


measure(Engine)
