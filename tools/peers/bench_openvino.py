"""Measures OpenVINO GenAI's continuous batching: an exported model; options are properties of the device."""
import time

from measure import measure


class Engine:
    def __init__(self, args):
        import openvino
        import openvino_genai as genai

        self._openvino, self._genai = openvino, genai
        self._model, self._properties = args.model, {"INFERENCE_NUM_THREADS": args.threads, **args.option}
        if args.accuracy:
            self._compiled = openvino.Core().compile_model(f"{args.model}/openvino_model.xml", "CPU", self._properties)
            return
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = 16384
        self._pipeline = genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU", self._properties)
        self._requests = 0

    def run(self, prompts, num_tokens):
        import numpy

        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = num_tokens, True, False
        handles = []  # a request whose handle has gone is cancelled
        for prompt in prompts:
            tokens = self._openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
            handles.append(self._pipeline.add_request(self._requests, tokens, config))
            self._requests += 1
        times = []
        while self._pipeline.has_non_finished_requests():
            start = time.perf_counter()
            self._pipeline.step()
            times.append(time.perf_counter() - start)
        return times

    def logits(self, tokens):
        import numpy

        request = self._compiled.create_infer_request()
        request.reset_state()
        length = len(tokens)
        inputs = {"input_ids": numpy.array([tokens], dtype=numpy.int64), "attention_mask": numpy.ones((1, length), dtype=numpy.int64),
                  "position_ids": numpy.arange(length, dtype=numpy.int64)[None], "beam_idx": numpy.zeros(1, dtype=numpy.int32)}
        names = {name for each in self._compiled.inputs for name in each.get_names()}
        return request.infer({name: value for name, value in inputs.items() if name in names})["logits"][0]


measure(Engine)
