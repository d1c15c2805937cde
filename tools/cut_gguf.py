#!/usr/bin/env python3
"""Writes the first layers of a GGUF model to a file of their own: a draft model with the same tokenizer.

    python3 tools/cut_gguf.py MODEL.gguf LAYERS DRAFT.gguf

The end of the network stays as it is, so the fewer layers are left out, the more of its drafts are right. Models with a
list of values for each layer are refused. Needs only the standard library.
"""
import argparse
import mmap
import re
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value by its type
UINT32, STRING, ARRAY = 4, 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def skip_value(self, kind):
        """Returns the number of values in an array."""
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            for _ in range(count if of in (STRING, ARRAY) else 0):
                self.skip_value(of)
            self.at += SIZES.get(of, 0) * count
            return count
        else:
            self.at += SIZES[kind]


def cut(data, num_layers, out):
    reader = Reader(data)
    assert data[:4] == b"GGUF", "this is no GGUF file"
    reader.at = 4
    version, num_tensors, num_keys = reader.number("I"), reader.number("Q"), reader.number("Q")
    begin_of_keys, alignment = reader.at, 32
    place_of_count, length_of = None, {}
    for _ in range(num_keys):
        key, kind = reader.string(), reader.number("I")
        if key.endswith(".block_count"):
            assert kind == UINT32, f"{key} has another type"
            place_of_count = reader.at
        if key == "general.alignment":
            (alignment,) = struct.unpack_from("<I", data, reader.at)
        length_of[key] = reader.skip_value(kind)
    assert place_of_count is not None, "the file does not say how many layers it has"
    (count,) = struct.unpack_from("<I", data, place_of_count)
    assert 0 < num_layers <= count, f"the model has {count} layers"
    of_layers = [key for key, length in length_of.items() if length == count and not key.startswith("tokenizer.")]
    assert not of_layers, f"the file has values for each layer: {of_layers}"
    keys = bytearray(data[begin_of_keys:reader.at])
    struct.pack_into("<I", keys, place_of_count - begin_of_keys, num_layers)

    tensors = []  # (name, description between name and offset, offset)
    for _ in range(num_tensors):
        name, begin = reader.string(), reader.at
        num_dimensions = reader.number("I")
        reader.at += 8 * num_dimensions + 4  # sizes and type
        tensors.append((name, data[begin:reader.at], reader.number("Q")))
    begin_of_data = reader.at + -reader.at % alignment
    ends = sorted(offset for *_, offset in tensors)[1:] + [len(data) - begin_of_data]
    end_of = dict(zip(sorted(offset for *_, offset in tensors), ends))
    layer_of = lambda name: int((re.match(r"blk\.(\d+)\.", name) or (0, 0))[1])
    kept = [tensor for tensor in tensors if layer_of(tensor[0]) < num_layers]
    header, place = bytearray(), 0
    for name, description, offset in kept:
        header += struct.pack("<Q", len(name.encode())) + name.encode() + description + struct.pack("<Q", place)
        place += end_of[offset] - offset + -(end_of[offset] - offset) % alignment
    out.write(b"GGUF" + struct.pack("<IQQ", version, len(kept), num_keys) + keys + header)
    out.write(bytes(-out.tell() % alignment))
    for _, _, offset in kept:
        part = data[begin_of_data + offset:begin_of_data + end_of[offset]]
        out.write(part + bytes(-len(part) % alignment))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("layers", type=int)
    parser.add_argument("out")
    args = parser.parse_args()
    with open(args.model, "rb") as file, open(args.out, "wb") as out:
        cut(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), args.layers, out)


if __name__ == "__main__":
    main()
