"""Writes tests/data/text/added_token_cases.json: the added tokens that transformers finds in folders in which
tokenizer_config.json, special_tokens_map.json and added_tokens.json complete tokenizer.json.

python tools/make_added_token_goldens.py

Needs transformers (5.24 wrote the committed file). The vocabulary of the tokenizer is the 256 characters of bytes, one
token each, and "<v>"; tests/io/model_files/added_tokens_test.cpp builds this tokenizer too.
"""

import json
import pathlib
import tempfile

import transformers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
TEXT = "x <a> <b><c>y<v>h <e><s> <m><img>"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def token(content, **flags):
    return {"content": content, **{flag: flags.get(flag, flag == "special") for flag in FLAGS}}


def object_token(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


def decoder(**tokens):
    return {"added_tokens_decoder": {i[1:]: t for i, t in tokens.items()}}


CASES = {
    "a decoder alone": {"config": decoder(_257=token("<a>"), _258=token("<b>", special=False, normalized=True),
                                          _259=token("<c>", lstrip=True, rstrip=True))},
    "a decoder without every flag": {"config": decoder(_257={"content": "<a>"}, _258={"content": "<b>", "special": True})},
    "ids with a gap": {"config": decoder(_300=token("<a>"), _290=token("<b>"))},
    "a token of the vocabulary": {"config": decoder(_256=token("<v>"))},
    "a known token with another id and flag": {"added": {"257": token("<a>")},
                                               "config": decoder(_260=token("<a>", lstrip=True))},
    "known tokens with other flags": {"added": {"257": token("<a>"), "258": token("<b>")},
                                      "config": decoder(_257=token("<a>", lstrip=True), _258=token("<b>", special=False))},
    "a decoder that lacks a token": {"added": {"257": token("<a>")}, "config": decoder(_258=token("<b>"))},
    "an id with two contents": {"added": {"257": token("<a>")}, "config": decoder(_257=token("<b>"))},
    "additional tokens": {"config": {"additional_special_tokens": ["<a>", object_token("<b>", lstrip=True), "<v>"]}},
    "an additional token that is known": {"added": {"257": token("<a>", special=False)},
                                          "config": {"additional_special_tokens": [object_token("<a>", lstrip=True)]}},
    "extra tokens hide additional ones": {"config": {"extra_special_tokens": ["<a>"],
                                                     "additional_special_tokens": ["<b>"]}},
    "extra tokens with names": {"config": {"extra_special_tokens": {"image_token": "<img>", "x": "<a>"}}},
    "a token of the model's own": {"config": {"image_token": "<img>"}},
    "named tokens": {"config": {"eos_token": "<e>", "pad_token": "<c>", "unk_token": "<v>",
                                "bos_token": object_token("<s>", rstrip=True)}},
    "a named token that is known": {"added": {"257": token("<a>", special=False)}, "config": {"eos_token": "<a>"}},
    "a named token of the decoder": {"config": {"eos_token": "<a>", **decoder(_257=token("<a>", special=False))}},
    "the map overrides the config": {"config": {"eos_token": "<e>"},
                                     "map": {"eos_token": "<c>", "additional_special_tokens": ["<m>"], "bos_token":
                                             {"content": "<s>", "lstrip": True, "rstrip": False, "normalized": True,
                                              "single_word": False}}},
    "a decoder hides the map": {"config": {"eos_token": "<e>", **decoder(_257=token("<e>"))},
                                "map": {"eos_token": "<c>", "additional_special_tokens": ["<m>"]}},
    "an empty decoder hides both": {"config": decoder(), "map": {"eos_token": "<e>"}, "ids": {"<b>": 257}},
    "additional tokens of both": {"config": {"additional_special_tokens": ["<c>"]},
                                  "map": {"additional_special_tokens": ["<m>"]}},
    "added_tokens.json": {"config": {"eos_token": "<a>"}, "ids": {"<a>": 257, "<b>": 258}},
    "a decoder hides added_tokens.json": {"config": decoder(_257=token("<e>")), "ids": {"<a>": 257, "<b>": 258}},
    "added_tokens.json and tokenizer.json": {"added": {"257": token("<a>", rstrip=True)},
                                             "config": {}, "ids": {"<a>": 257, "<b>": 258}},
    "added_tokens.json with a gap": {"config": {}, "ids": {"<a>": 400, "<b>": 300}},
    "an additional token of added_tokens.json": {"config": {"additional_special_tokens": ["<a>"]},
                                                 "ids": {"<a>": 257, "<b>": 258}},
    "all tokens known": {"added": {"257": token("<a>"), "258": token("<b>", special=False, normalized=True)},
                         "config": {"eos_token": "<a>", **decoder(_257=token("<a>"), _258=token("<b>", special=False,
                                                                                               normalized=True))}},
}


def byte_characters():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def tokenizer(added):
    vocab = {c: i for i, c in enumerate([*byte_characters(), "<v>"])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": int(i), **t} for i, t in added.items()], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def golden(name, case):
    with tempfile.TemporaryDirectory() as folder:
        files = {"tokenizer.json": tokenizer(case.get("added", {}))}
        files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", **case["config"]}
        if "map" in case: files["special_tokens_map.json"] = case["map"]
        if "ids" in case: files["added_tokens.json"] = case["ids"]
        for file, content in files.items(): (pathlib.Path(folder) / file).write_text(json.dumps(content))
        loaded = transformers.AutoTokenizer.from_pretrained(folder)
        tokens = [{"id": i, "content": t.content, **{flag: getattr(t, flag) for flag in FLAGS}}
                  for i, t in sorted(loaded.added_tokens_decoder.items())]
        return {"name": name, **case, "tokens": tokens, "ids_of_text": loaded.encode(TEXT)}


def main():
    cases = [golden(name, case) for name, case in CASES.items()]
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = json.dumps({"transformers": transformers.__version__, "text": TEXT})[:-1]
    (DATA / "added_token_cases.json").write_text(f'{head}, "cases": [\n{lines}\n]}}\n')


main()
