"""GGUF files for tests: read and written by code that shares nothing with Pagoda's."""
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, BF16, Q4_0, Q4_1, Q8_0 = 0, 30, 2, 3, 8
BLOCKS = {F32: (1, 4), 1: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34)}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            kind, count = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(count)]
        return self.take(SCALARS[kind])


def read_gguf(path):
    """(keys: name -> (type, value), tensors: name -> (type, shape, bytes), the outermost size first), in file order."""
    with open(path, "rb") as file:
        reader = Reader(file.read())
    assert reader.data[:4] == b"GGUF"
    reader.at = 4
    assert reader.take("I") == 3
    num_tensors, num_keys = reader.take("Q"), reader.take("Q")
    keys, places = {}, []
    for _ in range(num_keys):
        name, kind = reader.text(), reader.take("I")
        keys[name] = (kind, reader.value(kind))
    for _ in range(num_tensors):
        name = reader.text()
        shape = [reader.take("Q") for _ in range(reader.take("I"))][::-1]
        places.append((name, reader.take("I"), shape, reader.take("Q")))
    begin = -(-reader.at // 32) * 32
    tensors = {}
    for name, kind, shape, offset in places:
        count = 1
        for size in shape:
            count *= size
        elements, size = BLOCKS[kind]
        tensors[name] = (kind, shape, reader.data[begin + offset:begin + offset + count // elements * size])
    return keys, tensors


def text_bytes(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    if kind == STRING:
        return text_bytes(value)
    if kind == ARRAY:
        inner = {str: STRING, float: 6}.get(type(value[0]), 5)
        return struct.pack("<IQ", inner, len(value)) + b"".join(value_bytes(inner, item) for item in value)
    return struct.pack("<" + SCALARS[kind], value)


def write_gguf(path, keys, tensors):
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, (kind, value) in keys.items():
        header += text_bytes(name) + struct.pack("<I", kind) + value_bytes(kind, value)
    data = b""
    for name, (kind, shape, content) in tensors.items():
        header += text_bytes(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += content + bytes(-len(content) % 32)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32) + data)


def dequantized(kind, data):
    """The weights that blocks of 32 stand for."""
    weights = []
    for at in range(0, len(data), BLOCKS[kind][1]):
        block = data[at:at + BLOCKS[kind][1]]
        scale = struct.unpack_from("<e", block)[0]
        if kind == Q8_0:
            weights += [scale * q for q in struct.unpack_from("<32b", block, 2)]
            continue
        low = struct.unpack_from("<e", block, 2)[0] if kind == Q4_1 else -8 * scale
        halves = block[4 if kind == Q4_1 else 2:]
        weights += [scale * (q & 15) + low for q in halves] + [scale * (q >> 4) + low for q in halves]
    return weights


def interleaved(rows, heads):
    """Rows of queries or keys as Hugging Face has them, in the order of llama's GGUF files."""
    dim = len(rows) // heads
    return [rows[head * dim + half * (dim // 2) + i] for head in range(heads) for i in range(dim // 2) for half in range(2)]
