#!/usr/bin/env python3
r"""Greedy decoding of many streams on a GPU: compares Pagoda with Hugging Face transformers (PyTorch, bfloat16, its
default attention). Both run a model of the folder's shape: Pagoda with the folder's weights, transformers with random
weights made on the GPU, since only the speed matters. Prints one JSON object per case.

    python3 tools/make_random_model.py --preset llama-8b --out build/models/llama-8b
    python3 tools/compare_transformers.py --pagoda build/cuda/bin/pagoda --model build/models/llama-8b

Needs torch and transformers. A case is STREAMS:PROMPT:OUTPUT, in tokens.
"""
import argparse
import json
import subprocess
import time


def pagoda_seconds(options, streams, prompt, output):
    """Returns the seconds from the first submission to the last token: the mean of two runs after a warm-up run."""
    command = [options.pagoda, "bench", "latency", f"--model={options.model}", "--device=cuda", f"--batch-size={streams}",
               f"--input-len={prompt}", f"--output-len={output}", "--num-iters=2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"compare_transformers: {' '.join(command)}\n{done.stderr.strip()}")
    return json.loads(done.stdout)["latency_ms"]["mean"] / 1000


def load_transformers(options):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(options.model))
    return torch, model.eval(), {"transformers": transformers.__version__, "torch": torch.__version__}


def transformers_seconds(torch, model, streams, prompt, output):
    """Returns the seconds of `generate`, after a short warm-up call."""
    ids = torch.randint(2, model.config.vocab_size, (streams, prompt), device="cuda")
    mask = torch.ones_like(ids)
    for tokens in (4, output):
        torch.cuda.synchronize()
        start = time.monotonic()
        with torch.no_grad():
            result = model.generate(ids, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens,
                                    do_sample=False, pad_token_id=0)
        torch.cuda.synchronize()
        seconds = time.monotonic() - start
    assert result.shape == (streams, prompt + output)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default="build/cuda/bin/pagoda")
    parser.add_argument("--model", required=True)
    parser.add_argument("--case", action="append", help="default: 64:32:128 and 64:128:128")
    options = parser.parse_args()
    cases = [tuple(map(int, case.split(":"))) for case in options.case or ["64:32:128", "64:128:128"]]
    ours = [pagoda_seconds(options, *case) for case in cases]  # first, so that each side has the GPU for itself
    torch, model, versions = load_transformers(options)
    for (streams, prompt, output), seconds in zip(cases, ours):
        theirs = transformers_seconds(torch, model, streams, prompt, output)
        tokens = streams * output
        print(json.dumps({"streams": streams, "prompt": prompt, "output": output,
                          "pagoda_tokens_per_s": round(tokens / seconds, 1),
                          "transformers_tokens_per_s": round(tokens / theirs, 1), "ratio": round(theirs / seconds, 2),
                          **versions}), flush=True)


if __name__ == "__main__":
    main()
