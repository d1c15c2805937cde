#!/usr/bin/env python3
"""Writes the tokenizer goldens under tests/data/text/ with the Hugging Face `tokenizers` package.

    python3 tools/make_tokenizer_goldens.py SHARED_DIR

SHARED_DIR has tokenizers/*/tokenizer.json and models/stories260k/tokenizer.json. Two kinds of files are written:

hard_strings_<tokenizer>.json   ids of every string in hard_strings.json and their text, for the shared tokenizers;
components.json                 one small tokenizer per normalizer, pre-tokenizer, decoder and added-token option.

Each file names the version of the package. The results are deterministic.
"""

import json
import pathlib
import random
import sys

import tokenizers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
SHARED_TOKENIZERS = {
    "gpt2": "tokenizers/gpt2",
    "llama2": "tokenizers/llama2",
    "qwen2_5": "tokenizers/qwen2_5",
    "baichuan2": "tokenizers/baichuan2",
    "stories260k": "models/stories260k",
}
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write(name, value):
    """Writes one case a line, so that a change shows as the changed lines."""
    head = {k: v for k, v in value.items() if not isinstance(v, list)}
    lists = {k: v for k, v in value.items() if isinstance(v, list)}
    dump = lambda v: json.dumps(v, ensure_ascii=True, separators=(",", ":"))
    lines = [f"{dump(k)}:{dump(v)}" for k, v in head.items()]
    for key, items in lists.items():
        lines.append(f"{dump(key)}:[\n" + ",\n".join(dump(i) for i in items) + "\n]")
    (DATA / name).write_text("{" + ",\n".join(lines) + "}\n", encoding="ascii")


def decoded(tokenizer, ids):
    return {
        "ids": ids,
        "text": tokenizer.decode(ids, skip_special_tokens=True),
        "raw": tokenizer.decode(ids, skip_special_tokens=False),
    }


def hard_strings(shared):
    strings = json.loads((DATA / "hard_strings.json").read_text(encoding="utf-8"))
    for name, folder in SHARED_TOKENIZERS.items():
        tokenizer = tokenizers.Tokenizer.from_file(str(shared / folder / "tokenizer.json"))
        plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
        special = [tokenizer.encode(text, add_special_tokens=True).ids for text in strings]
        rng = random.Random(7)
        vocab = tokenizer.get_vocab_size()
        sequences = []
        for _ in range(60):
            high = vocab if rng.random() < 0.5 else min(vocab, 400)
            sequences.append([rng.randrange(high) for _ in range(rng.randrange(1, 16))])
        write(
            f"hard_strings_{name}.json",
            {
                "tokenizers": tokenizers.__version__,
                "tokenizer": folder,
                "encode": [{"plain": p, **decoded(tokenizer, s)} for p, s in zip(plain, special)],
                "decode": [decoded(tokenizer, ids) for ids in sequences],
            },
        )


def visible_bytes():
    """Returns GPT-2's characters for the bytes 0..255."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    free = iter(range(256, 512))
    return [chr(b) if b in visible else chr(next(free)) for b in range(256)]


def byte_level_model():
    vocab = visible_bytes()
    merges = []
    for word in ("\u0120the", "hello", "\u0120world", "\u0120\u0120\u0120", "123", "ing", "'ll", "\u00c3\u00a9"):
        left = word[0]
        for right in word[1:]:
            if [left, right] not in merges:
                merges.append([left, right])
            left += right
            if left not in vocab:
                vocab.append(left)
    return bpe(vocab, merges)


def fallback_model(**options):
    vocab = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    vocab += sorted(set("\u2581abcdefghijklmnopqrstuvwxyzABC0123456789.,!?'\u00e9\u4e16"))
    merges = []
    for word in ("\u2581the", "\u2581hello", "world", "\u2581\u2581", "ing", "12"):
        left = word[0]
        for right in word[1:]:
            merges.append(f"{left} {right}")
            left += right
            if left not in vocab:
                vocab.append(left)
    return bpe(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True) | options


def bpe(vocab, merges, **options):
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(vocab)},
        "merges": merges,
    }
    return model | options


def added(model, content, **options):
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {"id": model["vocab"].get(content, len(model["vocab"])), "content": content} | flags | options


def component_parts():
    """Yields (name, model name, the other parts of the tokenizer.json)."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2 = byte_level | {"use_regex": True}
    split = lambda pattern, behavior="Isolated", invert=False: {
        "type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    then_bytes = lambda *parts: {"type": "Sequence", "pretokenizers": [*parts, byte_level]}
    byte_decoder = {"decoder": byte_level}

    yield "byte_level", "bytes", {"pre_tokenizer": gpt2} | byte_decoder
    yield "byte_level_prefix_space", "bytes", {"pre_tokenizer": gpt2 | {"add_prefix_space": True}} | byte_decoder
    yield "llama3_split", "bytes", {"pre_tokenizer": then_bytes(split({"Regex": LLAMA3_PATTERN}))} | byte_decoder
    yield "o200k_split", "bytes", {"pre_tokenizer": then_bytes(split({"Regex": O200K_PATTERN}))} | byte_decoder
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"split_{behavior}", "bytes", {"pre_tokenizer": then_bytes(split({"Regex": r"\s"}, behavior))}
        yield f"split_inverted_{behavior}", "bytes", {"pre_tokenizer": then_bytes(split({"Regex": r"\w+"}, behavior, True))}
        yield f"punctuation_{behavior}", "bytes", {"pre_tokenizer": then_bytes({"type": "Punctuation", "behavior": behavior})}
    yield "split_string", "bytes", {"pre_tokenizer": then_bytes(split({"String": "l"}, "MergedWithPrevious"))}
    yield "split_script", "bytes", {"pre_tokenizer": then_bytes(split({"Regex": r"[\p{Han}]+|\p{Greek}|\p{N}{,2}"}))}
    yield "split_lines", "bytes", {"pre_tokenizer": then_bytes(split({"Regex": r"^.|.$"}))}
    yield "digits", "bytes", {"pre_tokenizer": then_bytes({"type": "Digits", "individual_digits": False})}
    yield "digits_individual", "bytes", {"pre_tokenizer": then_bytes({"type": "Digits", "individual_digits": True})}
    yield "whitespace", "bytes", {"pre_tokenizer": then_bytes({"type": "Whitespace"})}
    yield "whitespace_split", "bytes", {"pre_tokenizer": then_bytes({"type": "WhitespaceSplit"})}
    yield "ignore_merges", "bytes+ignore_merges", {"pre_tokenizer": gpt2} | byte_decoder
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield form, "bytes", {"normalizer": {"type": form}, "pre_tokenizer": gpt2} | byte_decoder
    for left, right in ((True, False), (False, True), (True, True)):
        strip = {"type": "Strip", "strip_left": left, "strip_right": right}
        yield f"strip_{left}_{right}", "bytes", {"normalizer": strip, "pre_tokenizer": gpt2} | byte_decoder
    replace = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
    yield "replace_regex", "bytes", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, replace]},
                                     "pre_tokenizer": gpt2} | byte_decoder
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}
            yield f"metaspace_{scheme}_{cut}", "fallback", {"pre_tokenizer": metaspace, "decoder": metaspace,
                                                            "added_tokens": [{"content": "<s>", "special": True}]}
    yield "unk_fused", "unk", {}
    yield "unk_each", "unk+each", {}
    yield "unk_dropped", "unk+dropped", {}
    space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    strip = lambda start, stop: {"type": "Strip", "content": " ", "start": start, "stop": stop}
    fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
    for name, decoders in {
        "llama": [space, fallback, fuse, strip(1, 0)],
        "no_fuse": [space, fallback],
        "strip_each": [strip(1, 0), space, strip(2, 0)],
        "replace_after_fuse": [fallback, fuse, {"type": "Replace", "pattern": {"String": "aab"}, "content": "<>"}],
        "replace_regex": [{"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "-"}, fallback, fuse],
        "strip_both_ends": [space, fallback, fuse, strip(1, 2)],
    }.items():
        yield f"decoder_{name}", "fallback", {"decoder": {"type": "Sequence", "decoders": decoders}}
    for flag in ("single_word", "lstrip", "rstrip", "normalized"):
        tokens = [{"content": "hello", flag: True}, {"content": "<mask>", flag: True, "special": True}, {"content": "<mask"}]
        yield f"added_{flag}", "bytes", {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": gpt2, "added_tokens": tokens}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                  {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    template = {
        "type": "Sequence",
        "processors": [
            byte_level,
            {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
                                   "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
            },
        ],
    }
    tokens = [{"content": "<s>", "special": True}, {"content": "</s>", "special": True},
              {"content": "hello", "normalized": True}]
    yield "template", "fallback", {"normalizer": prepend, "post_processor": template, "added_tokens": tokens,
                                   "decoder": {"type": "Sequence", "decoders": [space, fallback, fuse, strip(1, 0)]}}


TEXTS = [
    "", " ", "hello world", " hello  world ", "HELLO the THEME, hello!", "it'll 12345 67", "a\tb\n\nc\r\n d", "aaabaab",
    "\u00e9e\u0301 \ufb01 \u2460 \u0130\u017f\u212a", "\u4e16\u754c \u0391\u03b2 \u0416", "\u00bd\u00b2 \u0663\u0664 x_y-z",
    "<mask> hello<mask>\n  <mask>  hellox", "<s>hello</s> the<s>", "\u00a0\u3000\u180e\u200b.\u2028", "\U0001f999\u200d!?",
    "\u2581the\u2581 hello", "!!!...???", "the" * 5 + "   " * 3, "\x00\x01\x7f",
]


def components():
    models = {
        "bytes": byte_level_model(),
        "bytes+ignore_merges": byte_level_model() | {"ignore_merges": True},
        "fallback": fallback_model(),
        "unk": fallback_model(byte_fallback=False),
        "unk+each": fallback_model(byte_fallback=False, fuse_unk=False),
        "unk+dropped": fallback_model(byte_fallback=False, unk_token=None),
    }
    cases = []
    for name, model_name, parts in component_parts():
        model = models[model_name]
        tokens = []
        grown = {"vocab": dict(model["vocab"])}
        for token in parts.get("added_tokens", []):
            tokens.append(added(grown, **token))
            grown["vocab"].setdefault(token["content"], len(grown["vocab"]))
        whole = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None,
                 "post_processor": None, "decoder": None} | parts | {"added_tokens": tokens, "model": model}
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(whole))
        rng = random.Random(11)
        size = len(grown["vocab"])
        sequences = [[rng.randrange(size) for _ in range(rng.randrange(1, 12))] for _ in range(12)]
        cases.append({
            "name": name,
            "model": model_name,
            "parts": {key: value for key, value in whole.items() if key != "model"},
            "encode": [encode_plain_and_special(tokenizer, text) for text in TEXTS],
            "decode": [decoded(tokenizer, ids) for ids in sequences],
        })
    write("components.json", {"tokenizers": tokenizers.__version__, "models": models, "texts": TEXTS, "cases": cases})


def encode_plain_and_special(tokenizer, text):
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    special = tokenizer.encode(text, add_special_tokens=True).ids
    return [plain] if plain == special else [plain, special]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    hard_strings(pathlib.Path(sys.argv[1]))
    components()
