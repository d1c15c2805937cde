"""The small random models that make_model_goldens.py makes: shapes of every family, and how their weights are drawn.

All weights are drawn with a large deviation, norms and biases too, so that the logits change if an engine leaves a
weight out.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from baichuan_reference import BaichuanConfig, BaichuanForCausalLM


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
    shard_size: str = ""
    classic_config: bool = False  # whether it has the keys of transformers 4, as most published models do

    @property
    def has_scaled_embeddings(self) -> bool:
        """Returns whether the model multiplies its embeddings by the root of their width. With large embeddings it would
        only repeat the last token."""
        return self.model_type.startswith("gemma")

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def fewest_distinct(self) -> int:
        """Returns how many different tokens a greedy text must have. Tiny models with learned positions give fewer
        different tokens than models with rotary positions."""
        return 8 if self.model_type in ("gpt2", "opt") else 20

    def _config(self):
        if self.model_type == "baichuan":
            return BaichuanConfig(vocab_size=self.vocab, **self.keys)
        pad = {} if self.model_type == "llama" else {"pad_token_id": 0}
        return AutoConfig.for_model(self.model_type, vocab_size=self.vocab, bos_token_id=1, eos_token_id=2, **pad,
                                    **self.keys)

    def draw(self, seed: int) -> torch.nn.Module:
        """Returns a float32 model with random weights that the shape's dtype can represent."""
        torch.manual_seed(seed)
        if self.model_type == "baichuan":
            model = BaichuanForCausalLM(self._config(), self.torch_dtype).eval()
        else:
            model = AutoModelForCausalLM.from_config(self._config(), attn_implementation="eager").float().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                is_norm = parameter.dim() == 1 and not name.endswith("bias")
                is_drawn = self.model_type == "llama" and parameter.dim() > 1  # by its own initializer_range
                noise = parameter if is_drawn else self.std * torch.randn_like(parameter)
                # Parameters only: model.to(dtype) would round the rotary frequencies too.
                if self.has_scaled_embeddings and "embed_tokens" in name:
                    noise = noise * (1.5 / parameter.shape[1] ** 0.5)
                parameter.copy_((noise + 1.0 if is_norm else noise).to(self.torch_dtype).float())
        return model

    def save(self, model: torch.nn.Module, folder: Path) -> None:
        model.to(self.torch_dtype).save_pretrained(
            folder, **({"max_shard_size": self.shard_size} if self.shard_size else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        for path in folder.iterdir():
            path.chmod(0o644)
        if self.classic_config:
            use_classic_keys(folder / "config.json")

    def load(self, folder: Path, dtype: str) -> torch.nn.Module:
        if self.model_type == "baichuan":
            return BaichuanForCausalLM.from_pretrained(folder, self._config(), getattr(torch, dtype))
        return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype),
                                                    attn_implementation="eager").eval()

    def prompts(self, seed: int) -> list:
        random = torch.Generator().manual_seed(seed)
        return [torch.randint(3, self.vocab, (length,), generator=random).tolist() for length in self.prompt_lengths]


def use_classic_keys(path: Path) -> None:
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:  # an object for each kind of layer
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        config["sliding_window_pattern"] = config.pop("layer_types").index("full_attention") + 1
        config.pop("_sliding_window_pattern", None)
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def sizes(hidden, ffn, layers, heads, kv_heads, **more) -> dict:
    return {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "max_position_embeddings": 256, **more}


def llama(name, about, dtype, vocab, hidden, ffn, layers, heads, kv_heads, tie, theta=10000.0, head_dim=0, rope=None,
          eps=1e-5, bias=False, prompt_lengths=(1, 17, 90), **more) -> Shape:
    keys = sizes(hidden, ffn, layers, heads, kv_heads, head_dim=head_dim or hidden // heads, rms_norm_eps=eps,
                 rope_parameters={"rope_type": "default", "rope_theta": theta, **(rope or {})}, tie_word_embeddings=tie,
                 initializer_range=Shape.std, attention_bias=bias, mlp_bias=bias)
    return Shape(name, about, "llama", dtype, vocab, keys, prompt_lengths=prompt_lengths, **more)


def gpt2_sizes(hidden, ffn, layers, heads, **more) -> dict:
    return {"n_embd": hidden, "n_inner": ffn, "n_layer": layers, "n_head": heads, "n_positions": 128, **more}


def opt_sizes(hidden, ffn, layers, heads, **more) -> dict:
    return {"hidden_size": hidden, "word_embed_proj_dim": hidden, "ffn_dim": ffn, "num_hidden_layers": layers,
            "num_attention_heads": heads, "max_position_embeddings": 128, **more}


def baichuan(name, about, dtype, vocab, hidden, ffn, heads, positions, norm_head, prompt_lengths=(1, 40)) -> Shape:
    keys = {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": 2, "num_attention_heads": heads,
            "architecture": "BaiChuanForCausalLM" if (positions, norm_head) == ("ROPE", False) else "BaichuanForCausalLM",
            "position_embedding": positions, "norm_head": norm_head}
    return Shape(name, about, "baichuan", dtype, vocab, keys, prompt_lengths=prompt_lengths)


SHAPES = [
    llama("llama-mha-f32", "one KV head per head, separate head, F32", "float32", 131, 32, 56, 2, 4, 4, tie=False),
    llama("llama-gqa-bf16", "groups of three heads, separate head, BF16", "bfloat16", 199, 48, 80, 2, 6, 2, tie=False,
          theta=500000.0, classic_config=True),
    llama("llama-mqa-odd", "one KV head, hidden 60, head size 20, MLP width 26, vocabulary 307, tied head, BF16",
          "bfloat16", 307, 60, 26, 2, 3, 1, tie=True, theta=1000.0, prompt_lengths=(1, 47)),
    llama("llama-wide-heads-f32", "head size 20 is not hidden / heads (36 / 2), MLP width 44, vocabulary 307, tied, F32",
          "float32", 307, 36, 44, 2, 2, 1, tie=True, theta=1000000.0, head_dim=20, classic_config=True,
          prompt_lengths=(2, 40)),
    llama("llama-sharded-bf16", "three weight files and an index, BF16", "bfloat16", 149, 40, 70, 3, 4, 2, tie=False,
          shard_size="44KB"),
    llama("llama-rope-llama3", "Llama 3.1's scaled rotary positions, prompts longer than the original context, BF16",
          "bfloat16", 173, 32, 72, 2, 2, 1, tie=True, classic_config=True, prompt_lengths=(5, 60, 150),
          rope={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}),
    llama("llama-rope-linear-f32", "linearly scaled rotary positions, norm epsilon 1e-3, F32", "float32", 101, 32, 40, 2,
          4, 2, tie=True, rope={"rope_type": "linear", "factor": 4.0}, eps=1e-3, prompt_lengths=(3, 70)),
    llama("llama-rope-dynamic-f32", "dynamic NTK scaling, which changes nothing within the original context, F32",
          "float32", 97, 32, 40, 2, 4, 2, tie=True, rope={"rope_type": "dynamic", "factor": 2.0}, prompt_lengths=(3, 70)),
    llama("llama-rope-yarn-bf16", "YaRN's rotary positions, prompts longer than the original context, BF16", "bfloat16",
          109, 32, 48, 2, 2, 1, tie=True, classic_config=True, prompt_lengths=(5, 150),
          rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0}),
    llama("llama-bias-f32", "biases on every projection, F32", "float32", 113, 32, 44, 2, 4, 1, tie=True, bias=True,
          classic_config=True, prompt_lengths=(4, 29)),
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
    Shape("phi3-gqa-f32", "fused qkv_proj and gate_up_proj, grouped heads, separate head, F32", "phi3", "float32", 109,
          sizes(32, 44, 2, 4, 2)),
    Shape("phi3-window-bf16", "a sliding window of 14 tokens in every layer, tied head, BF16", "phi3", "bfloat16", 95,
          sizes(40, 36, 2, 4, 4, sliding_window=14, tie_word_embeddings=True), prompt_lengths=(3, 70)),
    Shape("phi3-partial-f32", "12 of 16 elements of each head are turned, one KV head, F32", "phi3", "float32", 87,
          sizes(32, 40, 2, 2, 1, partial_rotary_factor=0.75), classic_config=True),
    Shape("mistral-window-f32", "a sliding window of 16 tokens in every layer, F32", "mistral", "float32", 107,
          sizes(32, 44, 2, 4, 2, sliding_window=16, tie_word_embeddings=False), prompt_lengths=(3, 70)),
    Shape("mistral-full-bf16", "no window, BF16", "mistral", "bfloat16", 93,
          sizes(40, 36, 2, 4, 1, sliding_window=None, tie_word_embeddings=False)),
    Shape("mistral-narrow-f32", "a window of 5 tokens, head size 12 is not hidden / heads, tied head, F32", "mistral",
          "float32", 79, sizes(32, 40, 2, 2, 1, head_dim=12, sliding_window=5, tie_word_embeddings=True)),
    Shape("ministral-layers-f32", "a window of 9 tokens in two of three layers, F32", "ministral", "float32", 103,
          sizes(32, 40, 3, 4, 2, head_dim=8, sliding_window=9, tie_word_embeddings=False,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"]), prompt_lengths=(3, 60)),
    Shape("ministral-window-bf16", "the window in every layer, head size 12, tied head, BF16", "ministral", "bfloat16", 91,
          sizes(40, 36, 2, 2, 1, head_dim=12, sliding_window=14, tie_word_embeddings=True), prompt_lengths=(3, 60)),
    Shape("ministral-full-f32", "a window that no layer has, F32", "ministral", "float32", 89,
          sizes(32, 40, 2, 4, 1, head_dim=8, sliding_window=9, tie_word_embeddings=True,
                layer_types=["full_attention"] * 2)),
    Shape("smollm3-nope-f32", "no positions in the fourth of five layers, tied head, F32", "smollm3", "float32", 97,
          sizes(24, 32, 5, 2, 1), prompt_lengths=(3, 60)),
    Shape("smollm3-list-bf16", "no positions in listed layers, which have a window of 10 tokens, separate head, BF16",
          "smollm3", "bfloat16", 93,
          sizes(40, 36, 3, 4, 2, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=10,
                tie_word_embeddings=False), prompt_lengths=(3, 60)),
    Shape("smollm3-bias-f32", "biases on every projection, positions in every layer but each second, F32", "smollm3",
          "float32", 83, sizes(32, 36, 2, 4, 4, no_rope_layer_interval=2, attention_bias=True, mlp_bias=True)),
    Shape("granite-gqa-f32", "factors of embedding, scores, residual stream and logits, tied head, F32", "granite", "float32",
          97, sizes(32, 44, 2, 4, 2, tie_word_embeddings=True, embedding_multiplier=2.5, attention_multiplier=0.25,
                    residual_multiplier=0.6, logits_scaling=0.5, rms_norm_eps=1e-3)),
    Shape("granite-untied-bf16", "the same with a separate head, head size 12 is not hidden / heads, BF16", "granite",
          "bfloat16", 91,
          sizes(40, 36, 3, 2, 1, head_dim=12, embedding_multiplier=6.0, attention_multiplier=0.4, residual_multiplier=0.22,
                logits_scaling=0.75), classic_config=True),
    Shape("granite-bias-f32", "all factors are 1, biases on every projection, F32", "granite", "float32", 83,
          sizes(24, 36, 2, 2, 2, attention_bias=True, mlp_bias=True)),
    Shape("gemma2-caps-f32", "low softcaps on scores and logits, a window of 11 tokens in each second layer, F32",
          "gemma2", "float32", 101,
          sizes(24, 36, 3, 2, 1, head_dim=16, query_pre_attn_scalar=12, sliding_window=11, attn_logit_softcapping=3.0,
                final_logit_softcapping=25.0), prompt_lengths=(3, 60)),
    Shape("gemma2-usual-bf16", "the usual softcaps and factor, heads of 256, BF16", "gemma2", "bfloat16", 89,
          sizes(24, 32, 2, 1, 1, sliding_window=20), prompt_lengths=(3, 60)),
    Shape("gemma2-uncapped-f32", "no softcaps, biases on every attention projection, F32", "gemma2", "float32", 79,
          sizes(32, 40, 2, 2, 1, head_dim=12, sliding_window=13, attn_logit_softcapping=None,
                final_logit_softcapping=None, attention_bias=True), prompt_lengths=(3, 60)),
    Shape("gemma3-six-layers-f32", "a window of 7 tokens in five of six layers, two thetas, F32", "gemma3_text", "float32",
          97, sizes(24, 32, 6, 2, 1, head_dim=12, query_pre_attn_scalar=12, sliding_window=7), prompt_lengths=(3, 60)),
    Shape("gemma3-scaled-bf16", "linear scaling in the layers without a window, which are listed, BF16", "gemma3_text",
          "bfloat16", 91,
          sizes(32, 36, 3, 4, 2, head_dim=16, sliding_window=12,
                layer_types=["full_attention", "sliding_attention", "full_attention"],
                rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
          prompt_lengths=(3, 60)),
    Shape("gemma3-classic-f32", "the keys of published configs, a softcap on logits, F32", "gemma3_text", "float32", 83,
          sizes(32, 40, 4, 2, 1, head_dim=12, query_pre_attn_scalar=10, sliding_window=9, final_logit_softcapping=25.0,
                layer_types=["sliding_attention", "full_attention"] * 2,
                rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}),
          classic_config=True, prompt_lengths=(3, 60)),
    Shape("cohere2-four-layers-f32", "a window of 9 tokens and interleaved positions in three of four layers, F32", "cohere2",
          "float32", 97, sizes(24, 32, 4, 2, 1, sliding_window=9, logit_scale=0.7), prompt_lengths=(3, 60)),
    Shape("cohere2-listed-bf16", "the layers with a window are listed, biases on every attention projection, BF16", "cohere2",
          "bfloat16", 91,
          sizes(40, 36, 3, 4, 2, sliding_window=14, logit_scale=0.5, attention_bias=True,
                layer_types=["full_attention", "sliding_attention", "sliding_attention"]), prompt_lengths=(3, 60)),
    Shape("cohere2-untied-f32", "separate head, norm epsilon 1e-3, F32", "cohere2", "float32", 83,
          sizes(32, 40, 2, 4, 4, sliding_window=12, logit_scale=1.0, tie_word_embeddings=False, layer_norm_eps=1e-3),
          prompt_lengths=(3, 60)),
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
    baichuan("baichuan-7b-f32", "fused W_pack, rotary positions, F32", "float32", 83, 32, 36, 4, "ROPE", False),
    baichuan("baichuan-7b-bf16", "the same with heads of 12 in BF16", "bfloat16", 89, 36, 40, 3, "ROPE", False),
    baichuan("baichuan-13b-f32", "ALiBi over five heads, which is no power of two, F32", "float32", 79, 40, 36, 5, "ALIBI",
             False, prompt_lengths=(3, 90)),
    baichuan("baichuan2-7b-bf16", "rotary positions and a head with rows of length 1, BF16", "bfloat16", 97, 32, 40, 2,
             "ROPE", True),
    baichuan("baichuan2-13b-bf16", "ALiBi over four heads and a head with rows of length 1, BF16", "bfloat16", 101, 32, 40,
             4, "ALIBI", True, prompt_lengths=(2, 70)),
    baichuan("baichuan2-13b-f32", "ALiBi over three heads and a head with rows of length 1, F32", "float32", 73, 24, 40, 3,
             "ALIBI", True),
]
