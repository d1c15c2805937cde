"""Makes the seeds of the safetensors fuzzer: tests/io/fuzz/corpus/safetensors. Needs only the standard library.

    python tools/make_safetensors_seeds.py
"""

import json
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "tests/io/fuzz/corpus/safetensors"
BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "F16": 16, "BF16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F4": 4}


def file_of(tensors: dict, metadata: dict | None = None, filling: str = "") -> bytes:
    """`tensors`: name -> (dtype, shape), whose data are counted bytes. `filling` is written after the header's JSON."""
    header: dict = {"__metadata__": metadata} if metadata is not None else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        elements = 1
        for size in shape:
            elements *= size
        begin, end = end, end + elements * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = (json.dumps(header, separators=(",", ":")) + filling).encode()
    return len(text).to_bytes(8, "little") + text + bytes(i % 251 for i in range(end))


def main() -> None:
    layer = "model.layers.0."
    seeds = {
        "dtypes": file_of({dtype.lower(): (dtype, [2, 4]) for dtype in BITS}),
        "layer": file_of({layer + "self_attn.q_proj.weight": ("BF16", [8, 8]), layer + "input_layernorm.weight": ("F32", [8]),
                          layer + "mlp.up_proj.weight": ("F16", [8, 4])}, {"format": "pt"}, "     "),
        "quantized": file_of({"m.weight_packed": ("I32", [8, 2]), "m.weight_scale": ("BF16", [8, 1]),
                              "m.weight_shape": ("I64", [2])}, {"format": "pt", "\u00e9": "\"\\\n"}),
        "sizes": file_of({"scalar": ("F32", []), "empty": ("F16", [0, 7]), "deep": ("U8", [1, 1, 2, 1, 3, 1])}),
    }
    OUT.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (OUT / name).write_bytes(data)


if __name__ == "__main__":
    main()
