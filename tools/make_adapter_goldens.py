"""Makes the goldens of the adapter tests: adapters of the small random models in tests/data/models with random values, as
Hugging Face's peft saves them and as llama.cpp's convert_lora_to_gguf.py writes them, and the results of peft and
transformers for them.

    python tools/make_adapter_goldens.py                     writes tests/data/adapters/<name>/ for every adapter
    python tools/make_adapter_goldens.py --only llama        writes only those whose name begins with this

Each folder has the adapter (adapter_config.json and adapter_model.safetensors or .bin; or adapter.gguf) and golden.json:

    made_with      versions of the programs, and the seed of the adapter's values
    about          purpose of the adapter
    base           name of the model's folder in tests/data/models
    modules[]      what peft reads from the files: module; scale, a, b, magnitude where it has low-rank matrices; weight
                   and bias where the adapter replaces them. A tensor is {shape, digest}: the sum of element i times
                   (i % 7) + 1, in float64. The tensors of a GGUF golden are those of the PEFT folder it was made from.
    virtual_tokens of a prompt adapter: the tensor that peft has in front of each prompt
    cases[]        name, prompt_token_ids, and `adapter` and `base`, the results with the adapter and without:
      logits         the whole vector after the last prompt token, 7 significant digits
      greedy         {token_ids, logprobs, smallest_margin}: 24 tokens by argmax

All results are computed in float32 with the stored (rounded) weights. The tool searches for a seed for which no argmax
is a close call and the adapter changes the tokens of every prompt.
"""

import argparse
import json
import math
import platform
import shutil
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy
import peft
import safetensors.torch
import torch
import transformers
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper

from golden_models import SHAPES
from make_model_goldens import SMALLEST_MARGIN, digits, logits_of, write_golden

GREEDY_TOKENS = 24
MODELS = Path("tests/data/models")
DECODER_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass
class Adapter:
    name: str
    about: str
    base: str
    config: dict
    dtype: str = "float32"
    strength: float = 0.15  # deviation of the elements of scale * B A
    save: dict = field(default_factory=dict)
    gguf_type: str = ""  # not empty: a GGUF file with this type of tensors
    method: str = "LORA"  # peft_type

    @property
    def is_prompt(self) -> bool:
        return self.method != "LORA"


def lora(r, alpha, targets, **more) -> dict:
    return {"r": r, "lora_alpha": alpha, "target_modules": targets, **more}


def prompts(name, about, base, method, tokens, strength, **more) -> Adapter:
    """`strength`: deviation of the elements of the virtual tokens."""
    options = {key: more.pop(key) for key in ("dtype", "save") if key in more}
    return Adapter(name, about, base, {"num_virtual_tokens": tokens, **more}, strength=strength, method=method, **options)


ADAPTERS = [
    Adapter("llama-rank-8", "all linear layers of the decoder, F32", "llama-mha-f32", lora(8, 16, "all-linear")),
    Adapter("llama-rank-1-bf16", "rank 1 on queries and values, BF16, an alpha that is no whole multiple of the rank",
            "llama-gqa-bf16", lora(1, 0.75, ["q_proj", "v_proj"]), dtype="bfloat16", strength=0.3),
    Adapter("llama-embedding", "embedding and head beside two linear layers; peft saves the base weights of both too",
            "llama-mha-f32", lora(4, 8, ["embed_tokens", "lm_head", "q_proj", "down_proj"])),
    Adapter("llama-bias-bin", "biases of the whole model; a file of PyTorch", "llama-bias-f32",
            lora(4, 4, ["k_proj", "o_proj"], bias="all"), save={"safe_serialization": False}),
    Adapter("qwen2-rank-64-rslora", "rank above the width, rsLoRA, modules by a pattern, F16", "qwen2-gqa-f32",
            lora(64, 16, r".*\.layers\.[01]\.self_attn\.(q|v|o)_proj", use_rslora=True), dtype="float16"),
    Adapter("qwen2-tied-embedding", "embedding whose weights the head has too; no base weights", "qwen2-gqa-f32",
            lora(6, 12, ["embed_tokens", "up_proj"]), save={"save_embedding_layers": False}),
    Adapter("qwen2-saved-modules", "new weights of embedding and head (modules_to_save)", "qwen2-untied-bf16",
            lora(8, 8, ["v_proj", "gate_proj"], modules_to_save=["embed_tokens", "lm_head"]), dtype="bfloat16"),
    Adapter("qwen2-tied-saved-embedding", "a new embedding; the head keeps the weights that both had", "qwen2-gqa-f32",
            lora(2, 4, ["q_proj"], modules_to_save=["embed_tokens"])),
    Adapter("qwen3-patterns", "rank_pattern, alpha_pattern and exclude_modules; two patterns fit one module",
            "qwen3-gqa-f32",
            lora(4, 8, DECODER_LAYERS, exclude_modules=r".*\.1\.mlp\.up_proj",
                 rank_pattern={r"layers\.0\.self_attn\.[qk]_proj": 6, "down_proj": 2, "q_proj": 3},
                 alpha_pattern={r"^model\.layers\.1\.mlp.*": 20, "gate_proj": 5, "o_proj": 2.5})),
    Adapter("gemma3-rank-256-layers", "rank 256 on two of six layers (layers_to_transform), BF16", "gemma3-six-layers-f32",
            lora(256, 64, ["q_proj", "down_proj"], layers_to_transform=[1, 5], layers_pattern="layers"),
            dtype="bfloat16"),
    Adapter("gpt2-bias", "transposed layers with their biases", "gpt2-tied-f32",
            lora(8, 16, ["c_attn", "c_proj", "c_fc"], bias="lora_only", fan_in_fan_out=True)),
    Adapter("gpt2-dora-rslora", "DoRA of transposed layers, with rsLoRA", "gpt2-relu-f32",
            lora(4, 8, ["c_attn", "c_fc"], use_dora=True, use_rslora=True, fan_in_fan_out=True)),
    Adapter("phi3-dora", "DoRA of packed projections", "phi3-gqa-f32",
            lora(8, 16, ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], use_dora=True)),
    Adapter("llama-embedding-dora", "DoRA of an embedding, whose columns it scales", "llama-wide-heads-f32",
            lora(4, 8, ["embed_tokens", "o_proj"], use_dora=True), save={"save_embedding_layers": False}),
    Adapter("llama-gguf", "GGUF of F32: interleaved heads, embedding and head", "llama-gqa-bf16",
            lora(8, 12, DECODER_LAYERS + ["embed_tokens", "lm_head"]), gguf_type="F32"),
    Adapter("phi3-gguf-f16", "GGUF of F16: packed projections", "phi3-partial-f32",
            lora(4, 8, ["qkv_proj", "o_proj", "gate_up_proj"]), dtype="float16", gguf_type="F16"),
    prompts("llama-prompt-tuning", "embeddings of five virtual tokens", "llama-gqa-bf16", "PROMPT_TUNING", 5, 1.0),
    prompts("qwen2-prompt-tuning-bf16", "a whole block of virtual tokens, BF16", "qwen2-gqa-f32", "PROMPT_TUNING", 16,
            1.0, dtype="bfloat16"),
    prompts("gemma3-prompt-tuning", "a model that scales the embeddings of its tokens", "gemma3-six-layers-f32",
            "PROMPT_TUNING", 9, 1.5),
    prompts("granite-prompt-tuning", "a model that scales all embeddings", "granite-gqa-f32", "PROMPT_TUNING", 3, 1.0),
    prompts("opt-prompt-tuning", "learned positions from 2", "opt-pre-norm-f32", "PROMPT_TUNING", 6, 1.0),
    prompts("gpt2-p-tuning", "p-tuning by an MLP; learned positions", "gpt2-tied-f32", "P_TUNING", 4, 1.0,
            encoder_hidden_size=20),
    prompts("llama-p-tuning-bin", "p-tuning by an LSTM; a file of PyTorch", "llama-mha-f32", "P_TUNING", 1, 1.0,
            encoder_reparameterization_type="LSTM", encoder_hidden_size=12, save={"safe_serialization": False}),
    prompts("llama-prefix", "keys and values of seven virtual tokens, with grouped heads", "llama-gqa-bf16",
            "PREFIX_TUNING", 7, 1.0),
    prompts("qwen2-prefix-projection", "a prefix from an MLP", "qwen2-gqa-f32", "PREFIX_TUNING", 5, 1.0,
            prefix_projection=True, encoder_hidden_size=10),
    prompts("gemma3-prefix", "a prefix longer than the window of five of six layers", "gemma3-six-layers-f32",
            "PREFIX_TUNING", 9, 1.0),
    prompts("gpt2-prefix-f16", "a prefix beside packed projections, F16", "gpt2-tied-f32", "PREFIX_TUNING", 3, 1.0,
            dtype="float16"),
    prompts("opt-prefix", "a prefix of a model with learned positions from 2", "opt-pre-norm-f32", "PREFIX_TUNING", 4,
            1.0),
    prompts("phi3-prefix", "a prefix beside packed projections and rotary positions", "phi3-gqa-f32", "PREFIX_TUNING", 18,
            1.0),
    prompts("cohere2-prefix", "layers without positions", "cohere2-four-layers-f32", "PREFIX_TUNING", 5, 1.0),
    prompts("qwen3-prefix", "a model with norms over keys", "qwen3-gqa-f32", "PREFIX_TUNING", 2, 1.0),
]


def load_base(adapter: Adapter) -> torch.nn.Module:
    shape = next(shape for shape in SHAPES if shape.name == adapter.base)
    return shape.load(MODELS / adapter.base, "float32")


def lora_modules(model: peft.PeftModel) -> dict:
    return {name: module for name, module in model.base_model.model.named_modules() if isinstance(module, LoraLayer)}


@torch.no_grad()
def draw(adapter: Adapter, seed: int) -> peft.PeftModel:
    """Returns the base model with an adapter of random values that the adapter's dtype can represent."""
    if adapter.is_prompt:
        return draw_prompt(adapter, seed)
    base = load_base(adapter)
    base.name_or_path = str(MODELS / adapter.base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **adapter.config))
    torch.manual_seed(seed)
    dtype = getattr(torch, adapter.dtype)

    def put(parameter: torch.Tensor, value: torch.Tensor) -> None:
        parameter.copy_(value.to(dtype).float())

    for name, module in lora_modules(model).items():
        rank, scale = module.r["default"], module.scaling["default"]
        std = math.sqrt(adapter.strength / (scale * math.sqrt(rank)))
        is_embedding = "default" in module.lora_embedding_A
        pair = ([module.lora_embedding_A["default"], module.lora_embedding_B["default"]] if is_embedding else
                [module.lora_A["default"].weight, module.lora_B["default"].weight])
        for matrix in pair:
            put(matrix, std * torch.randn_like(matrix))
        if "default" in module.lora_magnitude_vector:
            magnitude = module.lora_magnitude_vector["default"].weight
            put(magnitude, magnitude * (1 + 0.2 * torch.randn_like(magnitude)))
    for name, parameter in model.named_parameters():
        is_bias = name.endswith(".bias") and parameter.requires_grad
        if is_bias or "modules_to_save.default" in name:
            put(parameter, parameter + 0.15 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def draw_prompt(adapter: Adapter, seed: int) -> peft.PeftModel:
    """Returns the base model with a prompt adapter of random values."""
    base = load_base(adapter)
    base.name_or_path = str(MODELS / adapter.base)
    config = peft.get_peft_config({"peft_type": adapter.method, "task_type": "CAUSAL_LM", **adapter.config})
    model = peft.get_peft_model(base, config)
    torch.manual_seed(seed)
    encoder = model.prompt_encoder["default"]
    for parameter in encoder.parameters():
        parameter.copy_(torch.randn_like(parameter) / math.sqrt(parameter.shape[-1] if parameter.dim() > 1 else 1.0))
    encoder.embedding.weight.copy_(adapter.strength * torch.randn_like(encoder.embedding.weight))
    return model


def save(adapter: Adapter, model: peft.PeftModel, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, **adapter.save)
    (folder / "README.md").unlink(missing_ok=True)
    config_path = folder / "adapter_config.json"
    config = json.loads(config_path.read_text())
    for key in ("target_modules", "exclude_modules", "modules_to_save"):
        if isinstance(config.get(key), list):
            config[key].sort()  # peft writes sets, whose order is random
    config_path.write_text(json.dumps(config, indent=2) + "\n")
    path = folder / "adapter_model.safetensors"
    if adapter.dtype != "float32":
        tensors = safetensors.torch.load_file(path)
        safetensors.torch.save_file({name: tensor.to(getattr(torch, adapter.dtype)) for name, tensor in tensors.items()},
                                    path, metadata={"format": "pt"})
    for file in folder.iterdir():
        file.chmod(0o644)


def load(adapter: Adapter, folder: Path) -> peft.PeftModel:
    return peft.PeftModel.from_pretrained(load_base(adapter), str(folder)).eval()


# ---- GGUF ----


def gguf_heads(config, module: str) -> int:
    """Returns the number of heads whose rows llama.cpp's converter interleaves, or 0."""
    if config.model_type != "llama":
        return 0
    return {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(module.split(".")[-1], 0)


def write_gguf(adapter: Adapter, model: peft.PeftModel, path: Path) -> None:
    """Writes what convert_lora_to_gguf.py of llama.cpp writes."""
    config = model.base_model.model.config
    names = gguf.get_tensor_name_map({"llama": gguf.MODEL_ARCH.LLAMA, "phi3": gguf.MODEL_ARCH.PHI3}[config.model_type],
                                     config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(adapter.config["lora_alpha"]))
    writer.add_name(adapter.name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if adapter.gguf_type == "F32" else gguf.LlamaFileType.MOSTLY_F16)
    numpy_type = {"F32": numpy.float32, "F16": numpy.float16}[adapter.gguf_type]
    for name, module in lora_modules(model).items():
        if "default" in module.lora_embedding_A:
            a = module.lora_embedding_A["default"].detach().T
            b = module.lora_embedding_B["default"].detach()
        else:
            a = module.lora_A["default"].weight.detach()
            b = module.lora_B["default"].weight.detach()
        if heads := gguf_heads(config, name):
            b = b.reshape(heads, 2, b.shape[0] // heads // 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
        gguf_name = names.get_name(name + ".weight", try_suffixes=(".weight",))
        writer.add_tensor(gguf_name + ".lora_a", a.contiguous().numpy().astype(numpy_type))
        writer.add_tensor(gguf_name + ".lora_b", b.contiguous().numpy().astype(numpy_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.chmod(0o644)


# ---- results ----


def tensor_digest(tensor: torch.Tensor) -> dict:
    flat = tensor.detach().double().flatten()
    return {"shape": list(tensor.shape), "digest": float(torch.sum(flat * (torch.arange(len(flat)) % 7 + 1)))}


def modules_of(adapter: Adapter, model: peft.PeftModel, folder: Path) -> list:
    """Returns what peft has for each module that the adapter changes."""
    modules = {}
    for name, module in lora_modules(model).items():
        is_embedding = "default" in module.lora_embedding_A
        entry = modules.setdefault(name, {"module": name})
        entry["scale"] = module.scaling["default"]
        entry["a"] = tensor_digest(module.lora_embedding_A["default"] if is_embedding else module.lora_A["default"].weight)
        entry["b"] = tensor_digest(module.lora_embedding_B["default"] if is_embedding else module.lora_B["default"].weight)
        if "default" in module.lora_magnitude_vector:
            entry["magnitude"] = tensor_digest(module.lora_magnitude_vector["default"].weight)
        if "base_layer.weight" in saved_parts(folder, name):
            entry["weight"] = tensor_digest(module.base_layer.weight)
        if "base_layer.bias" in saved_parts(folder, name):
            entry["bias"] = tensor_digest(module.base_layer.bias)
    for name, module in model.base_model.model.named_modules():
        if isinstance(module, ModulesToSaveWrapper):
            modules[name] = {"module": name, "weight": tensor_digest(module.modules_to_save["default"].weight)}
        elif name not in modules and not name.endswith(".base_layer") and "bias" in saved_parts(folder, name):
            modules[name] = {"module": name, "bias": tensor_digest(module.bias)}
    return [modules[name] for name in sorted(modules)]


def saved_parts(folder: Path, module: str) -> set:
    path = folder / "adapter_model.safetensors"
    tensors = (safetensors.torch.load_file(path) if path.exists() else
               torch.load(folder / "adapter_model.bin", weights_only=True))
    prefix = f"base_model.model.{module}."
    return {name[len(prefix):] for name in tensors if name.startswith(prefix)}


@torch.no_grad()
def results(model: torch.nn.Module, prompt: list, least_margin: float) -> dict:
    """Returns the results for a prompt. The greedy text ends at the first margin below `least_margin`."""
    ids, logprobs, margin, logits = list(prompt), [], float("inf"), None
    for _ in range(GREEDY_TOKENS):
        last = logits_of(model, ids)[-1]
        logits = last if logits is None else logits
        best = torch.topk(last, 2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        token = last.argmax().item()
        logprobs.append(torch.log_softmax(last, 0)[token].item())
        ids.append(token)
        if margin < least_margin:
            break
    greedy = {"token_ids": ids[len(prompt):], "logprobs": digits(logprobs), "smallest_margin": round(margin, 5)}
    return {"logits": digits(logits.tolist()), "greedy": greedy}


def is_clear(result: dict, base: dict) -> bool:
    tokens = result["greedy"]["token_ids"]
    return (result["greedy"]["smallest_margin"] >= SMALLEST_MARGIN and len(set(tokens)) >= 6
            and tokens != base["greedy"]["token_ids"])


def write(adapter: Adapter, out: Path) -> None:
    golden = json.loads((MODELS / adapter.base / "golden.json").read_text())
    prompts = [case["prompt_token_ids"][:48] for case in golden["cases"]][:2]
    base_model = load_base(adapter)
    base = [results(base_model, prompt, 0.0) for prompt in prompts]
    for seed in range(1, 500):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            drawn = draw(adapter, seed)
            save(adapter, drawn, folder)
            model = load(adapter, folder)
            found = []
            for prompt, without in zip(prompts, base):
                found.append(results(model, prompt, SMALLEST_MARGIN))
                if not is_clear(found[-1], without):
                    break
            else:
                target = out / adapter.name
                shutil.rmtree(target, ignore_errors=True)
                target.mkdir(parents=True)
                if adapter.gguf_type:
                    write_gguf(adapter, model, target / "adapter.gguf")
                else:
                    shutil.copytree(folder, target, dirs_exist_ok=True)
                cases = [{"name": f"prompt of {len(prompt)} tokens", "prompt_token_ids": prompt, "adapter": with_adapter,
                          "base": without} for prompt, with_adapter, without in zip(prompts, found, base)]
                found_in_files = ({"virtual_tokens": tensor_digest(model.prompt_encoder["default"].embedding.weight)}
                                  if adapter.is_prompt else {})
                modules = [] if adapter.is_prompt else modules_of(adapter, model, folder)
                if adapter.gguf_type:
                    for module in modules:  # which the converter leaves out
                        module.pop("weight", None)
                write_golden(target / "golden.json", {
                    "made_with": {"tool": "tools/make_adapter_goldens.py", "seed": seed,
                                  "python": platform.python_version(), "torch": torch.__version__,
                                  "transformers": transformers.__version__, "peft": peft.__version__,
                                  "safetensors": safetensors.__version__, "numpy": numpy.__version__},
                    "about": adapter.about, "base": adapter.base, "modules": modules, **found_in_files, "cases": cases})
                size = sum(path.stat().st_size for path in target.iterdir())
                print(f"{adapter.name}: seed {seed}, {size / 1000:.0f} kB, smallest margins "
                      f"{[case['adapter']['greedy']['smallest_margin'] for case in cases]}", flush=True)
                return
    raise SystemExit(f"{adapter.name}: no seed gives clear greedy tokens; choose another strength")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tests/data/adapters"), help="folder that gets the adapters")
    parser.add_argument("--only", default="", help="make only adapters whose name begins so")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    chosen = [adapter for adapter in ADAPTERS if adapter.name.startswith(args.only)]
    if not chosen:
        parser.error(f"--only {args.only}: there is no such adapter; there are {', '.join(a.name for a in ADAPTERS)}")
    for adapter in chosen:
        write(adapter, args.out)


if __name__ == "__main__":
    main()
