#!/usr/bin/env python3
"""Writes tests/data/torch/: small files of torch.save, and the tensors that torch.load reads from them.

    python3 tools/make_torch_file_goldens.py

torch itself writes NAME.bin (no stand-in classes). golden.json has the tensors of each NAME as {"dtype", "shape",
"bytes"}, with the bytes in hexadecimal, little-endian and row-major. It has nothing for legacy.bin, whose format is
refused. The files are deterministic except for the serialization id that torch writes into each.
"""

import collections
import json
import pathlib

import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "torch"
DTYPES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
    torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64",
    torch.uint16: "U16", torch.float8_e4m3fn: "F8_E4M3",
}


def module():
    """Returns a state dict as modules make it: an OrderedDict with _metadata, buffers of integers, a tied weight."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(collections.OrderedDict(
        embed=torch.nn.Embedding(5, 4), norm=torch.nn.BatchNorm1d(4), head=torch.nn.Linear(4, 5)))
    net.head.weight = net.embed.weight
    return net.state_dict()


def dtypes():
    numbers = torch.arange(6.0).reshape(2, 3)
    tensors = {name: numbers.to(dtype) for dtype, name in DTYPES.items()}
    return tensors | {"parameter": torch.nn.Parameter(numbers + 0.5), "not a tensor": [1, 2.5, None, True, (1, -2)]}


def views():
    base = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    short = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    return {
        "base": base, "transposed": base.transpose(0, 2), "permuted": base.permute(1, 2, 0), "row": base[1],
        "column": base[:, 2, 3], "steps": base[::2, 1::2, ::3], "inner": base[1:, 1:3, 2:4], "one": base[2:, 3:, 4:],
        "scalar": base[1, 1, 1], "short": short.t(), "half": short[2:].half().t(), "empty": torch.empty(0, 3),
        "no rows": base[:, 2:2], "expanded": torch.arange(3.0).expand(2, 3), "positions": torch.arange(4).expand(1, -1),
    }


def contents():
    small = {"w": torch.arange(4.0), "step": 7}
    mixed = {name: tensor for name, tensor in (dtypes() | views()).items()
             if name in ("F16", "BOOL", "F8_E4M3", "parameter", "not a tensor", "transposed", "row")}
    return {
        "module": (module(), {}),
        "dtypes": (dtypes(), {}),
        "views": (views(), {}),
        **{f"protocol{n}": (mixed, {"pickle_protocol": n}) for n in (4, 5)},
        "nested_state_dict": ({"epoch": 3, "args": {"lr": 0.5}, "state_dict": small}, {}),
        "nested_model": ({"model": small, "best": 0.25}, {}),
        "legacy": (small, {"_use_new_zipfile_serialization": False}),
    }


def described(tensor):
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    return {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "bytes": bytes(raw.tolist()).hex()}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    golden = {}
    for name, (content, options) in contents().items():
        torch.save(content, FOLDER / f"{name}.bin", **options)
        if name == "legacy":
            continue
        loaded = torch.load(FOLDER / f"{name}.bin", weights_only=False)  # True cannot read protocol 4
        if name.startswith("nested"):
            loaded = loaded["state_dict" if "state_dict" in loaded else "model"]
        golden[name] = {key: described(value) for key, value in loaded.items() if isinstance(value, torch.Tensor)}
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(golden[name], separators=(',', ':'))}" for name in golden)
    (FOLDER / "golden.json").write_text("{\n" + lines + "\n}\n", encoding="ascii")


if __name__ == "__main__":
    main()
