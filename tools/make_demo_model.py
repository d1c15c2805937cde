"""Makes the demo model: a tokenizer and a small Llama that writes short stories, trained here on a CPU.

    python tools/make_demo_model.py --out examples/models/pagoda-stories --minutes 30

The training text comes from demo_corpus.py (a grammar and a seed). The result is a Hugging Face folder in bfloat16 of
about 3 MB. The best weights so far (by loss on held-out stories) are kept in --work/best.pt, so that --export-only can
write the folder at any time, even while a training runs. --golden is written with the folder: the greedy tokens and log
probabilities of a few prompts as transformers computes them (float32 arithmetic on the bfloat16 weights).
"""

import argparse
import json
import math
import platform
import random
import sys
import time
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from demo_corpus import make_corpus

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
BOS_ID, EOS_ID = 0, 1
VOCAB_SIZE = 1024
MAX_LENGTH = 1024
HELD_OUT_SEED_OFFSET = 1_000_003
# Words with their leading space, single digits, punctuation runs, and white space: the shape of Llama 3's pattern.
SPLIT_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                 r"\s*[\r\n]+|\s+(?!\S)|\s+")
SAMPLE_PROMPTS = ["Once upon a time", "One day, a brave rabbit named Momo",
                  "Tell me a story about a little fox named Pip.\n\n"]
GOLDEN_PROMPTS = [
    "Once upon a time", "One day, a brave rabbit named Momo", "Tell me a story about a little fox named Pip.\n\n", "Lily",
    "There was once a kind bear called Bruno, who", "It was a cold and bright morning.", "In a house near the river lived",
    "Suddenly, the sky became dark.", '"Where is my red ball?" asked', "The old owl said", "Tom and Mia went to the park.",
    "Write a story about Ruby.\n\n", "Then they came to a river without a bridge.", "One night, Ben could not sleep.",
    "Long ago", "The end"]
GOLDEN_TOKENS = 64
GOLDEN_SMALLEST_GAP = 0.004


def train_tokenizer(stories: list) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=[BOS, EOS], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(stories, trainer)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)]),
    ])
    assert tokenizer.token_to_id(BOS) == BOS_ID and tokenizer.token_to_id(EOS) == EOS_ID
    return tokenizer


def encode(tokenizer: Tokenizer, stories: list) -> list:
    """Returns each story as [BOS, tokens, EOS]."""
    return [encoding.ids + [EOS_ID] for encoding in tokenizer.encode_batch(stories)]


def model_config(args: argparse.Namespace) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=args.hidden, intermediate_size=args.ffn, num_hidden_layers=args.layers,
        num_attention_heads=args.heads, num_key_value_heads=args.kv_heads, max_position_embeddings=MAX_LENGTH,
        rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=BOS_ID, eos_token_id=EOS_ID, initializer_range=0.04,
        attention_bias=False, mlp_bias=False)


class Batches:
    """Endless training batches of about `tokens_per_batch`: rows of whole stories from their first token on; the last
    story is cut. The row length changes from batch to batch, so that the model learns all positions."""

    def __init__(self, documents: list, tokens_per_batch: int, rng: random.Random):
        self.documents, self.tokens_per_batch, self.rng = documents, tokens_per_batch, rng
        self.order, self.next = [], 0

    def document(self) -> list:
        if self.next == len(self.order):
            self.order = self.rng.sample(range(len(self.documents)), len(self.documents))
            self.next = 0
        self.next += 1
        return self.documents[self.order[self.next - 1]]

    def batch(self) -> torch.Tensor:
        length = self.rng.choice([256, 256, 256, 512, MAX_LENGTH])
        rows = []
        for _ in range(self.tokens_per_batch // length):
            row = []
            while len(row) < length:
                row += self.document()
            rows.append(row[:length])
        return torch.tensor(rows)


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, documents: list) -> float:
    """Returns the mean negative log likelihood per token (nats) of whole stories, each on its own."""
    model.eval()
    total, count = 0.0, 0
    ordered = sorted(documents, key=len)
    for start in range(0, len(ordered), 16):
        group = ordered[start:start + 16]
        width = max(map(len, group))
        ids = torch.tensor([document + [EOS_ID] * (width - len(document)) for document in group])
        labels = torch.tensor([document + [-100] * (width - len(document)) for document in group])
        tokens = sum(len(document) - 1 for document in group)
        total += model(input_ids=ids, labels=labels).loss.item() * tokens
        count += tokens
    model.train()
    return total / count


class Progress:
    """Prints one line, which is rewritten on a terminal. Prints nothing in a pipe."""

    def __init__(self):
        self.visible = sys.stderr.isatty()

    def show(self, fraction: float, text: str) -> None:
        if self.visible:
            filled = int(30 * min(fraction, 1.0))
            sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {100 * min(fraction, 1.0):3.0f} % {text}\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        if self.visible:
            sys.stderr.write("\n")


def train(args: argparse.Namespace, documents: list, held_out: list) -> None:
    torch.manual_seed(args.seed)
    model = LlamaForCausalLM(model_config(args))
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=args.learning_rate, betas=(0.9, 0.95))
    past = {"steps": 0, "tokens": 0, "minutes": 0.0, "held_out_loss": math.inf, "runs": []}
    if args.resume:
        checkpoint = torch.load(args.work / "best.pt", weights_only=True)
        model.load_state_dict(checkpoint["model"])
        past = checkpoint["facts"]
    batches = Batches(documents, args.batch_tokens, random.Random(args.seed + past["steps"]))
    progress = Progress()
    start = time.monotonic()
    limit_s = 60 * args.minutes
    best, average, step, checked = past["held_out_loss"], None, 0, start
    while True:
        # The schedule follows the clock, because the machine may be shared and the number of steps is not known.
        elapsed = time.monotonic() - start
        done = min(1.0, max(elapsed / limit_s, (step + 1) / args.max_steps))
        rate = args.learning_rate * min(1.0, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids = batches.batch()
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        progress.show(done, f"step {step}  loss {average:.3f}  best held-out {best:.3f}")
        if done >= 1.0 or time.monotonic() - checked > args.check_every_s:
            value = held_out_loss(model, held_out)
            checked = time.monotonic()
            minutes = (checked - start) / 60
            if not progress.visible:
                print(f"{minutes:5.1f} min  step {step}  training loss {average:.4f}  held-out loss {value:.4f}",
                      flush=True)
            if value < best:
                best = value
                save_checkpoint(args.work / "best.pt", model, {
                    "steps": past["steps"] + step, "tokens": past["tokens"] + step * args.batch_tokens,
                    "minutes": round(past["minutes"] + minutes, 1), "training_loss": round(average, 4),
                    "held_out_loss": round(value, 4), "runs": past["runs"] + [run_arguments(args)]})
        if done >= 1.0:
            progress.end()
            return


def save_checkpoint(path: Path, model: LlamaForCausalLM, facts: dict) -> None:
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "facts": facts}, partial)
    partial.replace(path)


def generate(model: LlamaForCausalLM, tokenizer: Tokenizer, prompt: str, temperature: float, seed: int) -> str:
    torch.manual_seed(seed)
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {"do_sample": False}
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=400, pad_token_id=EOS_ID,
                         **sampling)
    text = tokenizer.decode(out[0].tolist(), skip_special_tokens=True)
    return text if out[0, -1] == EOS_ID else text + " [...]"


@torch.no_grad()
def greedy_golden(model: LlamaForCausalLM, tokenizer: Tokenizer, prompt: str) -> dict:
    """Returns 64 tokens by argmax, including the end token. min_top2_gap is the smallest gap between the two best log
    probabilities. The first token of a prompt has no log probability."""
    prompt_ids = tokenizer.encode(prompt).ids
    ids, gap = list(prompt_ids), math.inf
    for _ in range(GOLDEN_TOKENS):
        best = torch.topk(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1], 2)
        gap = min(gap, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    table = torch.log_softmax(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0], -1)
    logprobs = [round(table[i - 1, ids[i]].item(), 6) for i in range(1, len(ids))]
    generated = ids[len(prompt_ids):]
    return {"prompt": prompt, "prompt_token_ids": prompt_ids,
            "text": tokenizer.decode(generated, skip_special_tokens=True), "token_ids": generated,
            "logprobs": logprobs[len(prompt_ids) - 1:], "prompt_logprobs": [None] + logprobs[:len(prompt_ids) - 1],
            "min_top2_gap": round(gap, 6)}


def write_golden(path: Path, model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Writes one line per prompt. Leaves out prompts with a close call, which other rounding could turn."""
    goldens = [greedy_golden(model, tokenizer, prompt) for prompt in GOLDEN_PROMPTS]
    lines = [json.dumps(golden) for golden in goldens if golden["min_top2_gap"] >= GOLDEN_SMALLEST_GAP]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{path}: {len(lines)} prompts")


def export(args: argparse.Namespace, tokenizer: Tokenizer, documents: list, held_out: list) -> None:
    checkpoint = torch.load(args.work / "best.pt", weights_only=True)
    config = model_config(args)
    model = LlamaForCausalLM(config)
    model.load_state_dict(checkpoint["model"])
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=BOS_ID, eos_token_id=EOS_ID, do_sample=True, temperature=0.8)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out)
    use_classic_keys(args.out / "config.json")
    tokenizer.save(str(args.out / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                     "special": True} for i, token in enumerate([BOS, EOS])},
        "chat_template": "{{ bos_token }}{{ messages[-1]['content'] + '\\n\\n' }}",
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2) + "\n")
    # Float32 arithmetic on the bfloat16 weights, as an engine would run it. model.float() would keep the rotary
    # frequencies that model.to(bfloat16) has rounded.
    model = LlamaForCausalLM.from_pretrained(args.out, dtype=torch.float32).eval()
    facts = checkpoint["facts"]
    facts["held_out_loss_bf16"] = round(held_out_loss(model, held_out), 4)
    samples = [(prompt, temperature, generate(model, tokenizer, prompt, temperature, args.seed))
               for prompt in SAMPLE_PROMPTS for temperature in (0.0, 0.8)]
    card = model_card(args, config, model.num_parameters(), documents, held_out, facts, samples)
    (args.out / "README.md").write_text(card)
    for path in args.out.iterdir():
        path.chmod(0o644)
    write_golden(args.golden, model, tokenizer)
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {size / 1e6:.2f} MB, held-out loss {facts['held_out_loss_bf16']:.4f} after {facts['steps']} steps")


def use_classic_keys(path: Path) -> None:
    """Replaces the keys of transformers 5 in a config.json by those of transformers 4, which every program reads."""
    config = json.loads(path.read_text())
    config["rope_theta"], config["rope_scaling"] = config.pop("rope_parameters")["rope_theta"], None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def model_card(args, config, parameters, documents, held_out, facts, samples) -> str:
    tokens = sum(map(len, documents))
    lines = [
        "# pagoda-stories", "",
        f"This is a Llama of {parameters / 1e6:.2f} million parameters that writes short, simple English stories and then "
        "stops.",
        "It is there so that a fresh checkout can generate text, be benchmarked and be tested end to end without a "
        "download.", "",
        "It is good for demos, tests and the examples of this repository. It is not good for facts, questions, or anything "
        "that is not a short story, because it knows only the few hundred words of its grammar. It keeps names, but it may "
        "confuse a thing or an animal with another one before the story ends.", "",
        "Try `Once upon a time`, `One day, a shy bear named Bruno`, or `Tell me a story about a brave rabbit named Momo.` "
        "followed by an empty line. The word lists of `tools/demo_corpus.py` are the characters, places and things that it "
        "knows. Temperature 0.8 gives a different story for each seed.", "",
        "## How it was made", "",
        "```", *[f"python tools/make_demo_model.py {arguments}" for arguments in facts["runs"]], "```", "",
        "| | |", "|---|---|",
        f"| architecture | LlamaForCausalLM: hidden {config.hidden_size}, {config.num_hidden_layers} layers, "
        f"{config.num_attention_heads} heads, {config.num_key_value_heads} KV heads, FFN {config.intermediate_size}, tied "
        f"embeddings, {config.max_position_embeddings} positions, bfloat16 |",
        f"| tokenizer | byte-level BPE, {VOCAB_SIZE} tokens, trained on the same stories |",
        f"| training text | {len(documents):,} stories, {tokens:,} tokens, made by the grammar in `tools/demo_corpus.py` "
        f"from seed {args.seed}; no other text |",
        f"| held-out text | {len(held_out):,} stories of another seed, none of them in the training text |",
        f"| training | {facts['steps']:,} steps, {facts['tokens'] / 1e6:.1f} million tokens, AdamW, {facts['minutes']} "
        "minutes on a part of one shared CPU core |",
        f"| loss (nats per token) | training {facts['training_loss']}, held-out {facts['held_out_loss']}; held-out with "
        f"the bfloat16 weights {facts['held_out_loss_bf16']} |",
        f"| made with | Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__} |", "",
        "The same seed gives the same text and tokenizer. The weights depend on how many steps fit into the minutes, "
        "so a new run gives a similar model, not the same bytes.", "",
        "## Samples", "",
    ]
    for prompt, temperature, text in samples:
        how = "greedy" if temperature == 0 else f"temperature {temperature}, seed {args.seed}"
        lines += [f"Prompt `{json.dumps(prompt)[1:-1]}`, {how}:", ""]
        lines += [("> " + line).rstrip() for line in text.split("\n")] + [""]
    return "\n".join(lines)


def run_arguments(args: argparse.Namespace) -> str:
    """Returns the flags that affect the result, for the model card."""
    names = ["seed", "stories", "minutes", "threads", "hidden", "layers", "heads", "kv_heads", "ffn", "batch_tokens",
             "learning_rate"]
    flags = [f"--{name.replace('_', '-')} {getattr(args, name):g}" for name in names]
    return " ".join(flags + ["--resume"] * args.resume)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("examples/models/pagoda-stories"), help="folder to write")
    parser.add_argument("--golden", type=Path, default=Path("tests/data/models/pagoda-stories/greedy.json"),
                        help="file for the greedy tokens of a few prompts")
    parser.add_argument("--work", type=Path, default=Path("build/demo-model"), help="folder for checkpoints")
    parser.add_argument("--minutes", type=float, default=30, help="training time on the wall clock (default 30)")
    parser.add_argument("--max-steps", type=int, default=1_000_000, help="stop after so many steps")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--stories", type=int, default=60_000, help="training stories (default 60000)")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--ffn", type=int, default=352)
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens per step (default 4096)")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--check-every-s", type=float, default=90, help="seconds between held-out checks")
    parser.add_argument("--resume", action="store_true", help="go on from the best checkpoint in --work")
    parser.add_argument("--export-only", action="store_true", help="write the folder from the best checkpoint so far")
    args = parser.parse_args()
    if args.hidden % args.heads or args.heads % args.kv_heads or (args.hidden // args.heads) % 2:
        parser.error("--hidden must be an even multiple of --heads, and --heads a multiple of --kv-heads")
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()
    args.work.mkdir(parents=True, exist_ok=True)

    stories = make_corpus(args.stories, args.seed)
    known = set(stories)
    held_out_stories = [story for story in make_corpus(300, args.seed + HELD_OUT_SEED_OFFSET) if story not in known]
    tokenizer = train_tokenizer(stories)
    documents, held_out = encode(tokenizer, stories), encode(tokenizer, held_out_stories)
    if not args.export_only:
        train(args, documents, held_out)
    export(args, tokenizer, documents, held_out)


if __name__ == "__main__":
    main()
