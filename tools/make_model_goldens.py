"""Makes the goldens of the model tests: small random models of every family (golden_models.py) and the results of
Hugging Face transformers for them; for Baichuan, which transformers does not support, those of baichuan_reference.py.

    python tools/make_model_goldens.py                     writes tests/data/models/<name>/ for every shape
    python tools/make_model_goldens.py --only llama-mqa    writes only those whose name begins with this
    python tools/make_model_goldens.py --results           keeps the weights, computes golden.json again

Each folder has config.json (some with the keys of transformers 4, some with those of 5), the weights (one file, or
shards and their index) and golden.json:

    made_with      versions of the programs
    weights_dtype  dtype of the stored weights
    about          purpose of the shape
    cases[]        name, prompt_token_ids, and one entry per arithmetic:
      float32 / bfloat16   transformers' dtype. For BF16 weights both are given: float32 computes with the stored
                           (rounded) weights in single precision, bfloat16 as transformers does by default.
        logits[]         {position, values}: the whole vector after that prompt token, 7 significant digits
        prompt_logprobs  log probability of each prompt token but the first (float32 only)
        greedy           {token_ids, logprobs, smallest_margin}: 64 tokens by argmax (the end token does not stop it),
                         the log probability of each, and the smallest gap between the best and the second logit

The tool searches for a seed for which no float32 argmax is a close call and the greedy text does not fall into a short
loop, so that an engine with other rounding must give these tokens.
"""

import argparse
import json
import platform
import shutil
from pathlib import Path

import numpy
import safetensors
import torch
import transformers

from baichuan_reference import compare_with_transformers
from golden_models import SHAPES, Shape

GREEDY_TOKENS = 64
SMALLEST_MARGIN = 0.01
FOLDER_LIMIT_BYTES = 150_000


@torch.no_grad()
def logits_of(model: torch.nn.Module, ids: list) -> torch.Tensor:
    """Returns [tokens, vocab] in float32. Runs the whole sequence each time: no KV cache that could hide an error."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def greedy(model: torch.nn.Module, prompt: list, least_margin: float = 0.0) -> dict:
    """Returns the greedy text. It ends at the first margin below `least_margin`."""
    ids, logprobs, margin = list(prompt), [], float("inf")
    for _ in range(GREEDY_TOKENS):
        last = logits_of(model, ids)[-1]
        best = torch.topk(last, 2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        token = last.argmax().item()
        logprobs.append(torch.log_softmax(last, 0)[token].item())
        ids.append(token)
        if margin < least_margin:
            break
    return {"token_ids": ids[len(prompt):], "logprobs": digits(logprobs), "smallest_margin": round(margin, 5)}


def is_clear(shape: Shape, model: torch.nn.Module, prompt: list) -> bool:
    result = greedy(model, prompt, SMALLEST_MARGIN)
    return result["smallest_margin"] >= SMALLEST_MARGIN and len(set(result["token_ids"])) >= shape.fewest_distinct


def digits(values) -> list:
    return [float(f"{value:.7g}") for value in values]


def results(model: torch.nn.Module, prompt: list, positions: list) -> dict:
    logits = logits_of(model, prompt)
    out = {"logits": [{"position": position, "values": digits(logits[position].tolist())} for position in positions]}
    if model.dtype == torch.float32:
        logprobs = torch.log_softmax(logits, 1)
        out["prompt_logprobs"] = digits(logprobs[i - 1, prompt[i]].item() for i in range(1, len(prompt)))
    out["greedy"] = greedy(model, prompt)
    return out


def find_seed(shape: Shape) -> int:
    """Returns the first seed whose greedy text has no close call and no short loop, for every prompt."""
    for seed in range(1, 2000):
        model = shape.draw(seed)
        if all(is_clear(shape, model, prompt) for prompt in shape.prompts(seed)):
            return seed
    raise SystemExit(f"{shape.name}: no seed gives clear greedy tokens; choose another deviation")


def golden(shape: Shape, seed: int, folder: Path) -> dict:
    """Computes the golden with the model that was read back from the folder."""
    names = ["float32"] + (["bfloat16"] if shape.dtype == "bfloat16" else [])
    loaded = {name: shape.load(folder, name) for name in names}
    cases = []
    for prompt in shape.prompts(seed):
        last = len(prompt) - 1
        case = {"name": f"prompt of {len(prompt)} tokens", "prompt_token_ids": prompt}
        for name, model in loaded.items():
            case[name] = results(model, prompt, sorted({last // 2, last}) if name == "float32" else [last])
        cases.append(case)
    return {
        "made_with": {"tool": "tools/make_model_goldens.py", "seed": seed, "python": platform.python_version(),
                      "torch": torch.__version__, "transformers": transformers.__version__,
                      "safetensors": safetensors.__version__, "numpy": numpy.__version__},
        "about": shape.about, "weights_dtype": shape.dtype, "cases": cases,
    }


def write_model(shape: Shape, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seed = find_seed(shape)
    shape.save(shape.draw(seed), folder)
    return seed


def write_results(shape: Shape, seed: int, folder: Path) -> None:
    value = golden(shape, seed, folder)
    write_golden(folder / "golden.json", value)
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > FOLDER_LIMIT_BYTES:
        raise SystemExit(f"{folder} has {size} bytes, more than {FOLDER_LIMIT_BYTES}")
    margins = [case["float32"]["greedy"]["smallest_margin"] for case in value["cases"]]
    assert min(margins) >= SMALLEST_MARGIN / 2, f"{shape.name}: the saved model differs from the one that was searched"
    print(f"{shape.name}: seed {seed}, {size / 1000:.0f} kB, {len(list(folder.glob('*.safetensors')))} weight file(s), "
          f"smallest margins {margins}", flush=True)


def write_golden(path: Path, value: dict) -> None:
    """Writes one line per list of numbers: small, and differences between two versions can be read."""
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
    parser.add_argument("--only", help="make only shapes whose name begins so")
    parser.add_argument("--results", action="store_true", help="keep the weights that are there")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    chosen = [shape for shape in SHAPES if shape.name.startswith(args.only or "")]
    if not chosen:
        parser.error(f"--only {args.only}: there is no such shape; there are {', '.join(s.name for s in SHAPES)}")
    if any(shape.model_type == "baichuan" for shape in chosen):
        compare_with_transformers()
    for shape in chosen:
        folder = args.out / shape.name
        if args.results:
            seed = json.loads((folder / "golden.json").read_text())["made_with"]["seed"]
        else:
            seed = write_model(shape, folder)
        write_results(shape, seed, folder)


if __name__ == "__main__":
    main()
