#!/usr/bin/env python3
"""Converts models of tests/data/models with llama.cpp's own converter, for tests/engine/models/gguf_golden_test.cpp.

    python3 tools/make_gguf_goldens.py LLAMA_CPP [NAME ...]

LLAMA_CPP: a folder with convert_hf_to_gguf.py and gguf-py (llama.cpp's sources; the sdist of llama-cpp-python has them
in vendor/llama.cpp). Needs torch, transformers and numpy. Writes tests/data/gguf/NAME.gguf. The goldens are those of
the folders, made by transformers. These models have no tokenizer: the vocabulary is made up.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Name: type of the weights.
MODELS = {
    "llama-gqa-bf16": "bf16",           # rows of queries and keys are interleaved
    "llama-rope-llama3": "bf16",        # frequencies scaled by a tensor of factors
    "llama-rope-linear-f32": "f32",
    "llama-bias-f32": "f32",
    "mistral-full-bf16": "bf16",
    "phi3-partial-f32": "f32",          # packed projections, heads rotated in part
    "qwen2-gqa-f32": "f32",
    "qwen3-gqa-f32": "f32",
    "granite-gqa-f32": "f32",           # factors of embedding, scores, residual stream and logits
    "gpt2-tied-f32": "f32",             # weights stored transposed in the folder
}


def convert(name: str, dtype: str) -> None:
    import gguf
    import torch
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType, get_model_architecture

    folder = ROOT / "tests/data/models" / name
    out = ROOT / "tests/data/gguf" / f"{name}.gguf"
    out.unlink(missing_ok=True)
    hparams = ModelBase.load_hparams(folder, False)
    model_class = get_model_class(get_model_architecture(hparams, ModelType.TEXT))

    def made_up_vocabulary(model) -> None:
        tokens = [f"token{i}" for i in range(model.hparams["vocab_size"])]
        model.gguf_writer.add_tokenizer_model("gpt2")
        model.gguf_writer.add_tokenizer_pre("gpt-2")
        model.gguf_writer.add_token_list(tokens)
        model.gguf_writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
        model.gguf_writer.add_token_merges([])

    types = {"f32": gguf.LlamaFileType.ALL_F32, "bf16": gguf.LlamaFileType.MOSTLY_BF16}
    with torch.inference_mode():
        model = model_class(folder, types[dtype], out)
        model.hparams.setdefault("n_ctx", model.hparams.get("n_positions"))  # published GPT-2 configs have it
        model.set_vocab = lambda: made_up_vocabulary(model)
        model.write()


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sources = Path(sys.argv[1])
    sys.path[:0] = [str(sources), str(sources / "gguf-py")]
    (ROOT / "tests/data/gguf").mkdir(exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        convert(name, MODELS[name])


if __name__ == "__main__":
    main()
