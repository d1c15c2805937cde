"""Makes the goldens of the model families beside Llama: tiny random models and what Hugging Face transformers computes
with them, in the format of make_model_goldens.py.

    python tools/make_architecture_goldens.py                       writes tests/data/models/<name>/ for every shape
    python tools/make_architecture_goldens.py --only qwen2-gqa-f32

Each parameter is drawn here, not by the model's own initialisation, so that a weight, bias or norm that an engine leaves
out changes the logits.
"""

import argparse
import json
import platform
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import safetensors
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from make_model_goldens import FEWEST_DISTINCT, SMALLEST_MARGIN, greedy, results, write_golden

@dataclass
class Shape:
    name: str
    about: str
    model_type: str
    dtype: str
    vocab: int
    keys: dict = field(default_factory=dict)
    std: float = 0.3
    prompt_lengths: tuple = (1, 40)

    @property
    def fewest_distinct(self) -> int:
        """Tiny models with learned positions hardly ever give as many different tokens as rotary ones."""
        return 8 if self.model_type in ("gpt2", "opt") else FEWEST_DISTINCT

    def config(self):
        return AutoConfig.for_model(self.model_type, vocab_size=self.vocab, bos_token_id=1, eos_token_id=2,
                                    pad_token_id=0, **self.keys)


def sizes(hidden, ffn, layers, heads, kv_heads, **more) -> dict:
    return {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "max_position_embeddings": 256, **more}


def gpt2_sizes(hidden, ffn, layers, heads, **more) -> dict:
    return {"n_embd": hidden, "n_inner": ffn, "n_layer": layers, "n_head": heads, "n_positions": 128, **more}


def opt_sizes(hidden, ffn, layers, heads, **more) -> dict:
    return {"hidden_size": hidden, "word_embed_proj_dim": hidden, "ffn_dim": ffn, "num_hidden_layers": layers,
            "num_attention_heads": heads, "max_position_embeddings": 128, **more}


SHAPES = [
    Shape("qwen2-gqa-f32", "biases on queries, keys and values only; tied head; F32", "qwen2", "float32", 101,
          sizes(32, 44, 2, 4, 2, tie_word_embeddings=True)),
    Shape("qwen2-untied-bf16", "separate head, one KV head, BF16", "qwen2", "bfloat16", 89,
          sizes(40, 36, 2, 4, 1, tie_word_embeddings=False)),
    Shape("qwen2-window-f32", "a sliding window of 12 tokens from the second layer on, F32", "qwen2", "float32", 97,
          sizes(32, 40, 3, 4, 2, tie_word_embeddings=True, use_sliding_window=True, sliding_window=12,
                max_window_layers=1)),
    Shape("qwen3-gqa-f32", "norms of each query and key head, head size 16 is not hidden / heads, F32", "qwen3", "float32",
          103, sizes(32, 44, 2, 4, 2, head_dim=16, tie_word_embeddings=True)),
    Shape("qwen3-untied-bf16", "separate head, head size 12, BF16", "qwen3", "bfloat16", 91,
          sizes(36, 40, 2, 2, 1, head_dim=12, tie_word_embeddings=False)),
    Shape("qwen3-bias-f32", "biases on every attention projection, F32", "qwen3", "float32", 83,
          sizes(32, 40, 2, 2, 2, head_dim=8, tie_word_embeddings=True, attention_bias=True)),
    Shape("mistral-window-f32", "a sliding window of 16 tokens in every layer, F32", "mistral", "float32", 107,
          sizes(32, 44, 2, 4, 2, sliding_window=16, tie_word_embeddings=False), prompt_lengths=(3, 70)),
    Shape("mistral-full-bf16", "no window, BF16", "mistral", "bfloat16", 93,
          sizes(40, 36, 2, 4, 1, sliding_window=None, tie_word_embeddings=False)),
    Shape("mistral-narrow-f32", "a window of 5 tokens, head size 12 is not hidden / heads, tied head, F32", "mistral",
          "float32", 79, sizes(32, 40, 2, 2, 1, head_dim=12, sliding_window=5, tie_word_embeddings=True)),
    Shape("gpt2-tied-f32", "fused and transposed projections, learned positions, GELU, F32", "gpt2", "float32", 101,
          gpt2_sizes(32, None, 2, 4)),
    Shape("gpt2-tied-bf16", "the same with an MLP of width 56 in BF16", "gpt2", "bfloat16", 91, gpt2_sizes(40, 56, 2, 2)),
    Shape("gpt2-relu-f32", "separate head, ReLU, norm epsilon 1e-3, F32", "gpt2", "float32", 87,
          gpt2_sizes(36, 44, 2, 3, activation_function="relu", tie_word_embeddings=False, layer_norm_epsilon=1e-3)),
    Shape("opt-pre-norm-f32", "norms before each part as in OPT 125m, F32", "opt", "float32", 101, opt_sizes(32, 48, 2, 4)),
    Shape("opt-post-norm-f32", "norms after each part and a projected embedding as in OPT 350m, F32", "opt", "float32", 97,
          opt_sizes(32, 48, 2, 4, do_layer_norm_before=False, word_embed_proj_dim=20)),
    Shape("opt-bare-bf16", "no biases, norms without weights, GELU, BF16", "opt", "bfloat16", 89,
          opt_sizes(40, 48, 2, 2, enable_bias=False, layer_norm_elementwise_affine=False, activation_function="gelu")),
]


def draw(shape: Shape, seed: int) -> torch.nn.Module:
    """A float32 model with random weights that the shape's dtype can hold."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(shape.config(), attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = shape.std * torch.randn_like(parameter)
            is_norm = parameter.dim() == 1 and not name.endswith("bias")
            parameter.copy_((noise + 1.0 if is_norm else noise).to(getattr(torch, shape.dtype)).float())
    return model


def prompts(shape: Shape, seed: int) -> list:
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(3, shape.vocab, (length,), generator=random).tolist() for length in shape.prompt_lengths]


def find_seed(shape: Shape) -> int:
    """The first seed whose greedy text is no close call and no short loop, for every prompt."""
    for seed in range(1, 2000):
        model = draw(shape, seed)
        found = (greedy(model, prompt) for prompt in prompts(shape, seed))
        if all(g["smallest_margin"] >= SMALLEST_MARGIN and len(set(g["token_ids"])) >= shape.fewest_distinct for g in found):
            return seed
    raise SystemExit(f"{shape.name}: no seed gives clear greedy tokens; choose another deviation")


def golden(shape: Shape, seed: int, folder: Path) -> dict:
    """Computed with the model that was read back from the folder."""
    names = ["float32"] + (["bfloat16"] if shape.dtype == "bfloat16" else [])
    loaded = {name: AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, name),
                                                         attn_implementation="eager").eval() for name in names}
    cases = []
    for prompt in prompts(shape, seed):
        last = len(prompt) - 1
        case = {"name": f"prompt of {len(prompt)} tokens", "prompt_token_ids": prompt}
        for name, model in loaded.items():
            case[name] = results(model, prompt, sorted({last // 2, last}) if name == "float32" else [last])
        cases.append(case)
    return {
        "made_with": {"tool": "tools/make_architecture_goldens.py", "seed": seed, "python": platform.python_version(),
                      "torch": torch.__version__, "transformers": transformers.__version__,
                      "safetensors": safetensors.__version__, "numpy": numpy.__version__},
        "about": shape.about, "weights_dtype": shape.dtype, "cases": cases,
    }


def write(shape: Shape, root: Path) -> None:
    folder = root / shape.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed = find_seed(shape)
    draw(shape, seed).to(getattr(torch, shape.dtype)).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    write_golden(folder / "golden.json", golden(shape, seed, folder))
    size = sum(path.stat().st_size for path in folder.iterdir())
    cases = json.loads((folder / "golden.json").read_text())["cases"]
    margins = [case["float32"]["greedy"]["smallest_margin"] for case in cases]
    assert min(margins) >= SMALLEST_MARGIN / 2, f"{shape.name}: the saved model differs from the one that was searched"
    print(f"{shape.name}: seed {seed}, {size / 1000:.0f} kB, smallest margins {margins}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tests/data/models"), help="folder that gets the model folders")
    parser.add_argument("--only", help="make only shapes whose name begins so")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    chosen = [shape for shape in SHAPES if shape.name.startswith(args.only or "")]
    if not chosen:
        parser.error(f"--only {args.only}: there is no such shape; there are {', '.join(s.name for s in SHAPES)}")
    for shape in chosen:
        write(shape, args.out)


if __name__ == "__main__":
    main()
