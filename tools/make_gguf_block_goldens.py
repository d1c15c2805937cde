#!/usr/bin/env python3
"""Writes tests/data/gguf/blocks.json: a row of random blocks of each type of GGUF, and the float32 values that the
Python package gguf (ggml-org) reads from it. Both in hexadecimal, little-endian.

    pip install gguf==0.19.0 numpy==2.4.6
    python3 tools/make_gguf_block_goldens.py

The bits of a block are random. Its float16 numbers are ordinary scales in the first block, and any finite numbers of
the whole range in the others.
"""
import json
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Byte offsets in a block of the float16 numbers of each type.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
          "MXFP4": []}
PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
ELEMENTS = 512  # number of elements of a row of blocks of 256; rows of blocks of 32 have a quarter
PLAIN_ELEMENTS = 32


def finite_halves(random, count):
    """Returns float16 numbers of any exponent except that of infinity, with either sign."""
    bits = random.integers(0, 0x7C00, count, dtype=np.uint16) | random.integers(0, 2, count, dtype=np.uint16) << 15
    return bits.astype(np.uint16).view(np.float16)


def plain_row(name, random):
    if name == "F16":
        return finite_halves(random, PLAIN_ELEMENTS)
    values = random.normal(size=PLAIN_ELEMENTS).astype(np.float32)
    return values if name == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16)


def row_of_blocks(name, random):
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = ELEMENTS // elements if elements == 256 else ELEMENTS // 4 // elements
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in HALVES[name]:
        halves = finite_halves(random, count)
        halves[0] = np.float16(random.normal() * 0.02)
        blocks[:, offset:offset + 2] = halves.view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[0, 0] = random.integers(110, 126)
    return blocks.reshape(-1)


def main():
    random = np.random.default_rng(20)
    goldens = {}
    for name in [*PLAIN, *HALVES]:
        row = plain_row(name, random) if name in PLAIN else row_of_blocks(name, random)
        row = row.view(np.uint8)
        values = dequantize(row, GGMLQuantizationType[name]).astype("<f4")
        goldens[name] = {"type": int(GGMLQuantizationType[name]), "blocks": row.tobytes().hex(),
                         "values": values.tobytes().hex()}
    path = Path(__file__).parent.parent / "tests" / "data" / "gguf" / "blocks.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(goldens, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
