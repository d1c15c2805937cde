"""Trains an EAGLE-3 draft head (Li et al. 2025, arXiv 2503.01840) for a model, on texts that the model itself writes.

    python tools/train_eagle_head.py --target examples/models/pagoda-stories --out examples/models/pagoda-stories-eagle3
    python tools/train_eagle_head.py --target ... --out ... --measure-only

The head reads three hidden states of the model (the inputs of the layers --layer-ids) and the next token, and predicts
the token after that; further predictions of a chain read the head's own state in place of the model's. Training runs
such chains of --steps predictions from every position of a text, as the paper's training-time test does. A prediction
is compared with the model's own distribution on the draft vocabulary, the tokens that the model writes most.

The training texts continue the beginnings of stories of demo_corpus.py at several --temperatures; a part is the stories
themselves. The tool prints, for each position of a chain, how often the model's greedy token is the drafted one if all
tokens before were right, on greedy continuations of stories of another seed.

The folder has the format of the paper's program: config.json and model.safetensors, in bfloat16, without an embedding
(the head uses the model's).
"""

import argparse
import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM

from demo_corpus import make_corpus
from make_demo_model import HELD_OUT_SEED_OFFSET, Progress

IGNORED = -1
FIRST_MEASURED = 3  # the pair at which the first chain of an engine begins in held-out texts


@dataclass
class HeadConfig:
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    draft_vocab: int
    layer_ids: list
    eps: float = 1e-5
    theta: float = 10000.0
    positions: int = 1024
    norm_before_residual: bool = False

    @staticmethod
    def read(path: Path) -> "HeadConfig":
        """Reads a config.json of either format: that of the paper's program or that of the package speculators."""
        outer = json.loads(path.read_text())
        keys = outer.get("transformer_layer_config", outer)
        return HeadConfig(
            keys["hidden_size"], keys["intermediate_size"], keys["num_attention_heads"], keys["num_key_value_heads"],
            keys.get("head_dim") or keys["hidden_size"] // keys["num_attention_heads"], keys["vocab_size"],
            outer["draft_vocab_size"], outer["eagle_aux_hidden_state_layer_ids"], keys["rms_norm_eps"],
            (keys.get("rope_parameters") or keys)["rope_theta"], keys["max_position_embeddings"],
            outer.get("norm_before_residual", False))

    def keys(self, dtype: str) -> dict:
        """Returns the contents of a config.json in the format of the paper's program."""
        return {
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "attention_bias": False,
            "draft_vocab_size": self.draft_vocab, "eagle_aux_hidden_state_layer_ids": self.layer_ids,
            "head_dim": self.head_dim, "hidden_act": "silu", "hidden_size": self.hidden, "intermediate_size": self.ffn,
            "max_position_embeddings": self.positions, "mlp_bias": False, "num_attention_heads": self.heads,
            "num_hidden_layers": 1, "num_key_value_heads": self.kv_heads, "rms_norm_eps": self.eps,
            "rope_scaling": None, "rope_theta": self.theta, "tie_word_embeddings": False,
            "torch_dtype": dtype, "vocab_size": self.vocab,
        }


class Norm(nn.Module):
    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Attention(nn.Module):
    def __init__(self, c: HeadConfig):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(2 * c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(2 * c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(2 * c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def turn(self, x: torch.Tensor, first_position: int) -> torch.Tensor:
        """Rotary positions of [rows, heads, pairs, head_dim]."""
        half = self.c.head_dim // 2
        frequencies = self.c.theta ** (-torch.arange(half) / half)
        angles = (first_position + torch.arange(x.shape[2]))[:, None] * frequencies
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, x: torch.Tensor, past: list) -> torch.Tensor:
        """Attends to the pairs of a text up to each one, and to the drafts behind that one: `past` has keys and values
        of the pairs and of each draft so far, and gets those of x."""
        rows, pairs, _ = x.shape
        parts = [projection(x).view(rows, pairs, -1, self.c.head_dim).transpose(1, 2)
                 for projection in (self.q_proj, self.k_proj, self.v_proj)]
        q, k = (self.turn(part, len(past)) for part in parts[:2])
        repeats = self.c.heads // self.c.kv_heads
        past.append((k.repeat_interleave(repeats, 1), parts[2].repeat_interleave(repeats, 1)))
        future = torch.full((pairs, pairs), -math.inf).triu(1)
        scores = [q @ past[0][0].transpose(2, 3) + future] + [(q * k).sum(-1, keepdim=True) for k, _ in past[1:]]
        weights = torch.softmax(torch.cat(scores, -1) * self.c.head_dim ** -0.5, -1)
        out = weights[..., :pairs] @ past[0][1]
        for i, (_, v) in enumerate(past[1:]):
            out = out + weights[..., pairs + i:pairs + i + 1] * v
        return self.o_proj(out.transpose(1, 2).reshape(rows, pairs, -1))


class Mlp(nn.Module):
    def __init__(self, c: HeadConfig):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: HeadConfig):
        super().__init__()
        self.input_layernorm, self.hidden_norm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.post_attention_layernorm = Norm(c.hidden, c.eps)
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.norm_before_residual = c.norm_before_residual

    def forward(self, embedded: torch.Tensor, state: torch.Tensor, past: list) -> torch.Tensor:
        normed = self.hidden_norm(state)
        residual = normed if self.norm_before_residual else state
        residual = residual + self.self_attn(torch.cat([self.input_layernorm(embedded), normed], -1), past)
        return residual + self.mlp(self.post_attention_layernorm(residual))


class EagleHead(nn.Module):
    """Names of the parameters are those of the paper's program."""

    def __init__(self, c: HeadConfig):
        super().__init__()
        self.c = c
        self.fc = nn.Linear(len(c.layer_ids) * c.hidden, c.hidden, bias=False)
        self.midlayer = Layer(c)
        self.norm = Norm(c.hidden, c.eps)
        self.lm_head = nn.Linear(c.hidden, c.draft_vocab, bias=False)

    def chain(self, hidden: torch.Tensor, embedded: list):
        """Yields the logits of each step of the chains that begin at every pair. `hidden` is [rows, pairs, 3 * hidden];
        embedded[s] is the embedding of the token that step s reads, [rows, pairs, hidden]."""
        state, past = self.fc(hidden), []
        for step in embedded:
            state = self.midlayer(step, state, past)
            yield self.lm_head(self.norm(state))

    @torch.no_grad()
    def draft(self, hidden: torch.Tensor, embedding: torch.Tensor, token_of: torch.Tensor, ids: list, count: int):
        """Returns (tokens, logits of each step) of the greedy chain behind the text `ids`, for the hidden states
        [len(ids) - 1, 3 * hidden] of all its tokens but the last."""
        state, past, next_ids, tokens, logits = self.fc(hidden)[None], [], ids[1:], [], []
        for _ in range(count):
            state = self.midlayer(embedding[next_ids][None], state, past)
            logits.append(self.lm_head(self.norm(state))[0, -1])
            tokens.append(token_of[logits[-1].argmax()].item())
            next_ids = next_ids[1:] + tokens[-1:]
        return tokens, logits


def load_head(folder: Path) -> tuple:
    """Returns a head of either format in float32, the target token of each draft token, and its embedding or None."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name.replace("layers.0.", "midlayer."): value for name, value in tensors.items()}
    head = EagleHead(HeadConfig.read(folder / "config.json")).eval()
    d2t, _, embedding = (tensors.pop(name, None) for name in ("d2t", "t2d", "embed_tokens.weight"))
    head.load_state_dict({name: value.float() for name, value in tensors.items()})
    return head, torch.arange(len(d2t)) + d2t, None if embedding is None else embedding.float()


@dataclass
class Texts:
    """Rows of tokens with what the target computes for them. Rows are padded at the end."""
    ids: torch.Tensor      # [rows, length]
    lengths: torch.Tensor  # [rows]
    hidden: torch.Tensor   # [rows, length, 3 * hidden] in float16: the inputs of three layers
    last: torch.Tensor     # [rows, length, hidden] in float16: what the target's output head reads


class Target:
    def __init__(self, folder: Path, layer_ids: list):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.layer_ids = layer_ids
        eos = self.model.config.eos_token_id
        self.eos = eos[0] if isinstance(eos, list) else eos

    def embedding(self) -> torch.Tensor:
        return self.model.get_input_embeddings().weight.detach()

    def stories(self, count: int, seed: int) -> list:
        return [e.ids + [self.eos] for e in self.tokenizer.encode_batch(make_corpus(count, seed))]

    @torch.no_grad()
    def write(self, prompts: list, temperature: float, length: int) -> list:
        """Continues prompts of one common length up to the end token or `length` tokens."""
        ids, step, cache = torch.tensor(prompts), torch.tensor(prompts), None
        ended = torch.zeros(len(prompts), dtype=torch.bool)
        while ids.shape[1] < length and not ended.all():
            out = self.model(input_ids=step, past_key_values=cache, use_cache=True)
            logits, cache = out.logits[:, -1], out.past_key_values
            if temperature > 0:
                step = torch.multinomial(torch.softmax(logits / temperature, -1), 1)
            else:
                step = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, step], 1)
            ended |= step[:, 0] == self.eos
        rows, start = ids.tolist(), len(prompts[0])
        return [row[:row.index(self.eos, start) + 1] if self.eos in row[start:] else row for row in rows]

    @torch.no_grad()
    def read(self, rows: list, length: int) -> Texts:
        rows = sorted((row[:length] for row in rows), key=len)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        size = self.embedding().shape[1]
        hidden = torch.zeros(len(rows), length, len(self.layer_ids) * size, dtype=torch.float16)
        last = torch.zeros(len(rows), length, size, dtype=torch.float16)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = torch.tensor(row)
        for start in range(0, len(rows), 32):
            part = slice(start, min(start + 32, len(rows)))
            longest = len(rows[part.stop - 1])
            states = self.model.model(input_ids=ids[part, :longest], use_cache=False, output_hidden_states=True)
            states = states.hidden_states
            hidden[part, :longest] = torch.cat([states[i] for i in self.layer_ids], -1).half()
            last[part, :longest] = states[-1].half()
        return Texts(ids, torch.tensor([len(row) for row in rows]), hidden, last)


def written_texts(target: Target, stories: list, temperatures: list, length: int, rng: random.Random) -> list:
    """Returns the target's continuations of beginnings of the stories, at one of the temperatures each."""
    rows = []
    for start in range(0, len(stories), 128):
        group = stories[start:start + 128]
        # Most beginnings are short. The length is common to a group, so that no row needs padding.
        begin = min(rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 40]), min(map(len, group)) - 1)
        rows += target.write([story[:begin] for story in group], rng.choice(temperatures), length)
    return rows


def draft_tokens(rows: list, count: int) -> torch.Tensor:
    """Returns the ids of the `count` most frequent tokens, in ascending order."""
    frequency = torch.bincount(torch.tensor([token for row in rows for token in row[1:]]))
    return torch.argsort(frequency, descending=True, stable=True)[:count].sort().values


class Trainer:
    def __init__(self, args: argparse.Namespace, target: Target, head: EagleHead, token_of: torch.Tensor):
        self.args, self.target, self.head, self.token_of = args, target, head, token_of
        self.output = target.model.get_output_embeddings().weight.detach()
        self.draft_of = torch.full((self.output.shape[0],), IGNORED)
        self.draft_of[token_of] = torch.arange(len(token_of))

    def begin(self) -> None:
        """Begins with the target's output head, whose best input is near the input of its last layer."""
        with torch.no_grad():
            self.head.lm_head.weight.copy_(self.output[self.token_of])
            self.head.norm.weight.copy_(self.target.model.model.norm.weight)
            self.head.midlayer.self_attn.o_proj.weight.mul_(0.2)
            self.head.midlayer.mlp.down_proj.weight.mul_(0.2)

    def steps(self, texts: Texts, rows: torch.Tensor, count: int):
        """Yields (draft logits, the target's logits, whether the step reads a token) of each step of the chains that
        begin at every pair. No step reads the end token or what is behind it."""
        pairs = texts.lengths[rows].max().item() - 1
        ids = texts.ids[rows].clone()
        ids[torch.arange(ids.shape[1]) >= texts.lengths[rows][:, None]] = IGNORED
        ids[ids == self.target.eos] = IGNORED
        ids = functional.pad(ids[:, :pairs + 1], (0, count), value=IGNORED)
        wanted = functional.pad(texts.last[rows][:, :pairs + 1].float() @ self.output.T, (0, 0, 0, count))
        embedded = self.target.embedding()[ids.clamp(min=0)]
        parts = [slice(1 + step, 1 + step + pairs) for step in range(count)]
        chain = self.head.chain(texts.hidden[rows][:, :pairs].float(), [embedded[:, part] for part in parts])
        for logits, part in zip(chain, parts):
            yield logits, wanted[:, part], ids[:, part] != IGNORED

    def loss(self, texts: Texts, rows: torch.Tensor) -> torch.Tensor:
        """Cross entropy with the target's distribution on the draft vocabulary and with its best token, where that is
        in the draft vocabulary; later steps count less."""
        total, share, weights = 0.0, self.args.best_share, 0.0
        for step, (logits, wanted, is_read) in enumerate(self.steps(texts, rows, self.args.steps)):
            best = self.draft_of[wanted.argmax(-1)]
            used = is_read & (best != IGNORED)
            wanted = torch.softmax(wanted[used][:, self.token_of], -1) * (1 - share)
            wanted.scatter_add_(1, best[used][:, None], torch.full((len(wanted), 1), share))
            weight = self.args.step_decay ** step
            total = total - weight * (wanted * torch.log_softmax(logits[used], -1)).sum(-1).mean()
            weights += weight
        return total / weights

    def train(self, texts: Texts, held_out: Texts) -> int:
        args, head = self.args, self.head
        optimizer = torch.optim.AdamW(
            [{"params": [p for p in head.parameters() if p.dim() > 1], "weight_decay": args.weight_decay},
             {"params": [p for p in head.parameters() if p.dim() == 1], "weight_decay": 0.0}],
            lr=args.learning_rate, betas=(0.9, 0.95))
        order, rng, progress = [], random.Random(args.seed), Progress()
        start = checked = time.monotonic()
        average, step = None, 0
        while True:
            # The schedule follows the clock, because the machine may be shared and the number of steps is not known.
            done = min(1.0, max((time.monotonic() - start) / (60 * args.minutes), (step + 1) / args.max_steps))
            rate = args.learning_rate * min(1.0, (step + 1) / 50) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
            for group in optimizer.param_groups:
                group["lr"] = rate
            if not order:
                # Rows are in the order of their lengths, so that little of a batch is padding.
                count = len(texts.ids)
                order = [list(range(i, min(i + args.rows, count))) for i in range(0, count, args.rows)]
                rng.shuffle(order)
            loss = self.loss(texts, torch.tensor(order.pop()))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            step += 1
            average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
            progress.show(done, f"step {step}  loss {average:.3f}")
            if not progress.visible and time.monotonic() - checked > args.check_every_s:
                rates, mean = self.acceptance(held_out)
                checked = time.monotonic()
                print(f"{(checked - start) / 60:5.1f} min  step {step}  loss {average:.4f}  {line(rates)}  "
                      f"mean {mean:.2f}", flush=True)
                write_head(args.out, head, self.token_of, torch.bfloat16)  # so that it can be stopped at any time
            if done >= 1.0:
                progress.end()
                return step

    @torch.no_grad()
    def acceptance(self, texts: Texts) -> tuple:
        """Returns, for each step, how often it gives the target's greedy token if all steps before it do, over the
        chains that begin at every pair of greedy texts; and the mean number of right drafts of the chains that an
        engine runs, each of which begins behind the tokens that the one before gave."""
        right, asked, engine = [0] * self.args.drafts, [0] * self.args.drafts, []
        for start in range(0, len(texts.ids), 16):
            rows = torch.arange(start, min(start + 16, len(texts.ids)))
            alive, whole, accepted = torch.tensor(True), torch.tensor(True), torch.tensor(0)
            for step, (logits, wanted, is_read) in enumerate(self.steps(texts, rows, self.args.drafts)):
                whole = whole & is_read
                alive = alive & is_read
                asked[step] += alive.sum().item()
                alive = alive & (self.token_of[logits.argmax(-1)] == wanted.argmax(-1))
                right[step] += alive.sum().item()
                accepted = accepted + alive.long()
            for row_accepted, row_whole in zip(accepted.tolist(), whole.tolist()):
                pair = FIRST_MEASURED
                while pair < len(row_whole) and row_whole[pair]:
                    engine.append(row_accepted[pair])
                    pair += row_accepted[pair] + 1
        return [r / max(1, a) for r, a in zip(right, asked)], sum(engine) / max(1, len(engine))


def line(rates: list) -> str:
    return "acceptance " + " ".join(f"{rate:.3f}" for rate in rates)


def write_head(folder: Path, head: EagleHead, token_of: torch.Tensor, dtype: torch.dtype) -> int:
    """Writes the folder in the format of the paper's program. Returns its size."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in head.state_dict().items()}
    tensors["d2t"] = token_of - torch.arange(len(token_of))
    tensors["t2d"] = torch.zeros(head.c.vocab, dtype=torch.bool)
    tensors["t2d"][token_of] = True
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    keys = head.c.keys(str(dtype).removeprefix("torch."))
    (folder / "config.json").write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)
    return sum(path.stat().st_size for path in folder.iterdir())


def greedy_texts(target: Target, count: int, seed: int, length: int) -> Texts:
    """Greedy continuations of beginnings of held-out stories. Only texts that are all different count."""
    rng = random.Random(seed)
    stories = target.stories(count, seed + HELD_OUT_SEED_OFFSET)
    rows = {}
    for begin in (4, 8, 12, 16, 24, 40):
        group = [story[:begin] for story in rng.sample(stories, count // 6) if len(story) > begin]
        rows |= {tuple(row): None for row in target.write(group, 0.0, length)}
    return target.read([list(row) for row in rows], length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True, help="folder of the model (a Llama or alike)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the head")
    parser.add_argument("--minutes", type=float, default=15, help="training time on the wall clock (default 15)")
    parser.add_argument("--max-steps", type=int, default=1_000_000, help="stop after so many steps")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--layer-ids", type=lambda text: [int(i) for i in text.split(",")],
                        help="layers whose inputs the head reads (default 2, half and all but 3 of the layers)")
    parser.add_argument("--draft-vocab", type=int, default=448)
    parser.add_argument("--ffn", type=int, default=24)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=16)
    parser.add_argument("--texts", type=int, default=2048, help="training texts (default 2048)")
    parser.add_argument("--story-share", type=float, default=0.1, help="part of them that are stories of the corpus")
    parser.add_argument("--temperatures", type=lambda text: [float(t) for t in text.split(",")], default=[0, 0.7, 1],
                        help="temperatures of the others (default 0,0.7,1)")
    parser.add_argument("--length", type=int, default=256, help="most tokens of a text (default 256)")
    parser.add_argument("--steps", type=int, default=5, help="predictions of a chain in training (default 5)")
    parser.add_argument("--drafts", type=int, default=5, help="predictions of a chain when measured (default 5)")
    parser.add_argument("--step-decay", type=float, default=0.9, help="factor of the loss of each further prediction")
    parser.add_argument("--best-share", type=float, default=0.3, help="weight of the target's best token in the loss")
    parser.add_argument("--rows", type=int, default=8, help="texts in a batch (default 8)")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.02)
    parser.add_argument("--held-out", type=int, default=96, help="greedy texts to measure with (default 96)")
    parser.add_argument("--check-every-s", type=float, default=120, help="seconds between measurements")
    parser.add_argument("--measure-only", action="store_true", help="print the acceptance of the head in --out")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()

    if args.measure_only:
        head, token_of, _ = load_head(args.out)
        target = Target(args.target, head.c.layer_ids)
    else:
        target = Target(args.target, args.layer_ids)
        config = target.model.config
        target.layer_ids = args.layer_ids or sorted([2, config.num_hidden_layers // 2, config.num_hidden_layers - 3])
        own = int(args.story_share * args.texts)
        stories = target.stories(args.texts, args.seed)
        rows = stories[:own] + written_texts(target, stories[own:], args.temperatures, args.length,
                                             random.Random(args.seed))
        token_of = draft_tokens(rows, args.draft_vocab)
        head = EagleHead(HeadConfig(
            config.hidden_size, args.ffn, args.heads, args.kv_heads, args.head_dim, config.vocab_size, len(token_of),
            target.layer_ids, config.rms_norm_eps, config.rope_parameters["rope_theta"],
            config.max_position_embeddings))
    trainer = Trainer(args, target, head, token_of)
    held_out = greedy_texts(target, args.held_out, args.seed, args.length)
    if not args.measure_only:
        texts = target.read(rows, args.length)
        known = torch.isin(held_out.ids, token_of)[torch.arange(args.length) < held_out.lengths[:, None]]
        print(f"{len(rows)} training texts, {texts.lengths.sum().item()} tokens; {len(held_out.ids)} held-out texts, "
              f"{held_out.lengths.sum().item()} tokens, {100 * known.float().mean().item():.1f} % of them in the draft "
              f"vocabulary; {sum(p.numel() for p in head.parameters())} parameters", flush=True)
        trainer.begin()
        steps = trainer.train(texts, held_out)
        size = write_head(args.out, head, token_of, torch.bfloat16)
        print(f"{args.out}: {size} bytes after {steps} steps", flush=True)
        trainer.head = load_head(args.out)[0]
    rates, mean = trainer.acceptance(held_out)
    print(f"{len(held_out.ids)} greedy texts: {line(rates)}; an engine accepts {mean:.2f} of {args.drafts} drafts")


if __name__ == "__main__":
    main()
