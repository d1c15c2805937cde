"""Settings of the servers of a round: the model, the flags of both, and the memory of the disturbed one."""
import json
import os
import pathlib
import shutil
from dataclasses import dataclass, field

from thinking_model import thinking_model, write_template

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KINDS = ("calm", "kills", "recovery", "crashes")
VARIANTS = ("plain", "plain", "window", "thinking")
MAX_MODEL_LEN = 512
WINDOW = 40
AMPLE_FLAGS = ("--num-device-blocks", "3000", "--block-size", "16", "--max-num-seqs", "64", "--pipeline-depth", "1",
               "--no-enable-prefix-caching", "--max-num-batched-tokens", "600")


@dataclass
class Pool:
    """The KV memory of a server."""
    block_size: int
    num_blocks: int
    window: int = 0  # number of tokens that a query sees; 0: all
    is_chunked: bool = True

    def blocks_for(self, num_tokens):
        return -(-num_tokens // self.block_size)

    def holds(self, num_tokens):
        """Returns whether a sequence that has the pool for itself can have `num_tokens` tokens."""
        blocks = self.blocks_for(num_tokens)
        if self.window and self.is_chunked:
            blocks = min(blocks, self.blocks_for(self.window) + 1)
        return blocks <= self.num_blocks

    def holds_beams(self, prompt_len, num_tokens, width):
        """Returns whether a beam search can certainly have `num_tokens` tokens after its prompt."""
        shared = prompt_len // self.block_size
        own = self.blocks_for(prompt_len + num_tokens) - shared
        return shared + width * (own + 1) <= self.num_blocks


@dataclass
class Setup:
    """The settings that a round draws before its requests."""
    kind: str
    variant: str
    pool: Pool = None
    max_num_seqs: int = 0
    stream_interval: int = 1
    shared: list = field(default_factory=list)  # flags of both servers
    flags: list = field(default_factory=list)  # flags of the disturbed server

    def has(self, flag):
        return flag in self.flags

    def add(self, flag, value=None):
        self.flags += [flag] if value is None else [flag, str(value)]


def draw_setup(rng, kind, variants=VARIANTS):
    setup = Setup(kind, rng.choice(variants))
    setup.shared = ["--max-model-len", str(MAX_MODEL_LEN), "--max-logprobs", "-1", "--threads", "1"]
    if rng.random() < 0.4:
        setup.shared += ["--kv-cache-dtype", rng.choice(["float32", "bfloat16", "float16", "int8", "fp8_e4m3"])]
    draw_memory(rng, setup)
    draw_steps(rng, setup)
    draw_scheduling(rng, setup)
    draw_output(rng, setup)
    draw_processes(rng, setup)
    return setup


def draw_memory(rng, setup):
    block_size = rng.choice([1, 4, 8, 16, 32])
    num_slots = rng.choice([150, 540, 540, 700, 1100])
    num_blocks = num_slots // block_size + 1
    window = WINDOW if setup.variant == "window" else 0
    setup.pool = Pool(block_size, num_blocks, window)
    setup.add("--block-size", block_size)
    setup.add("--num-device-blocks", num_blocks)
    setup.add("--num-host-blocks", rng.choice([0, 0, num_blocks // 3, 2 * num_blocks]))
    setup.add("--preemption-mode", rng.choice(["recompute", "swap", "auto"]))
    if rng.random() < 0.3:
        setup.add("--no-enable-prefix-caching")
    if rng.random() < 0.3:
        setup.add("--watermark", rng.choice([0, 0.1, 0.3]))


def draw_steps(rng, setup):
    setup.max_num_seqs = rng.choice([3, 5, 16, 32, 64])
    setup.add("--max-num-seqs", setup.max_num_seqs)
    setup.add("--pipeline-depth", rng.choice([1, 2, 2]))
    if rng.random() < 0.25:
        setup.add("--no-enable-chunked-prefill")
        setup.pool.is_chunked = False
        return
    setup.add("--max-num-batched-tokens", rng.choice([64, 100, 300]))
    if rng.random() < 0.3:
        setup.add("--long-prefill-token-threshold", rng.choice([10, 40, 200]))
    if rng.random() < 0.3:
        setup.add("--max-num-partial-prefills", rng.choice([2, 4]))
    if rng.random() < 0.15:
        setup.add("--target-itl-ms", rng.choice([1, 5, 50]))


def draw_scheduling(rng, setup):
    setup.add("--scheduling-policy", rng.choice(["fcfs", "priority", "fair"]))
    if rng.random() < 0.3:
        setup.add("--priority-aging-s", rng.choice([0, 0.1, 1]))
    if rng.random() < 0.3:
        setup.add("--no-priority-preemption")
    if rng.random() < 0.3:
        setup.add("--max-chunk-ms", rng.choice([0, 1, 20]))
    if rng.random() < 0.15:
        setup.add("--scheduler-delay-factor", 1.5)


def draw_output(rng, setup):
    if rng.random() < 0.2:
        setup.stream_interval = rng.choice([2, 7])
        setup.add("--stream-interval", setup.stream_interval)


def draw_processes(rng, setup):
    if setup.kind in ("kills", "crashes") or rng.random() < 0.25:
        setup.add("--worker-processes")
        if rng.random() < 0.5:
            setup.add("--standby-worker")


def add_files(rng, setup, folder):
    """Adds flags that name files of the round."""
    if setup.kind == "recovery" or rng.random() < 0.2:
        setup.add("--journal", os.path.join(folder, "journal"))
        setup.add("--journal-mib", rng.choice([4, 16, 64]))
    if setup.kind == "recovery":
        setup.add("--recover", os.path.join(folder, "journal"))
    has_host_blocks = setup.flags[setup.flags.index("--num-host-blocks") + 1] != "0"
    if has_host_blocks and rng.random() < 0.15:
        setup.add("--swap-dir", folder)


def variants_of(model):
    """Returns the variants that can be made of a model."""
    if not os.path.isdir(model):
        return ("plain",)
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    has_tokenizer = os.path.exists(os.path.join(model, "tokenizer.json"))
    makes_window = config["model_type"] == "llama" and not config.get("attention_bias")
    return tuple(variant for variant in VARIANTS if variant == "plain" or
                 (variant == "window" and makes_window) or (variant == "thinking" and has_tokenizer))


def make_variant(model, variant, folder):
    """Makes a variant of the model in the folder. Returns its path, and adds the flags that both servers need."""
    template = str(ROOT / "examples" / "templates" / "chatml-tools.jinja")
    flags = []
    if variant == "thinking":
        flags += thinking_model(model, folder)
        template = os.path.join(folder, "thinking.jinja")
        write_template(template)
    elif variant == "window":
        make_window(model, folder)
    return model if variant == "plain" else folder, flags + ["--chat-template", template]


def make_window(model, folder):
    """Makes a Llama whose tokens see the last WINDOW tokens: a Mistral with its weights."""
    for name in os.listdir(model):
        if name != "config.json":
            shutil.copy(os.path.join(model, name), folder)
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": WINDOW}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
