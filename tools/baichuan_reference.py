"""Baichuan 1 and 2 (Yang et al. 2023, arXiv 2309.10305) in PyTorch, as simple as possible. The reference for goldens,
because transformers has no code for this family.

A decoder of Llama's kind (RMSNorm, gated SiLU MLP, no biases) whose queries, keys and values come from one projection
W_pack. The 7B models turn queries and keys by their position (rotary embedding); the 13B models add
slope(head) * (key position - query position) to the scores instead (ALiBi). Baichuan 2 scales each row of the head's
weight to length 1, in the dtype of the stored weights.

    python tools/baichuan_reference.py      compares its parts with transformers: Llama with W_pack split, Bloom's ALiBi
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional


@dataclass
class BaichuanConfig:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    architecture: str  # BaiChuanForCausalLM: 7B; BaichuanForCausalLM: the others
    position_embedding: str = "ROPE"  # or "ALIBI"
    norm_head: bool = False
    max_positions: int = 256
    rms_norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def to_json(self, dtype: str) -> dict:
        """Returns the keys of the published files. Keys that follow from a tiny model's sizes are included only if
        needed."""
        keys = asdict(self)
        positions_key = "max_position_embeddings" if self.position_embedding == "ROPE" else "model_max_length"
        keys[positions_key] = keys.pop("max_positions")
        keys["architectures"] = [keys.pop("architecture")]
        usual = "ROPE" if self.architecture == "BaiChuanForCausalLM" else "ALIBI"
        if self.position_embedding == usual:
            del keys["position_embedding"]
        if not self.norm_head:
            del keys["norm_head"]
        return {**keys, "model_type": "baichuan", "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1,
                "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": dtype}


def alibi_slopes(num_heads: int) -> list:
    """Returns 2^(-8/n), 2^(-16/n), ... for a power of two n; other numbers add every second slope of twice the power
    below."""
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(num_heads - power)]


def alibi_bias(num_heads: int, length: int) -> torch.Tensor:
    """[heads, queries, keys]"""
    position = torch.arange(length)
    return torch.tensor(alibi_slopes(num_heads))[:, None, None] * (position[None, :] - position[:, None])


def rotate(x: torch.Tensor) -> torch.Tensor:
    """x: [heads, positions, head_dim]; element i of the first half is turned with element i of the second."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class RmsNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: BaichuanConfig):
        super().__init__()
        self.config = config
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, length = self.config, x.shape[0]
        heads = self.W_pack(x).view(length, 3, config.num_attention_heads, config.head_dim)
        query, key, value = heads.permute(1, 2, 0, 3)
        if config.position_embedding == "ROPE":
            query, key = rotate(query), rotate(key)
        scores = query @ key.transpose(1, 2) / math.sqrt(config.head_dim)
        if config.position_embedding == "ALIBI":
            scores = scores + alibi_bias(config.num_attention_heads, length).to(x.dtype)
        scores = scores + torch.full((length, length), float("-inf"), dtype=x.dtype).triu(1)
        weights = scores.softmax(-1, dtype=torch.float32).to(x.dtype)
        return self.o_proj((weights @ value).transpose(0, 1).reshape(length, -1))


class Mlp(nn.Module):
    def __init__(self, config: BaichuanConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: BaichuanConfig):
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = Mlp(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class BaichuanForCausalLM(nn.Module):
    def __init__(self, config: BaichuanConfig, stored_dtype: torch.dtype):
        super().__init__()
        self.config, self.stored_dtype = config, stored_dtype
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(config.vocab_size, config.hidden_size),
            "layers": nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers)),
            "norm": RmsNorm(config.hidden_size, config.rms_norm_eps),
        })
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> SimpleNamespace:
        """input_ids: [1, length], as transformers' models take them."""
        x = self.model["embed_tokens"](input_ids[0])
        for layer in self.model["layers"]:
            x = layer(x)
        head = self.lm_head.weight
        if self.config.norm_head:
            head = functional.normalize(head.to(self.stored_dtype)).to(x.dtype)
        return SimpleNamespace(logits=(self.model["norm"](x) @ head.T)[None])

    def save_pretrained(self, folder: Path) -> None:
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()},
                  folder / "model.safetensors", metadata={"format": "pt"})
        config = self.config.to_json(str(self.dtype).removeprefix("torch."))
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    @staticmethod
    def from_pretrained(folder: Path, config: BaichuanConfig, dtype: torch.dtype) -> "BaichuanForCausalLM":
        state = load_file(folder / "model.safetensors")
        model = BaichuanForCausalLM(config, state["lm_head.weight"].dtype)
        model.load_state_dict(state)
        return model.to(dtype).eval()


@torch.no_grad()
def compare_with_transformers() -> None:
    """Checks that Llama of transformers with W_pack split gives equal logits: with its own rotary positions for the 7B
    models, and for the 13B models with angles of zero and Bloom's ALiBi as its attention mask."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    length = 40
    for heads in (1, 2, 3, 5, 8, 12, 40, 64):
        bloom = build_alibi_tensor(torch.ones(1, length), heads, torch.float32)[:, 0]  # slope * key position
        ours = alibi_bias(heads, length)
        torch.testing.assert_close(ours[:, -1] - ours[:, -1, :1], bloom - bloom[:, :1], rtol=1e-6, atol=1e-6)

    for positions, heads in (("ROPE", 4), ("ALIBI", 4), ("ALIBI", 5)):
        torch.manual_seed(1)
        config = BaichuanConfig(101, 8 * heads, 44, 2, heads, "BaichuanForCausalLM", positions)
        model = BaichuanForCausalLM(config, torch.float32).eval()
        llama = LlamaForCausalLM(LlamaConfig(
            vocab_size=101, hidden_size=8 * heads, intermediate_size=44, num_hidden_layers=2, num_attention_heads=heads,
            rms_norm_eps=config.rms_norm_eps, attn_implementation="eager")).eval()
        state = model.state_dict()
        for name in [name for name in state if "W_pack" in name]:
            for part, weight in zip("qkv", state.pop(name).chunk(3)):
                state[name.replace("W_pack", f"{part}_proj")] = weight
        llama.load_state_dict(state)
        ids = torch.randint(0, 101, (1, length))
        mask = torch.full((length, length), float("-inf")).triu(1).expand(1, heads, length, length)
        if positions == "ALIBI":
            mask = mask + build_alibi_tensor(torch.ones(1, length), heads, torch.float32).view(1, heads, 1, length)
            llama.model.rotary_emb.inv_freq.zero_()
        torch.testing.assert_close(model(ids).logits, llama(ids, attention_mask=mask).logits, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    compare_with_transformers()
    print("equal to transformers' Llama with W_pack split, and to Bloom's ALiBi")
