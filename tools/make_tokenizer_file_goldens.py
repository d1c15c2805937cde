#!/usr/bin/env python3
"""Writes tests/data/text/files/: small tokenizers without a tokenizer.json, and results of Python packages for texts.

    python3 tools/make_tokenizer_file_goldens.py

Each folder has a tokenizer.model, or vocab.json and merges.txt, trained here on this tool's own sentences, the config
files, and golden.json:

sentencepiece folders   ids by transformers' SentencePieceBackend (the sentencepiece library between special tokens), texts
                        by sentencepiece's decode; with "legacy": false a text has one space before it, as its slow tokenizer
                        for Llama had;
vocab.json folders      ids and texts by transformers' GPT2Tokenizer.

The texts are those of hard_strings.json and of make_tokenizer_goldens.py. The results are deterministic.
"""

import contextlib
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
import tokenizers
import transformers
from transformers import GPT2Tokenizer
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from make_tokenizer_goldens import TEXTS

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
WORDS = (
    "a and at away back before big bird blue boat bread bright brother came castle cat clock cloud cold day deep door down "
    "every fish flew flower forest found friend garden gave girl gold good green had hand he heard hello her high hill his "
    "home house in into it keep key king lake lantern left letter light little long looked made moon morning mother mountain "
    "never new night of old on one open over paper path queen quiet rain red river road said sang saw sea she ship silver "
    "slowly small snow song stone star story the their there they thing three through to told tower town tree under up "
    "village walked wall warm was water went wind window winter with wolf word world yellow"
).split()
OTHER = ["caf\u00e9 na\u00efve stra\u00dfe", "\u4e16\u754c \u4f60\u597d \u4e2d\u6587", "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
         "3.14159 and 2718 or 42", "def f(x):    return x + 1", "it's, she'll: they've!"]

# Texts that a model may rewrite before it looks for tokens. Its tokenizer.model has this as a table.
NORMALIZED = {"\t": " ", "\n": " ", "\u3000": " ", "e\u0301": "\u00e9", "\ufb01": "fi", "\u2019": "'", "\u2026": "...",
              "\uff21": "A", "\u00bd": "1\u20442", "\u0130": "i", "\U0001d400": "A", "\u200b": "", "I": "i", "H": "h"}


def sentences():
    rng = random.Random(3)
    lines = [" ".join(rng.choices(WORDS, k=rng.randrange(4, 14))).capitalize() + rng.choice(".!?") for _ in range(900)]
    return lines + OTHER * 8


def texts():
    strings = json.loads((DATA / "hard_strings.json").read_text(encoding="utf-8"))
    return strings + [text for text in TEXTS if text not in strings] + ["Hello <s>hello</s> <unk> the</s>  end<pad>"]


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, indent=0, separators=(",", ":")) + "\n", encoding="ascii")


def write_golden(folder, packages, encode, decode):
    head = json.dumps(packages, separators=(",", ":"))
    dump = lambda items: ",\n".join(json.dumps(item, ensure_ascii=True, separators=(",", ":")) for item in items)
    (folder / "golden.json").write_text(
        f'{{"packages":{head},\n"encode":[\n{dump(encode)}\n],\n"decode":[\n{dump(decode)}\n]}}\n', encoding="ascii")


def new_folder(name):
    folder = DATA / "files" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def train_sentencepiece(folder, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences()), model_writer=model, num_threads=1,
                                             minloglevel=2, **options)
    (folder / "tokenizer.model").write_bytes(model.getvalue())


def special_names(config):
    content = lambda token: token if isinstance(token, str) else token["content"]
    names = {key: content(config[key]) for key in ("bos_token", "eos_token", "pad_token") if key in config}
    return {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | names


def sentencepiece_folder(name, config, **options):
    folder = new_folder(name)
    train_sentencepiece(folder, **options)
    if config:
        write_json(folder / "tokenizer_config.json", config)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    legacy = config.get("legacy", True)
    tokenizer = SentencePieceBackend(vocab_file=str(folder / "tokenizer.model"), legacy=True, **special_names(config))
    specials = set(tokenizer.all_special_ids)

    if not legacy:
        later = sentencepiece.SentencePieceProcessor()
        later.LoadFromSerializedProto(model.serialized_model_proto() + b"\x1a\x02\x18\x00")

    def encode(text):
        if legacy:
            return tokenizer.encode(text, add_special_tokens=False)
        ids = []
        for i, part in enumerate(tokenizer.tokens_trie.split(text)):
            whole = tokenizer.added_tokens_encoder.get(part)
            ids += [whole] if whole is not None else (model if i == 0 else later).encode(part)
        return ids

    bos = [tokenizer.bos_token_id] if config.get("add_bos_token", True) else []
    eos = [tokenizer.eos_token_id] if config.get("add_eos_token", False) else []
    cases = []
    for text in texts():
        ids = encode(text)
        case = {"text": text, "plain": ids, "ids": bos + ids + eos}
        if not specials & set(ids):
            case["decoded"] = model.decode(ids)
        cases.append(case)
    rng = random.Random(7)
    known = [i for i in range(model.get_piece_size()) if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))]
    sequences = [rng.choices(known, k=rng.randrange(1, 16)) for _ in range(40)]
    write_golden(folder, {"sentencepiece": sentencepiece.__version__, "transformers": transformers.__version__}, cases,
                 [{"ids": ids, "text": model.decode(ids)} for ids in sequences])


def gpt2_folder(name, config, tokens=(), special_tokens_map=None):
    folder = new_folder(name)
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(sentences(), vocab_size=600, show_progress=False, special_tokens=list(tokens))
    trained.save_model(str(folder))
    write_json(folder / "tokenizer_config.json", config)
    if special_tokens_map:
        write_json(folder / "special_tokens_map.json", special_tokens_map)
    tokenizer = GPT2Tokenizer.from_pretrained(str(folder))
    decode = lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    cases = []
    for text in texts():
        ids = tokenizer.encode(text)
        cases.append({"text": text, "plain": tokenizer.encode(text, add_special_tokens=False), "ids": ids,
                      "decoded": decode(ids, True), "raw": decode(ids, False)})
    rng = random.Random(7)
    sequences = [rng.choices(range(len(tokenizer)), k=rng.randrange(1, 16)) for _ in range(40)]
    write_golden(folder, {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__}, cases,
                 [{"ids": ids, "text": decode(ids, True)} for ids in sequences])


def added(content, **flags):
    return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False} | flags


def main():
    llama = dict(model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
                 remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
                 character_coverage=0.995)
    sentencepiece_folder("llama", {}, **llama)
    sentencepiece_folder("llama_not_legacy", {"add_bos_token": True, "add_eos_token": True, "legacy": False}, **llama)
    sentencepiece_folder(
        "baichuan", {"add_bos_token": False, "bos_token": added("<s>"),
                     "eos_token": added("</s>"), "pad_token": added("<unk>")},
        **llama | {"add_dummy_prefix": False})
    sentencepiece_folder("unigram", {"pad_token": "<pad>"}, model_type="unigram", vocab_size=400, hard_vocab_limit=False,
                         normalization_rule_name="identity", pad_id=3, character_coverage=1.0)
    # The model stores the file's name. A relative name in a temporary folder reveals nothing about this machine.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        hex_points = lambda text: " ".join(f"{ord(c):X}" for c in text)
        rules = pathlib.Path("rules.tsv")
        rules.write_text("".join(f"{hex_points(old)}\t{hex_points(new)}\n" for old, new in NORMALIZED.items()))
        sentencepiece_folder("unigram_normalized", {"add_eos_token": True}, model_type="unigram", vocab_size=400,
                             hard_vocab_limit=False, normalization_rule_tsv=str(rules), character_coverage=1.0)
    gpt2_folder("gpt2", {"tokenizer_class": "GPT2Tokenizer"}, ["<|endoftext|>"])
    gpt2_folder("opt", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": False,
                        "bos_token": added("</s>"), "eos_token": added("</s>")},
                ["<s>", "<pad>", "</s>", "<unk>"],
                {"unk_token": "</s>", "pad_token": "<pad>"})
    gpt2_folder("gpt2_added", {"add_prefix_space": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                               "added_tokens_decoder": {"600": added("<s>", special=True, normalized=False),
                                                        "601": added("</s>", special=True, normalized=False),
                                                        "602": added("<unk>", special=True, normalized=False),
                                                        "603": added("hello", special=False)}})


if __name__ == "__main__":
    main()
