"""Makes the goldens of quantised checkpoints: tests/data/quantized.

    python tools/make_quantized_goldens.py --sources DIR

DIR has the unpacked wheels of auto_gptq 0.7.1, autoawq 0.2.7, compressed-tensors, bitsandbytes and loguru, each in a
folder of this name. Their code packs and dequantises, on the CPU. Only the modules with this code are imported, so that
none of their dependencies need to be installed, except torch and safetensors.

    matrices.safetensors   small modules "<case>.*" as these programs store them, and "<case>.expected", the first rows of
                           the float32 matrix that these programs compute from it
    wide_matrices.safetensors   modules of 256 columns, with the groups and blocks of published models; "expected" has
                           rows from the first to the last in equal steps
    llama-<format>.safetensors   the linear layers of the first layer of tests/data/models/llama-gqa-bf16
"""

import argparse
import importlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # without this, compressed-tensors compiles its packing code

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/quantized"
ROWS, COLUMNS, EXPECTED_ROWS = 32, 32, 8
WIDE_ROWS, WIDE_COLUMNS, WIDE_EXPECTED_ROWS = 8, 256, 4
FP8 = torch.float8_e4m3fn


def import_file(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def integers(weight: torch.Tensor, group: int, bits: int, symmetric: bool):
    """Returns q [rows, columns], scales and zeros [rows, groups] by rounding to nearest. Scales are float16 numbers."""
    grouped = weight.reshape(weight.shape[0], -1, group)
    most = 2**bits - 1
    if symmetric:
        scales = grouped.abs().amax(-1) / (most // 2)
    else:
        low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
        scales = (high - low) / most
    scales = scales.half().float()
    zeros = torch.full_like(scales, 2**(bits - 1)) if symmetric else (-low / scales).round().clamp(1, most)
    q = (grouped / scales[..., None] + zeros[..., None]).round().clamp(0, most)
    return q.reshape(weight.shape).int(), scales, zeros.int()


def pack(values: torch.Tensor, bits: int, order=None) -> torch.Tensor:
    """Packs neighbours of the last dimension into int32, the first in the lowest bits."""
    per = 32 // bits
    lanes = values.reshape(*values.shape[:-1], -1, per).long()
    if order:
        lanes = lanes[..., order]
    words = sum(lanes[..., i] << (bits * i) for i in range(per))
    return torch.where(words >= 2**31, words - 2**32, words).int().contiguous()


def awq_tensors(weight: torch.Tensor, group: int) -> dict:
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    q, scales, zeros = integers(weight, group, 4, False)
    return {"qweight": pack(q.t(), 4, order), "qzeros": pack(zeros.t(), 4, order), "scales": scales.t().half().contiguous()}


def gptq_tensors(weight: torch.Tensor, group: int, bits: int, symmetric: bool, version: int) -> dict:
    q, scales, zeros = integers(weight, group, bits, symmetric)
    return {"qweight": pack(q.t().reshape(-1, 32 // bits, q.shape[0]).transpose(1, 2), bits).squeeze(-1),
            "qzeros": pack((zeros - int(version == 1)).t(), bits), "scales": scales.t().half(),
            "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // group}


class Programs:
    def __init__(self, sources: Path):
        self.awq = import_file("awq_packing", sources / "awq/awq/utils/packing_utils.py")
        # auto_gptq needs only the name of a class from transformers.
        fake = types.ModuleType("transformers")
        fake.pytorch_utils = types.SimpleNamespace(Conv1D=type("Conv1D", (), {}))
        sys.modules["transformers"] = fake
        self.gptq = import_file("gptq_linear", sources / "gptq/auto_gptq/nn_modules/qlinear/qlinear_cuda.py")
        del sys.modules["transformers"]
        sys.path += [str(sources / name) for name in ("ct", "bnb", "extra")]
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from compressed_tensors.compressors.base import BaseCompressor
        importlib.import_module("compressed_tensors.compressors")
        self.args, self.scheme, self.compressor = QuantizationArgs, QuantizationScheme, BaseCompressor
        self.bnb = importlib.import_module("bitsandbytes.functional")

    def awq_case(self, weight, group) -> dict:
        tensors = awq_tensors(weight, group)
        dequantized = self.awq.dequantize_gemm(tensors["qweight"], tensors["qzeros"], tensors["scales"].float(), 4, group)
        return {**tensors, "expected": dequantized.t()}

    def gptq_case(self, weight, group, bits, symmetric, version=1, act_order=False) -> dict:
        layer = self.gptq.QuantLinear(bits, group, weight.shape[1], weight.shape[0], False, weight_dtype=torch.float32)
        order = torch.randperm(weight.shape[1]) if act_order else torch.arange(weight.shape[1])
        _, scales, zeros = integers(weight[:, order], group, bits, symmetric)
        group_of = torch.empty(weight.shape[1], dtype=torch.int32)
        group_of[order] = torch.arange(weight.shape[1], dtype=torch.int32) // group
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = weight.clone()
        layer.pack(linear, scales.clone(), zeros.float(), group_of)
        dequantized = layer(torch.eye(weight.shape[1])).t()
        zeros = layer.qzeros if version == 1 else layer.qzeros + (0x11111111 if bits == 4 else 0x01010101)
        return {"qweight": layer.qweight, "qzeros": zeros, "scales": layer.scales.half(), "g_idx": layer.g_idx,
                "expected": dequantized}

    def compressed_case(self, weight, format, scale_dtype=torch.bfloat16, **args) -> dict:
        args = self.args(**args)
        scheme = self.scheme(targets=["Linear"], weights=args)
        tensors = {"weight": weight, **scales_of(weight, args, scale_dtype)}
        compressor = self.compressor.get_value_from_registry(format)
        stored = compressor.compress(dict(tensors), scheme)
        # Dequantised in float32, because with bfloat16 scales the program rounds each weight to bfloat16.
        again = {name: value.float() if name == "weight_scale" else value for name, value in stored.items()}
        return {**stored, "expected": compressor.decompress(again, scheme)["weight"]}

    def mxfp4_case(self, weight) -> dict:
        args = self.args(num_bits=4, type="float", strategy="group", group_size=32)
        scheme = self.scheme(targets=["Linear"], weights=args)
        largest = weight.reshape(weight.shape[0], -1, 32).abs().amax(-1)
        tensors = {"weight": weight, "weight_scale": torch.exp2(largest.log2().floor() - 2)}  # the largest float is 6
        compressor = self.compressor.get_value_from_registry("mxfp4-pack-quantized")
        stored = compressor.compress(dict(tensors), scheme)
        return {**stored, "expected": compressor.decompress(dict(stored), scheme)["weight"]}

    def bnb4_case(self, weight, kind, nested) -> dict:
        q, state = self.bnb.quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=nested)
        parts = {"weight." + name: value for name, value in state.as_dict(packed=True).items()}
        # As rows of one block: the CPU's kernel refuses shorter rows, although blocks continue from row to row.
        state.shape = torch.Size((weight.numel() // 64, 64))
        return {"weight": q, **parts, "expected": self.bnb.dequantize_4bit(q, state).reshape(weight.shape)}

    def bnb8_case(self, weight) -> dict:
        q, scales, _ = self.bnb.int8_vectorwise_quant(weight.half())
        return {"weight": q, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8),
                "expected": self.bnb.int8_vectorwise_dequant(q, scales)}


def scales_of(weight, args, scale_dtype) -> dict:
    strategy = str(getattr(args.strategy, "value", args.strategy))
    is_float = str(getattr(args.type, "value", args.type)) == "float"
    if strategy == "tensor":
        grouped = weight.reshape(1, 1, -1)
    elif strategy == "block":
        rows, columns = args.block_structure
        grouped = weight.reshape(weight.shape[0] // rows, rows, -1, columns).transpose(1, 2).flatten(2)
    else:
        group = args.group_size if strategy == "group" else weight.shape[1]
        grouped = weight.reshape(weight.shape[0], -1, group)
    if is_float:
        return {"weight_scale": (grouped.abs().amax(-1) / 448).to(scale_dtype)}
    half = 2**(args.num_bits - 1)
    if args.symmetric:
        return {"weight_scale": (grouped.abs().amax(-1) / (half - 0.5)).to(scale_dtype)}
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / (2 * half - 1)).to(scale_dtype)
    zeros = (-half - low / scales.float()).round().clamp(-half, half - 1)
    return {"weight_scale": scales, "weight_zero_point": zeros.to(torch.int8)}


def fp8_case(weight, block=None) -> dict:
    if block is None:
        scale = (weight.abs().max() / 448).reshape(1)
        q = (weight / scale).to(FP8)
        return {"weight": q, "weight_scale": scale, "expected": q.float() * scale}
    padded = torch.zeros(*[-(-n // b) * b for n, b in zip(weight.shape, block)])
    padded[:weight.shape[0], :weight.shape[1]] = weight
    blocks = padded.reshape(padded.shape[0] // block[0], block[0], -1, block[1])
    scale = blocks.abs().amax((1, 3)) / 448
    whole = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:weight.shape[0], :weight.shape[1]]
    q = (weight / whole).to(FP8)
    return {"weight": q, "weight_scale_inv": scale, "expected": q.float() * whole}


def fbgemm_case(weight) -> dict:
    scale = weight.abs().amax(1, keepdim=True) / 448
    q = (weight / scale).to(FP8)
    return {"weight": q, "weight_scale": scale, "expected": q.float() * scale}


def matrices(programs: Programs) -> dict:
    def weight():
        return torch.randn(ROWS, COLUMNS) * torch.logspace(-2, 0, ROWS)[:, None]

    group4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16}
    cases = {
        "awq_g16": programs.awq_case(weight(), 16),
        "awq_whole": programs.awq_case(weight(), COLUMNS),
        "gptq_4_g16": programs.gptq_case(weight(), 16, 4, symmetric=False),
        "gptq_4_sym_v2": programs.gptq_case(weight(), 16, 4, symmetric=True, version=2),
        "gptq_8_g16": programs.gptq_case(weight(), 16, 8, symmetric=False),
        "gptq_act_order": programs.gptq_case(weight(), 16, 4, symmetric=True, act_order=True),
        "ct_pack_sym": programs.compressed_case(weight(), "pack-quantized", symmetric=True, **group4),
        "ct_pack_asym": programs.compressed_case(weight(), "pack-quantized", torch.float16, symmetric=False, **group4),
        "ct_pack_8": programs.compressed_case(weight(), "pack-quantized", num_bits=8, type="int", strategy="channel"),
        "ct_int": programs.compressed_case(weight(), "int-quantized", num_bits=8, type="int", strategy="channel"),
        "ct_naive": programs.compressed_case(weight(), "naive-quantized", torch.float32, num_bits=8, type="int",
                                             strategy="tensor"),
        "ct_float": programs.compressed_case(weight(), "float-quantized", num_bits=8, type="float", strategy="channel"),
        "fp8_tensor": fp8_case(weight()),
        "fp8_block": fp8_case(weight(), (24, 20)),
        "fp8_fbgemm": fbgemm_case(weight()),
        "bnb_int8": programs.bnb8_case(weight()),
        "bnb_nf4": programs.bnb4_case(weight(), "nf4", nested=False),
        "bnb_nf4_nested": programs.bnb4_case(weight(), "nf4", nested=True),
        "bnb_fp4": programs.bnb4_case(weight(), "fp4", nested=False),
    }
    return stored_cases(cases, lambda rows: rows[:EXPECTED_ROWS])


def wide_matrices(programs: Programs) -> dict:
    def weight(rows=WIDE_ROWS):
        return torch.randn(rows, WIDE_COLUMNS) * torch.logspace(-2, 0, rows)[:, None]

    def group(bits, size):
        return {"num_bits": bits, "type": "int", "strategy": "group", "group_size": size}

    channel8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
    cases = {
        "awq_g32": programs.awq_case(weight(), 32),
        "awq_g64": programs.awq_case(weight(), 64),
        "awq_g128": programs.awq_case(weight(), 128),
        "gptq_4_g32": programs.gptq_case(weight(32), 32, 4, symmetric=False),
        "gptq_4_g64_v2": programs.gptq_case(weight(32), 64, 4, symmetric=False, version=2),
        "gptq_4_g128": programs.gptq_case(weight(32), 128, 4, symmetric=True),
        "gptq_4_whole": programs.gptq_case(weight(32), WIDE_COLUMNS, 4, symmetric=False),
        "gptq_4_act_order_asym": programs.gptq_case(weight(32), 128, 4, symmetric=False, act_order=True),
        "gptq_8_g128_v2": programs.gptq_case(weight(32), 128, 8, symmetric=True, version=2),
        "gptq_8_whole": programs.gptq_case(weight(32), WIDE_COLUMNS, 8, symmetric=True),
        "gptq_8_act_order": programs.gptq_case(weight(32), 32, 8, symmetric=True, act_order=True),
        "gptq_8_act_order_asym": programs.gptq_case(weight(32), 64, 8, symmetric=False, act_order=True),
        "ct_pack_g32": programs.compressed_case(weight(), "pack-quantized", symmetric=True, **group(4, 32)),
        "ct_pack_g64": programs.compressed_case(weight(32), "pack-quantized", torch.float16, symmetric=False, **group(4, 64)),
        "ct_pack_g128": programs.compressed_case(weight(), "pack-quantized", symmetric=True, **group(4, 128)),
        "ct_w8a16_g128": programs.compressed_case(weight(), "pack-quantized", symmetric=True, **group(8, 128)),
        "ct_w8a16_g64_asym": programs.compressed_case(weight(32), "pack-quantized", torch.float16, symmetric=False,
                                                      **group(8, 64)),
        "ct_int_asym": programs.compressed_case(weight(), "int-quantized", torch.float16, symmetric=False, **channel8),
        "ct_mxfp4": programs.mxfp4_case(weight()),
        "fp8_block_128": fp8_case(weight(136), (128, 128)),
    }

    def expected(rows):
        return rows[::(len(rows) - 1) // (WIDE_EXPECTED_ROWS - 1)]

    return stored_cases(cases, expected)


def stored_cases(cases: dict, expected_rows) -> dict:
    stored = {}
    for case, tensors in cases.items():
        for name, value in tensors.items():
            value = expected_rows(value.float()) if name == "expected" else value
            stored[f"{case}.{name}"] = value.detach().contiguous().clone()
    return stored


def quantized_llama(programs: Programs, make) -> dict:
    weights = load_file(ROOT / "tests/data/models/llama-gqa-bf16/model.safetensors")
    stored = {}
    for name, value in weights.items():
        if "layers.0." not in name or "_proj." not in name:
            continue
        for part, tensor in make(value.float()).items():
            stored[name.removesuffix("weight") + part] = tensor.contiguous().clone()
    return stored


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True, help="folder of the unpacked wheels")
    arguments = parser.parse_args()
    torch.manual_seed(7)
    programs = Programs(arguments.sources)
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(matrices(programs), OUT / "matrices.safetensors")
    save_file(wide_matrices(programs), OUT / "wide_matrices.safetensors")

    def compressed(weight):
        tensors = programs.compressed_case(weight, "pack-quantized", num_bits=4, type="int", strategy="group",
                                           group_size=16)
        del tensors["expected"]
        return tensors

    for name, make in {"awq": lambda w: awq_tensors(w, 16), "gptq": lambda w: gptq_tensors(w, 16, 4, True, 1),
                       "compressed": compressed}.items():
        save_file(quantized_llama(programs, make), OUT / f"llama-{name}.safetensors")
    total = sum(path.stat().st_size for path in OUT.iterdir())
    print(json.dumps({path.name: path.stat().st_size for path in OUT.iterdir()} | {"total": total}, indent=1))


if __name__ == "__main__":
    main()
