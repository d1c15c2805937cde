"""Makes the goldens of the model tests: small random Llamas and what Hugging Face transformers computes with them.

    python tools/make_model_goldens.py                 writes tests/data/models/<name>/ for every shape
    python tools/make_model_goldens.py --only llama-mqa-odd

Each folder holds config.json (half of them with the keys of transformers 4, half with those of 5), the weights (one
file, or shards and their index) and golden.json:

    made_with      versions of the programs
    weights_dtype  dtype of the stored weights
    about          what the shape is there for
    cases[]        name, prompt_token_ids, and one entry per arithmetic:
      float32 / bfloat16   transformers' dtype. For BF16 weights both are given: float32 computes with the stored
                           (rounded) weights in single precision, bfloat16 as transformers does by default.
        logits[]       {position, values}: the whole vector after that prompt token, 7 significant digits
        logprobs[]     {position, values}: log softmax of the same, for the last position (float32 only)
        greedy         {token_ids, logprobs, smallest_margin}: 64 tokens by argmax (the end token does not stop it), the
                       log probability of each, and the least gap between the best and the second logit on the way

Weights are drawn with a large deviation, and a seed is searched for which no float32 argmax is a close call and the
greedy text does not fall into a short loop, so that an engine with other rounding still has to give the same tokens.
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
from transformers import LlamaConfig, LlamaForCausalLM

GREEDY_TOKENS = 64
SMALLEST_MARGIN = 0.01
FEWEST_DISTINCT = 20
FOLDER_LIMIT_BYTES = 150_000


@dataclass
class Shape:
    name: str
    about: str
    dtype: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tie: bool
    theta: float = 10000.0
    head_dim: int = 0  # 0: hidden / heads
    shard_size: str = ""
    std: float = 0.3
    max_len: int = 256
    classic_config: bool = False
    extra: dict = field(default_factory=dict)
    prompt_lengths: tuple = (1, 17, 90)

    def config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=self.vocab, hidden_size=self.hidden, intermediate_size=self.ffn, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim or self.hidden // self.heads, max_position_embeddings=self.max_len,
            rope_parameters={"rope_type": "default", "rope_theta": self.theta, **self.extra.get("rope", {})},
            tie_word_embeddings=self.tie, initializer_range=self.std, rms_norm_eps=self.extra.get("eps", 1e-5),
            attention_bias=self.extra.get("bias", False), mlp_bias=self.extra.get("bias", False),
            bos_token_id=1, eos_token_id=2)


SHAPES = [
    Shape("llama-mha-f32", "one KV head per head, separate head, F32", "float32", hidden=32, ffn=56, layers=2, heads=4,
          kv_heads=4, vocab=131, tie=False),
    Shape("llama-gqa-bf16", "groups of three heads, separate head, BF16", "bfloat16", hidden=48, ffn=80, layers=2,
          heads=6, kv_heads=2, vocab=199, tie=False, theta=500000.0, classic_config=True),
    Shape("llama-mqa-odd", "one KV head, hidden 60, head size 20, MLP width 26, vocabulary 307, tied head, BF16",
          "bfloat16", hidden=60, ffn=26, layers=2, heads=3, kv_heads=1, vocab=307, tie=True, theta=1000.0,
          prompt_lengths=(1, 47)),
    Shape("llama-wide-heads-f32", "head size 20 is not hidden / heads (36 / 2), MLP width 44, vocabulary 307, tied, F32",
          "float32", hidden=36, ffn=44, layers=2, heads=2, kv_heads=1, vocab=307, tie=True, theta=1000000.0, head_dim=20,
          classic_config=True, prompt_lengths=(2, 40)),
    Shape("llama-sharded-bf16", "three weight files and an index, BF16", "bfloat16", hidden=40, ffn=70, layers=3,
          heads=4, kv_heads=2, vocab=149, tie=False, shard_size="44KB"),
    Shape("llama-rope-llama3", "Llama 3.1's scaled rotary positions, prompts longer than the original context, BF16",
          "bfloat16", hidden=32, ffn=72, layers=2, heads=2, kv_heads=1, vocab=173, tie=True, theta=10000.0,
          classic_config=True, extra={"rope": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 64}}, prompt_lengths=(5, 60, 150)),
    Shape("llama-rope-linear-f32", "linearly scaled rotary positions, norm epsilon 1e-3, F32", "float32", hidden=32,
          ffn=40, layers=2, heads=4, kv_heads=2, vocab=101, tie=True, extra={"rope": {"rope_type": "linear", "factor": 4.0},
                                                                            "eps": 1e-3}, prompt_lengths=(3, 70)),
    Shape("llama-bias-f32", "biases on every projection, F32", "float32", hidden=32, ffn=44, layers=2, heads=4,
          kv_heads=1, vocab=113, tie=True, extra={"bias": True}, classic_config=True, prompt_lengths=(4, 29)),
]


def build(shape: Shape, seed: int) -> LlamaForCausalLM:
    """A float32 model with random weights that the shape's dtype can hold. The norms' weights are drawn as well, else a
    test would not see them left out."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(shape.config()).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1.0 + 0.3 * torch.randn_like(parameter))
            elif name.endswith(".bias"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
            # Parameters only: model.to(dtype) would round the rotary frequencies too.
            parameter.copy_(parameter.to(getattr(torch, shape.dtype)).float())
    return model


def save(shape: Shape, model: LlamaForCausalLM, folder: Path) -> None:
    model.to(getattr(torch, shape.dtype)).save_pretrained(
        folder, **({"max_shard_size": shape.shard_size} if shape.shard_size else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    if shape.classic_config:
        use_classic_keys(folder / "config.json")


def use_classic_keys(path: Path) -> None:
    """Rewrites a config.json of transformers 5 with the keys of transformers 4, which most published models have."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def prompts(shape: Shape, seed: int) -> list:
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(3, shape.vocab, (length,), generator=random).tolist() for length in shape.prompt_lengths]


@torch.no_grad()
def logits_of(model: LlamaForCausalLM, ids: list) -> torch.Tensor:
    """[tokens, vocab] in float32. The whole sequence is run each time: no KV cache that could hide an error."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def greedy(model: LlamaForCausalLM, prompt: list) -> dict:
    ids, logprobs, margin = list(prompt), [], float("inf")
    for _ in range(GREEDY_TOKENS):
        last = logits_of(model, ids)[-1]
        best = torch.topk(last, 2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        token = last.argmax().item()
        logprobs.append(torch.log_softmax(last, 0)[token].item())
        ids.append(token)
    return {"token_ids": ids[len(prompt):], "logprobs": digits(logprobs), "smallest_margin": round(margin, 5)}


def digits(values) -> list:
    return [float(f"{value:.7g}") for value in values]


def results(model: LlamaForCausalLM, prompt: list, positions: list) -> dict:
    logits = logits_of(model, prompt)
    last = len(prompt) - 1
    out = {"logits": [{"position": position, "values": digits(logits[position].tolist())} for position in positions]}
    if model.dtype == torch.float32:
        out["logprobs"] = [{"position": last, "values": digits(torch.log_softmax(logits[last], 0).tolist())}]
    out["greedy"] = greedy(model, prompt)
    return out


def find_seed(shape: Shape) -> int:
    """The first seed whose greedy text is no close call and no short loop, for every prompt."""
    for seed in range(1, 2000):
        model = build(shape, seed)
        found = (greedy(model, prompt) for prompt in prompts(shape, seed))
        if all(g["smallest_margin"] >= SMALLEST_MARGIN and len(set(g["token_ids"])) >= FEWEST_DISTINCT for g in found):
            return seed
    raise SystemExit(f"{shape.name}: no seed gives clear greedy tokens; choose another deviation")


def golden(shape: Shape, seed: int, folder: Path) -> dict:
    """Computed with the model that was read back from the folder."""
    arithmetic = {"float32": torch.float32}
    if shape.dtype == "bfloat16":
        arithmetic["bfloat16"] = torch.bfloat16
    loaded = {name: LlamaForCausalLM.from_pretrained(folder, dtype=dtype).eval() for name, dtype in arithmetic.items()}
    cases = []
    for prompt in prompts(shape, seed):
        last = len(prompt) - 1
        case = {"name": f"prompt of {len(prompt)} tokens", "prompt_token_ids": prompt}
        for name, model in loaded.items():
            inner = sorted({0, last // 2, last}) if name == "float32" else [last]
            case[name] = results(model, prompt, inner)
        cases.append(case)
    return {
        "made_with": {"tool": "tools/make_model_goldens.py", "seed": seed, "python": platform.python_version(),
                      "torch": torch.__version__, "transformers": transformers.__version__,
                      "safetensors": safetensors.__version__, "numpy": numpy.__version__},
        "about": shape.about, "weights_dtype": shape.dtype, "cases": cases,
    }


def write(shape: Shape, root: Path) -> None:
    folder = root / shape.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed = find_seed(shape)
    save(shape, build(shape, seed), folder)
    write_golden(folder / "golden.json", golden(shape, seed, folder))
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > FOLDER_LIMIT_BYTES:
        raise SystemExit(f"{folder} has {size} bytes, more than {FOLDER_LIMIT_BYTES}")
    cases = json.loads((folder / "golden.json").read_text())["cases"]
    margins = [case["float32"]["greedy"]["smallest_margin"] for case in cases]
    assert min(margins) >= SMALLEST_MARGIN / 2, f"{shape.name}: the saved model differs from the one that was searched"
    print(f"{shape.name}: seed {seed}, {size / 1000:.0f} kB, {len(list(folder.glob('*.safetensors')))} weight file(s), "
          f"smallest margins {margins}", flush=True)


def write_golden(path: Path, value: dict) -> None:
    """One line per list of numbers: small, and a difference between two versions can be read."""
    def text(item, depth: int) -> str:
        pad = " " * depth
        if isinstance(item, dict):
            return "{\n" + ",\n".join(f"{pad} {json.dumps(k)}: {text(v, depth + 1)}" for k, v in item.items()) + f"\n{pad}}}"
        if isinstance(item, list) and item and isinstance(item[0], dict):
            return "[\n" + ",\n".join(f"{pad} {text(v, depth + 1)}" for v in item) + f"\n{pad}]"
        return json.dumps(item, separators=(",", ":"))
    path.write_text(text(value, 0) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tests/data/models"), help="folder that gets the model folders")
    parser.add_argument("--only", help="make only this one")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    chosen = [shape for shape in SHAPES if args.only in (None, shape.name)]
    if not chosen:
        parser.error(f"--only {args.only}: there is no such shape; there are {', '.join(s.name for s in SHAPES)}")
    for shape in chosen:
        write(shape, args.out)


if __name__ == "__main__":
    main()
