"""Measures vLLM on a CPU, step by step in this process, without torch.compile (which takes minutes at start)."""
import os
import time

from measure import measure


class Engine:
    def __init__(self, args):
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_LOGGING_LEVEL": "ERROR",
                       "VLLM_CPU_OMP_THREADS_BIND": f"0-{args.threads - 1}", "OMP_NUM_THREADS": str(args.threads)}
        import vllm

        self._vllm, self._requests = vllm, 0
        self._engine = vllm.LLM(args.model, dtype="bfloat16", enforce_eager=True, enable_prefix_caching=False, max_model_len=4096,
                                max_num_batched_tokens=16384, seed=0).llm_engine

    def run(self, prompts, num_tokens):
        params = self._vllm.SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
        for prompt in prompts:
            self._requests += 1
            self._engine.add_request(str(self._requests), {"prompt_token_ids": prompt}, params)
        times = []
        while self._engine.has_unfinished_requests():
            start = time.perf_counter()
            self._engine.step()
            times.append(time.perf_counter() - start)
        return times


measure(Engine)
