"""Measures onnxruntime-genai: a model of its builder."""
import json
import time

from measure import measure


class Engine:
    def __init__(self, args):
        import onnxruntime_genai

        self._genai = onnxruntime_genai
        config = onnxruntime_genai.Config(args.model)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": args.threads}}}}))
        self._model = onnxruntime_genai.Model(config)

    def _generator(self, prompts, num_tokens):
        length = len(prompts[0]) + num_tokens
        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(max_length=length, min_length=length, batch_size=len(prompts), do_sample=False)
        return self._genai.Generator(self._model, params)

    def run(self, prompts, num_tokens):
        import numpy

        generator = self._generator(prompts, num_tokens)
        start = time.perf_counter()
        generator.append_tokens(numpy.array(prompts, dtype=numpy.int32))
        times = []
        for _ in range(num_tokens):
            generator.generate_next_token()
            now = time.perf_counter()
            times.append(now - start)
            start = now
        return times

    def logits(self, tokens):
        """Takes one token after the other: the engine keeps the logits of a prompt's last token only."""
        import numpy

        generator = self._generator([tokens], 1)
        rows = []
        for token in tokens:
            generator.append_tokens(numpy.array([[token]], dtype=numpy.int32))
            rows.append(generator.get_logits()[0, -1].copy())
        return numpy.stack(rows)


measure(Engine)
