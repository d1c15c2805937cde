"""Reads GGUF files (version 2 and 3, little-endian): metadata, and tensors as 32-bit floats. Standard library only.

Written from the public specification: github.com/ggml-org/ggml, docs/gguf.md.
"""

import math
import mmap
import struct
from array import array
from pathlib import Path

BLOCK = 32  # weights that share a scale, in all the quantised types below

_LOW = bytes(byte & 15 for byte in range(256))
_HIGH = bytes(byte >> 4 for byte in range(256))


class GgufError(Exception):
    """The file is damaged, or has what is not supported."""


def _nibbles(quants: bytes) -> bytes:
    """A block's 4-bit integers: the low halves of its 16 bytes come first, then the high ones."""
    return quants.translate(_LOW) + quants.translate(_HIGH)


# One function for each type: the bytes of whole blocks -> the weights as array("f"). Where a weight is scale * integer
# + minimum, Python's double holds that exactly (scale and minimum are halves), so it is rounded once, to the float.

def _from_f32(data: bytes) -> array:
    return array("f", data)


def _from_f16(data: bytes) -> array:
    return array("f", struct.unpack(f"<{len(data) // 2}e", data))


def _from_bf16(data: bytes) -> array:
    widened = bytearray(2 * len(data))  # the upper half of a float
    widened[2::4], widened[3::4] = data[0::2], data[1::2]
    return array("f", bytes(widened))


def _from_q8_0(data: bytes) -> array:
    """A scale (half), 32 signed bytes: scale * byte."""
    out = array("f")
    for scale, *quants in struct.iter_unpack(f"<e{BLOCK}b", data):
        out.fromlist([scale * quant for quant in quants])
    return out


def _from_q4_0(data: bytes) -> array:
    """A scale (half), 32 integers of 4 bits: scale * (integer - 8)."""
    out = array("f")
    for scale, quants in struct.iter_unpack("<e16s", data):
        values = [scale * (quant - 8) for quant in range(16)]
        out.fromlist([values[quant] for quant in _nibbles(quants)])
    return out


def _from_q4_1(data: bytes) -> array:
    """A scale and a minimum (halves), 32 integers of 4 bits: scale * integer + minimum."""
    out = array("f")
    for scale, minimum, quants in struct.iter_unpack("<ee16s", data):
        values = [scale * quant + minimum for quant in range(16)]
        out.fromlist([values[quant] for quant in _nibbles(quants)])
    return out


# The file's number of a type: its name, weights and bytes of a block, and how it is read.
TENSOR_TYPES = {
    0: ("F32", 1, 4, _from_f32),
    1: ("F16", 1, 2, _from_f16),
    2: ("Q4_0", BLOCK, 18, _from_q4_0),
    3: ("Q4_1", BLOCK, 20, _from_q4_1),
    8: ("Q8_0", BLOCK, 34, _from_q8_0),
    30: ("BF16", 1, 2, _from_bf16),
}
OTHER_TYPES = {6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
               16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
               23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
               35: "TQ2_0", 39: "MXFP4"}

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


class Tensor:
    """A matrix of the file as rows, or a vector as one row. `shape` has the outermost size first."""

    def __init__(self, name: str, shape: tuple, type_id: int, data: memoryview):
        self.name, self.shape = name, shape
        self.type, weights, size, self._read = TENSOR_TYPES[type_id]
        self.num_rows = math.prod(shape[:-1])
        self._row_bytes = shape[-1] // weights * size
        self._data = data[:self.num_rows * self._row_bytes]
        if shape[-1] % weights:
            raise GgufError(f"tensor {name}: rows of {shape[-1]} weights are not whole blocks of {self.type}")
        if len(self._data) != self.num_rows * self._row_bytes:
            raise GgufError(f"tensor {name} goes beyond the end of the file")

    def row(self, index: int) -> array:
        return self._read(bytes(self._data[index * self._row_bytes:(index + 1) * self._row_bytes]))


class GgufFile:
    """`metadata` by key, and `tensors` by name."""

    def __init__(self, path: Path):
        try:
            with path.open("rb") as file:
                self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:
            raise GgufError("the file is empty") from None
        self._at = 0
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError, MemoryError, OverflowError):
            raise GgufError(f"the header is damaged or cut off near byte {self._at}") from None

    def _read_header(self) -> None:
        if self._data[:4] != b"GGUF":
            raise GgufError("this is not a GGUF file")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise GgufError(f"version {version} of GGUF is not supported; 2 and 3 are")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        self.metadata = {}
        for _ in range(num_keys):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        found = []
        for _ in range(num_tensors):
            name = self._string()
            sizes = [self._scalar("Q") for _ in range(self._scalar("I"))]  # innermost first
            found.append((name, tuple(reversed(sizes)), self._scalar("I"), self._scalar("Q")))
        alignment = self.metadata.get("general.alignment", 32)
        begin = -(-self._at // alignment) * alignment
        self.tensors = {}
        for name, shape, type_id, offset in found:
            if type_id not in TENSOR_TYPES:
                known = ", ".join(sorted(type_name for type_name, *_ in TENSOR_TYPES.values()))
                raise GgufError(f"tensor {name} is {OTHER_TYPES.get(type_id, f'type {type_id}')}; supported are {known}")
            self.tensors[name] = Tensor(name, shape, type_id, self._data[begin + offset:])

    def _scalar(self, form: str):
        value, = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return value

    def _string(self) -> str:
        size = self._scalar("Q")
        data = bytes(self._data[self._at:self._at + size])
        if len(data) != size:
            raise struct.error
        self._at += size
        return data.decode()

    def _value(self, type_id: int):
        if type_id in _SCALARS:
            return self._scalar(_SCALARS[type_id])
        if type_id == _STRING:
            return self._string()
        if type_id != _ARRAY:
            raise GgufError(f"the metadata has a value of the unknown type {type_id}")
        item_type, count = self._scalar("I"), self._scalar("Q")
        return [self._value(item_type) for _ in range(count)]
