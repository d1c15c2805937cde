#!/usr/bin/env python3
"""Writes tests/data/text/gguf_pre_tokenizers.json: how the Hugging Face `tokenizers` package splits hard strings.

    python3 tools/make_gguf_pre_tokenizer_goldens.py

For each name of tokenizer.ggml.pre: the pre_tokenizer of a model's tokenizer.json, and the lengths in bytes of the
pieces into which it splits every string in hard_strings.json and of TEXTS below. The file names the version of the
package.
"""

import json
import pathlib

import tokenizers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
TEXTS = [
    "He'LL say: it's 'Twas I'd've 'S", "camelCaseWord HTMLParser XMLhttp iPhone \u00c9cole \u01c5amija", "a/b//c/\n/d \r\n/",
    "1 12 123 1234 12345 x1234567y \u0663\u0664\u0665\u0661 \u2167 \u00bd\u00b2 3,141.59", "$5.00 <=> a+b^c~d|e`f` ``g``",
    "   \n  \n\n x\t\ty  ", " " * 700 + "a" + " " * 11, "\u6f22\u5b57\u304b\u306a\u30ab\u30ca\uac00\ub098 mix\u6f22abc\u3002\uff01",
    "o\u0301 e\u0301cole na\u0308ive \u0915\u094d\u0937\u093f \u0e01\u0e33", "!important #tag @user (paren) [x] {y} _z \\w /path/to.file?",
    "\u03a9\u2126 K\u212a \u03b9\u1fbe \u1f7d\u03ce \u0390\u1fd3 \U00010400\U0001e943", "line end  \nnext   \n", "\u2018quoted\u2019 \u201cq\u201d \u2014 \u2026!!\n\n\r\r",
]

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = dict(GPT2, use_regex=False)
DIGITS = {"type": "Digits", "individual_digits": True}
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END)
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + END
DEEPSEEK_LETTERS = (
    r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    r"\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    r"\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    r"\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    r"\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    r"\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    r"\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-\\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


PRE_TOKENIZERS = {
    "gpt-2": [GPT2],
    "smollm": [DIGITS, GPT2],
    "llama-bpe": [split(CL100K), BYTES],
    "qwen2": [split(CL100K.replace("{1,3}", "")), BYTES],
    "qwen35": [split(CL100K.replace("{1,3}", "").replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")), BYTES],
    "tekken": [split(O200K.replace(CONTRACTIONS + "?", "").replace("{1,3}", "")), BYTES],
    "gpt-4o": [split(O200K), BYTES],
    "tiny_aya": [split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K), BYTES],
    "deepseek-v3": [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                          "| ?[\\p{P}\\p{S}]+[\r\n]*" + r"|\s*[\r\n]+|\s+(?!\S)|\s+"), BYTES],
    "deepseek-llm": [split("[\r\n]"), split(DEEPSEEK_LETTERS),
                     split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"), split(CJK), DIGITS, BYTES],
    "deepseek-coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), DIGITS, BYTES],
    "falcon": [{"type": "Punctuation", "behavior": "Contiguous"}, GPT2, {"type": "Digits", "individual_digits": False},
               split("[0-9][0-9][0-9]")],
    "bloom": [split(BLOOM), BYTES],
    "viking": [split(BLOOM), DIGITS, BYTES],
    "bailingmoe": [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"), BYTES],
    "seed-coder": [split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + END), BYTES],
    "exaone-moe": [split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
                         r"|\s*[\r\n]|\s+(?!\S)|\s+"), BYTES],
    "jais-2": [split(CL100K.replace(r"|\s+(?!\S)|\s+", "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
                                    + r"|\s{1}")), BYTES],
}


def main():
    texts = json.loads((DATA / "hard_strings.json").read_text(encoding="utf-8")) + TEXTS
    lines = []
    for name, parts in PRE_TOKENIZERS.items():
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}))
        pieces = [[len(piece) for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] for text in texts]
        lines.append(f"{json.dumps(name)}:{json.dumps(pieces, separators=(',', ':'))}")
    head = f'{{"tokenizers":{json.dumps(tokenizers.__version__)},\n"texts":{json.dumps(TEXTS)},\n"pieces":{{\n'
    (DATA / "gguf_pre_tokenizers.json").write_text(head + ",\n".join(lines) + "\n}}\n", encoding="ascii")


if __name__ == "__main__":
    main()
