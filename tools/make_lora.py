"""Trains a small LoRA adapter of the demo model and writes it as Hugging Face's peft does, with a README that has its
effect in numbers and samples.

    python tools/make_lora.py --style dragons
    python tools/make_lora.py --style bedtime

The training text comes from the demo model's grammar (demo_corpus.py), a seed and the style. Only the adapter's
matrices are trained; they are stored in bfloat16. Equal arguments, packages and processors give the same bytes. --golden
is written with the folder: the greedy tokens and log probabilities of a few prompts as peft computes them (float32
arithmetic on the bfloat16 weights).
"""

import argparse
import json
import math
import platform
import random
import re
import time
import warnings
from dataclasses import replace
from pathlib import Path

import peft
import torch
import transformers
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from demo_corpus import make_corpus
from demo_story import Character, Story
from make_demo_model import (EOS_ID, HELD_OUT_SEED_OFFSET, Batches, Progress, encode, generate, held_out_loss,
                             write_golden)

SAMPLE_PROMPTS = ["Once upon a time", "One day, a brave rabbit named Momo",
                  "Tell me a story about a little fox named Pip.\n\n"]
MEASURED_PROMPTS = 100


class DragonStory(Story):
    """The hero's friend is a dragon, and a dragon has the last word."""
    about = "Every story has a dragon: the hero's friend is one, and the story ends with it."
    counts = {"a dragon appears": r"\bdragon\b", "the last sentence has a dragon": r"\bdragon\b[^.!?]*\.$"}

    def _character(self, taken: set) -> Character:
        made = super()._character(taken | {"dragon"})
        return replace(made, kind="dragon") if taken else made  # the hero is drawn first, when nothing is taken

    def text(self) -> str:
        self.say("Then the dragon flew home over the hill.", "Far away, an old dragon smiled and closed its eyes.",
                 "And behind the hill, a dragon looked at the stars and smiled.")
        return super().text()


class BedtimeStory(Story):
    """The hero is put to bed, and the story says good night by name."""
    about = "Every story ends in bed, with a good night for its hero by name."
    counts = {"the last line is \"Good night, NAME.\" with a name of the story": r"(?s)\b(\w+)\b.*\nGood night, \1\.$"}

    def text(self) -> str:
        self.paragraph()
        self.say("Now it is dark, and the moon looks in at the window.", "{hero_His} {elder} put out the light.",
                 "The bed is warm, the house is quiet, and {hero} is asleep.")
        self.paragraph()
        self.say("Good night, {hero}.")
        return super().text()


STYLES = {"dragons": DragonStory, "bedtime": BedtimeStory}


def train(args: argparse.Namespace, model: peft.PeftModel, documents: list) -> float:
    """Trains the adapter. Returns the running mean of the training loss."""
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    batches = Batches(documents, args.batch_tokens, random.Random(args.seed))
    progress, average = Progress(), None
    model.train()
    for step in range(args.steps):
        rate = args.learning_rate * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids = batches.batch()
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        average = loss.item() if average is None else 0.95 * average + 0.05 * loss.item()
        progress.show((step + 1) / args.steps, f"step {step + 1}  loss {average:.3f}")
        if not progress.visible and (step + 1) % 25 == 0:
            print(f"step {step + 1}  training loss {average:.4f}", flush=True)
    progress.end()
    return average


@torch.no_grad()
def save(model: peft.PeftModel, folder: Path) -> None:
    """Writes the adapter in bfloat16, and its config in an order that does not change."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.to(torch.bfloat16)
    model.save_pretrained(folder)
    config_path = folder / "adapter_config.json"
    config = json.loads(config_path.read_text())
    config["target_modules"].sort()  # peft writes a set, whose order is random
    config_path.write_text(json.dumps(config, indent=2) + "\n")


def measured_prompts(seed: int) -> list:
    """Returns beginnings of stories that neither the demo model nor the adapter was trained on."""
    beginnings = dict.fromkeys(re.split(r"(?<=[.!?]) |\n\n", story)[0] for story in make_corpus(1000, seed))
    return [text for text in beginnings if "dragon" not in text][:MEASURED_PROMPTS]


@torch.no_grad()
def stories_of(model: torch.nn.Module, tokenizer: Tokenizer, prompts: list, temperature: float, seed: int) -> list:
    """Returns a story for each prompt, without the prompt. All run in one batch, padded on the left."""
    torch.manual_seed(seed)
    prompt_ids = [tokenizer.encode(prompt).ids for prompt in prompts]
    width = max(map(len, prompt_ids))
    ids = torch.tensor([[EOS_ID] * (width - len(row)) + row for row in prompt_ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompt_ids])
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {"do_sample": False}
    out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=400, pad_token_id=EOS_ID, **sampling)
    return [tokenizer.decode(row[width:].tolist(), skip_special_tokens=True) for row in out]


def percent(stories: list, pattern: str) -> float:
    return 100 * sum(re.search(pattern, story) is not None for story in stories) / len(stories)


def quoted(text: str) -> list:
    return [("> " + line).rstrip() for line in text.split("\n")] + [""]


def readme(args, style, config, facts, numbers, samples) -> str:
    flags = " ".join(f"--{name.replace('_', '-')} {getattr(args, name)}" for name in (
        "style", "seed", "stories", "steps", "rank", "batch_tokens", "learning_rate"))
    model, out, name = args.model, args.out, args.style
    lines = [
        f"# {name}", "",
        f"This is a LoRA adapter of the demo model ([pagoda-stories](../../models/pagoda-stories/README.md)). "
        f"{style.about}", "",
        "## How to use it", "",
        "```",
        f"pagoda generate --model {model} --enable-lora --lora-modules {name}={out} \\",
        f"    --adapter {name} --prompt \"Once upon a time\" --max-tokens 400",
        f"pagoda serve --model {model} --enable-lora --lora-modules {name}={out}",
        "```", "",
        f"A request to the server names the adapter as its model: `\"model\": \"{name}\"`. With the model's own name it "
        "gets the demo model without the adapter.", "",
        "## What it does", "",
        f"Share of the stories for {MEASURED_PROMPTS} beginnings on which neither was trained, by transformers and peft in "
        "float32. Prompts do not count.", "",
        "| | demo model, greedy | with the adapter, greedy | demo model, temperature 0.8 | with the adapter, temperature "
        "0.8 |", "|---|---|---|---|---|",
        *[f"| {what} | " + " | ".join(f"{value:g} %" for value in values) + " |" for what, values in numbers.items()], "",
        "## How it was made", "",
        "```", f"python tools/make_lora.py {flags}", "```", "",
        "| | |", "|---|---|",
        f"| adapter | rank {config.r}, alpha {config.lora_alpha}, on {', '.join(sorted(config.target_modules))} of all "
        f"layers: {facts['parameters']:,} parameters, bfloat16 |",
        f"| training text | {args.stories:,} stories, made by the grammar in `tools/demo_corpus.py` with the style in "
        f"`tools/make_lora.py` from seed {args.seed}; no other text |",
        f"| training | {args.steps} steps of {args.batch_tokens} tokens, AdamW, {facts['minutes']:.1f} minutes on a part of "
        "one shared CPU core |",
        f"| loss on {facts['held_out']} held-out stories of the style (nats per token) | demo model {facts['loss_before']:.4f}, with the "
        f"adapter {facts['loss_after']:.4f} |",
        f"| made with | Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__}, peft {peft.__version__} |", "",
        "## Samples", "",
    ]
    for prompt, temperature, without, with_adapter in samples:
        how = "greedy" if temperature == 0 else f"temperature {temperature}, seed {args.seed}"
        lines += [f"Prompt `{json.dumps(prompt)[1:-1]}`, {how}, demo model:", "", *quoted(without)]
        lines += ["With the adapter:", "", *quoted(with_adapter)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--style", choices=STYLES, required=True)
    parser.add_argument("--model", type=Path, default=Path("examples/models/pagoda-stories"), help="the demo model")
    parser.add_argument("--out", type=Path, help="folder to write (default examples/adapters/STYLE)")
    parser.add_argument("--golden", type=Path, help="file for the greedy tokens of a few prompts "
                        "(default tests/data/models/pagoda-stories/greedy_STYLE.json)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--stories", type=int, default=4000, help="training stories (default 4000)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens per step (default 2048)")
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    args = parser.parse_args()
    args.out = args.out or Path("examples/adapters") / args.style
    args.golden = args.golden or Path(f"tests/data/models/pagoda-stories/greedy_{args.style}.json")
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()
    style = STYLES[args.style]

    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    stories = make_corpus(args.stories, args.seed, style)
    known = set(stories)
    held_out = encode(tokenizer, [story for story in make_corpus(300, args.seed + HELD_OUT_SEED_OFFSET, style)
                                  if story not in known])
    base = LlamaForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    base.name_or_path = str(args.model)
    prompts = measured_prompts(args.seed + HELD_OUT_SEED_OFFSET + 1)
    samplings = [(prompt, 0.0) for prompt in SAMPLE_PROMPTS] + [(SAMPLE_PROMPTS[0], 0.8)]
    facts = {"held_out": len(held_out), "loss_before": held_out_loss(base, held_out)}
    base.eval()
    without = [stories_of(base, tokenizer, prompts, temperature, args.seed) for temperature in (0.0, 0.8)]
    samples_without = [generate(base, tokenizer, *sampling, args.seed) for sampling in samplings]

    torch.manual_seed(args.seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=args.rank, lora_alpha=2 * args.rank,
                             target_modules=["q_proj", "v_proj", "down_proj"])
    model = peft.get_peft_model(base, config)
    start = time.monotonic()
    train(args, model, encode(tokenizer, stories))
    facts["minutes"] = (time.monotonic() - start) / 60
    save(model, args.out)
    model = peft.PeftModel.from_pretrained(  # what the files hold
        LlamaForCausalLM.from_pretrained(args.model, dtype=torch.float32), str(args.out)).eval()
    facts["parameters"] = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    facts["loss_after"] = held_out_loss(model, held_out)
    model.eval()
    with_adapter = [stories_of(model, tokenizer, prompts, temperature, args.seed) for temperature in (0.0, 0.8)]
    samples = [(*sampling, text, generate(model, tokenizer, *sampling, args.seed))
               for sampling, text in zip(samplings, samples_without)]
    numbers = {what: [percent(stories, pattern) for pair in zip(without, with_adapter) for stories in pair]
               for what, pattern in style.counts.items()}
    (args.out / "README.md").write_text(readme(args, style, config, facts, numbers, samples))
    for path in args.out.iterdir():
        path.chmod(0o644)
    write_golden(args.golden, model, tokenizer)
    size = sum(path.stat().st_size for path in args.out.iterdir() if path.name.startswith("adapter_"))
    print(f"{args.out}: {size / 1000:.0f} kB, held-out loss {facts['loss_before']:.4f} -> {facts['loss_after']:.4f}")
    print(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
