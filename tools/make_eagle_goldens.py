"""Makes the goldens of EAGLE-3 draft heads: small random heads for models of tests/data/models, and the drafts of the
package speculators for them.

    python tools/make_eagle_goldens.py                      writes tests/data/eagle/<name>/ for every head
    python tools/make_eagle_goldens.py --only speculators   writes only those whose name begins with this

Each folder has config.json, model.safetensors and golden.json:

    made_with   versions of the programs and the seed
    about       purpose of the head
    target      name of the model's folder in tests/data/models
    cases[]
      tokens    x_0 to x_n: a prompt of the model's golden and the first of its greedy tokens (float32), or the first
                tokens of its shortest prompt
      drafts    target tokens of the greedy chain of 5 behind x_n
      smallest_margin  the smallest gap between the best and the second logit of the 5 steps

All arithmetic is float32. Heads in the format of the paper's program are given to the same package, which names the
tensors differently. The formulas of train_eagle_head.py must give the same drafts, unless the head has norms that these
do not know. The tool searches for a seed for which no draft is a close call and the drafts vary, so that an engine with
other rounding must give these tokens, and for which drafts change when the weights of any one norm are ones.

Needs torch, transformers, safetensors and speculators.
"""

import argparse
import json
import platform
import shutil
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from make_model_goldens import write_golden
from train_eagle_head import HeadConfig, load_head, write_head

DRAFTS = 5
LENGTHS = (2, 3, 7, 14, 22, 40)  # of the cases' tokens
SMALLEST_MARGIN = 0.02
FEWEST_DISTINCT = 15  # different drafts among those of all cases
FILE_LIMIT_BYTES = 120_000


@dataclass
class Head:
    name: str
    about: str
    target: str
    dtype: str
    layer_ids: list
    keys: dict
    draft_vocab: int
    is_speculators: bool = False
    norms: dict = field(default_factory=dict)  # keys of Eagle3SpeculatorConfig
    layer: type = LlamaConfig
    names_layers: bool = True   # whether config.json has the layer ids
    has_embedding: bool = True  # whether a head in the format of speculators has an embedding of its own

    def has_further_norms(self) -> bool:
        return self.layer is not LlamaConfig or bool(self.norms.keys() - {"norm_before_residual"})


HEADS = [
    Head("llama-gqa",
         "the paper's format, groups of two heads, theta and norm epsilon are not the model's, F32 over BF16",
         "llama-sharded-bf16", "float32", [0, 1, 2],
         {"intermediate_size": 44, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
          "rms_norm_eps": 1e-4, "theta": 1000.0}, 83),
    Head("speculators", "the format of speculators: an embedding of its own, the residual begins behind the norm, head "
         "size 16 is not hidden / heads, one KV head, F32 over Qwen3",
         "qwen3-gqa-f32", "float32", [0, 1, 1],
         {"intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
          "rms_norm_eps": 1e-6, "theta": 10000.0}, 71, is_speculators=True,
         norms={"norm_before_residual": True}),
    Head("bf16", "the paper's format, one KV head per head, BF16", "llama-gqa-bf16", "bfloat16", [0, 0, 1],
         {"intermediate_size": 60, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 12,
          "rms_norm_eps": 1e-5, "theta": 500000.0}, 117),
    Head("norms", "the format of speculators: a norm of the joined hidden states before fc, further steps read normed "
         "rows, a Qwen3 layer (norms of queries and keys), an embedding of its own, F32 over Qwen3",
         "qwen3-bias-f32", "float32", [0, 1, 1],
         {"intermediate_size": 44, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
          "rms_norm_eps": 1e-5, "theta": 20000.0}, 61, is_speculators=True,
         norms={"norm_before_fc": True, "norm_output": True}, layer=Qwen3Config),
    Head("fc-norm",
         "the format of speculators: a norm for the hidden states of each layer, the default layers 2, n / 2 "
         "and n - 3 (here 2, 3 and 3), the whole vocabulary, no embedding: the model's counts, with Gemma's factor "
         "sqrt(hidden_size), F32 over Gemma 3",
         "gemma3-six-layers-f32", "float32", [2, 3, 3],
         {"intermediate_size": 36, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 14,
          "rms_norm_eps": 1e-6, "theta": 10000.0}, 97, is_speculators=True, norms={"fc_norm": True},
         names_layers=False, has_embedding=False),
]


def speculators_config(head: Head, target: torch.nn.Module) -> Eagle3SpeculatorConfig:
    keys = dict(head.keys)
    layer = head.layer(
        vocab_size=target.config.vocab_size, hidden_size=target.config.hidden_size, num_hidden_layers=1,
        max_position_embeddings=target.config.max_position_embeddings, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": keys.pop("theta")},
        **keys)
    layer._attn_implementation = "eager"
    return Eagle3SpeculatorConfig(
        transformer_layer_config=layer, draft_vocab_size=head.draft_vocab,
        eagle_aux_hidden_state_layer_ids=head.layer_ids if head.names_layers else None, **head.norms,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3", proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=DRAFTS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=target.config.architectures)))


def draw(head: Head, target: torch.nn.Module, seed: int) -> Eagle3DraftModel:
    """Returns a model in float32 with weights that the head's dtype can represent. Deviations are such that drafts
    depend on the hidden states, on the tokens and on those before."""
    torch.manual_seed(seed)
    model = Eagle3DraftModel(speculators_config(head, target)).float().eval()
    deviations = {"fc.": 0.01, "o_proj": 0.9, "self_attn": 0.2, "mlp": 0.25, "lm_head": 0.5, "embed_tokens": 0.4}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                noise = 1.0 + 0.3 * torch.randn(parameter.shape)
            else:
                deviation = next(value for part, value in deviations.items() if part in name)
                noise = deviation * torch.randn(parameter.shape)
            parameter.copy_(noise.to(getattr(torch, head.dtype)).float())
        if not (head.is_speculators and head.has_embedding):
            model.embed_tokens.weight.copy_(embedding_of(target))
    if not model.use_draft_vocab:
        return model
    token_of = torch.randperm(target.config.vocab_size)[:head.draft_vocab].sort().values
    t2d = torch.zeros(target.config.vocab_size, dtype=torch.bool)
    t2d[token_of] = True
    model.load_vocab_mappings(t2d, token_of - torch.arange(head.draft_vocab))
    return model


@torch.no_grad()
def embedding_of(target: torch.nn.Module) -> torch.Tensor:
    """Returns the embedding of each token, with the factor that some models multiply the table by."""
    return target.get_input_embeddings()(torch.arange(target.config.vocab_size))


@torch.no_grad()
def hidden_of(head: Head, target: torch.nn.Module, ids: list) -> torch.Tensor:
    states = target(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    return torch.cat([states[i][0] for i in head.layer_ids], -1)


@torch.no_grad()
def chain(model: Eagle3DraftModel, hidden: torch.Tensor, ids: list) -> dict:
    """Runs the package's forward for one more step until the chain is complete. It reads the drafts so far as further
    tokens: step s reads, behind the last pair, the s-th token behind it. Their hidden states are never read there."""
    logits = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, out: logits.append(out[0]))
    last, drafts = len(ids) - 2, []
    for steps in range(1, DRAFTS + 1):
        logits.clear()
        read = ids[1:] + drafts
        padded = torch.zeros(1, len(read), hidden.shape[1])
        padded[0, :len(hidden)] = hidden
        model(padded, torch.tensor([read]), torch.zeros(1, len(read), dtype=torch.long), ttt_steps=steps)
        best = logits[-1][last].argmax()
        drafts.append((best if model.d2t is None else best + model.d2t[best]).item())
    hook.remove()
    return {"tokens": ids, "drafts": drafts,
            "smallest_margin": round(smallest_margin([step[last] for step in logits]), 5)}


def smallest_margin(steps: list) -> float:
    tops = [torch.topk(logits, 2).values for logits in steps]
    return min((top[0] - top[1]).item() for top in tops)


def texts(folder: Path) -> list:
    """Returns beginnings of the golden's texts, each with as many tokens of a prompt as possible."""
    cases = sorted(json.loads((folder / "golden.json").read_text())["cases"], key=lambda c: len(c["prompt_token_ids"]))
    out = []
    for length in LENGTHS:
        case = [c for c in cases if len(c["prompt_token_ids"]) < length or c is cases[0]][-1]
        out.append((case["prompt_token_ids"] + case["float32"]["greedy"]["token_ids"])[:length])
    return out


def cases_of(head: Head, target: torch.nn.Module, model: Eagle3DraftModel, folder: Path) -> list:
    return [chain(model, hidden_of(head, target, ids[:-1]), ids) for ids in texts(folder)]


@torch.no_grad()
def every_norm_matters(head: Head, target: torch.nn.Module, model: Eagle3DraftModel, folder: Path, cases: list) -> bool:
    """Returns whether drafts change when the weights of any one norm become ones."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 or name.startswith("verifier_"):
            continue
        weights = parameter.clone()
        parameter.fill_(1.0)
        changed = cases_of(head, target, model, folder)
        parameter.copy_(weights)
        if all(a["drafts"] == b["drafts"] for a, b in zip(cases, changed)):
            return False
    return True


def write(head: Head, target: torch.nn.Module, model: Eagle3DraftModel, folder: Path) -> None:
    if head.is_speculators:
        state = model.state_dict()
        if not head.has_embedding:
            del state["embed_tokens.weight"]
        model.save_pretrained(folder, state_dict=state)
        (folder / "config.py").unlink(missing_ok=True)  # a copy of the package's own code
        if not head.names_layers:
            config = json.loads((folder / "config.json").read_text())
            config.pop("eagle_aux_hidden_state_layer_ids", None)
            (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    else:
        write_eagle(head, target, model, folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def write_eagle(head: Head, target: torch.nn.Module, model: Eagle3DraftModel, folder: Path) -> None:
    keys = head.keys
    config = HeadConfig(
        target.config.hidden_size, keys["intermediate_size"], keys["num_attention_heads"], keys["num_key_value_heads"],
        keys["head_dim"], target.config.vocab_size, head.draft_vocab, head.layer_ids, keys["rms_norm_eps"],
        keys["theta"], target.config.max_position_embeddings)
    folder.mkdir(parents=True)
    names = {name: name.replace("layers.0.", "midlayer.") for name, _ in model.named_parameters()
             if not name.startswith(("embed_tokens", "verifier_"))}
    state = model.state_dict()
    dtype = getattr(torch, head.dtype)
    tensors = {new: state[old].to(dtype).contiguous() for old, new in names.items()}
    tensors |= {"d2t": model.d2t, "t2d": model.t2d}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.keys(head.dtype), indent=2, sort_keys=True) + "\n")


def read_back(head: Head, target: torch.nn.Module, folder: Path) -> Eagle3DraftModel:
    """Returns the model in the folder as the package reads it, in float32."""
    config = speculators_config(head, target)
    if head.is_speculators:
        config = Eagle3SpeculatorConfig.from_pretrained(folder)
        config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config).float().eval()
    state = {name.replace("midlayer.", "layers.0."): value
             for name, value in load_file(folder / "model.safetensors").items()}
    if not (head.is_speculators and head.has_embedding):
        assert "embed_tokens.weight" not in state
        state["embed_tokens.weight"] = embedding_of(target)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(name.startswith("verifier_") for name in missing), (missing, unexpected)
    return model


def check_formulas(head: Head, target: torch.nn.Module, folder: Path, cases: list) -> None:
    """Compares with the formulas that the heads of train_eagle_head.py are trained by."""
    own, token_of, embedding = load_head(folder)
    embedding = embedding_of(target) if embedding is None else embedding
    for case in cases:
        ids = case["tokens"]
        hidden = hidden_of(head, target, ids[:-1])
        tokens, logits = own.draft(hidden, embedding, token_of, ids, DRAFTS)
        assert tokens == case["drafts"], (head.name, tokens, case["drafts"])
        error = abs(smallest_margin(logits) - case["smallest_margin"])
        assert error < 1e-4, (head.name, error)


def make(head: Head, models: Path, folder: Path) -> None:
    target = AutoModelForCausalLM.from_pretrained(models / head.target, dtype=torch.float32,
                                                  attn_implementation="eager").eval()
    for seed in range(1, 2000):
        model = draw(head, target, seed)
        cases = cases_of(head, target, model, models / head.target)
        distinct = len({token for case in cases for token in case["drafts"]})
        is_clear = min(case["smallest_margin"] for case in cases) >= SMALLEST_MARGIN and distinct >= FEWEST_DISTINCT
        if is_clear and every_norm_matters(head, target, model, models / head.target, cases):
            break
    else:
        raise SystemExit(f"{head.name}: no seed gives clear and different drafts; choose other deviations")
    shutil.rmtree(folder, ignore_errors=True)
    write(head, target, model, folder)
    assert cases == cases_of(head, target, read_back(head, target, folder), models / head.target)
    if not head.has_further_norms():
        check_formulas(head, target, folder, cases)
    write_golden(folder / "golden.json", {
        "made_with": {"tool": "tools/make_eagle_goldens.py", "seed": seed, "python": platform.python_version(),
                      "torch": torch.__version__, "transformers": transformers.__version__,
                      "speculators": version("speculators"), "safetensors": safetensors.__version__},
        "about": head.about, "target": head.target, "cases": cases})
    size = (folder / "model.safetensors").stat().st_size
    if size > FILE_LIMIT_BYTES:
        raise SystemExit(f"{folder}: the weights have {size} bytes, more than {FILE_LIMIT_BYTES}")
    print(f"{head.name}: seed {seed}, {size} bytes of weights, {distinct} different drafts, smallest margins "
          f"{[case['smallest_margin'] for case in cases]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tests/data/eagle"), help="folder that gets the folders")
    parser.add_argument("--models", type=Path, default=Path("tests/data/models"), help="folder of the models")
    parser.add_argument("--only", default="", help="make only heads whose name begins so")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    chosen = [head for head in HEADS if head.name.startswith(args.only)]
    if not chosen:
        parser.error(f"--only {args.only}: there is no such head; there are {', '.join(h.name for h in HEADS)}")
    for head in chosen:
        make(head, args.models, args.out / head.name)


if __name__ == "__main__":
    main()
