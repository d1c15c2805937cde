#!/usr/bin/env python3
"""Tests of the pagoda command in processes whose memory is limited: what does not fit is told at once with numbers, and
defaults follow the limit. Limits are RLIMIT_AS and, where one can be made, a memory cgroup. Standard library only.

usage: memory_limits_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import gguf_files

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from skipping_main import skipping_main  # noqa: E402

PAGODA, MODEL = sys.argv[1:3]
MIB = 1 << 20
COMMON = ["--model", MODEL, "--threads", "1"]


def bytes_of_cuda():
    """What the libraries of a CUDA build take of an address space, whatever the program does; 0 of other builds."""
    listed = subprocess.run(["ldd", PAGODA], capture_output=True, text=True, check=False).stdout
    return sum(os.path.getsize(path) for path in re.findall(r"libcu\S+ => (\S+)", listed))


CUDA_BYTES = bytes_of_cuda()
# Where the program itself has no room it is not begun. The system's loader and what such libraries do first take tens of
# MiB beside it, and know no better than to fail or to crash.
LEAST_LIMIT = (128 if CUDA_BYTES > 0 else 0) + os.path.getsize(PAGODA) // MIB


class AddressSpace:
    """RLIMIT_AS, in the child: beside what the program's libraries take."""

    words = "RLIMIT_AS"

    def __init__(self, limit):
        self.usable = limit
        self.limit = limit + CUDA_BYTES

    def enter(self):
        resource.setrlimit(resource.RLIMIT_AS, (self.limit, self.limit))

    def close(self):
        pass

    def kills(self):
        return 0


class Cgroup:
    """A memory cgroup of version 1 or 2 below the one that this process is in, and the child in it."""

    def __init__(self, limit):
        self.usable = self.limit = limit
        parent, self.version = self.parent()
        self.folder = os.path.join(parent, f"pagoda_test_{os.getpid()}_{time.monotonic_ns()}")
        self.words = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        try:
            os.mkdir(self.folder)
        except OSError as error:
            raise unittest.SkipTest(f"no memory cgroup can be made here: {error}") from error
        try:
            self.write(self.words, str(limit))
            if self.version == 2:
                self.write("memory.swap.max", "0", optional=True)
        except OSError as error:
            os.rmdir(self.folder)
            raise unittest.SkipTest(f"the cgroup that was made has no memory controller: {error}") from error

    @staticmethod
    def parent():
        """The folder of this process's memory cgroup."""
        paths = {}
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                if "memory" in controllers.split(","):
                    paths[1] = path
                elif controllers == "":
                    paths[2] = path
        version = 1 if 1 in paths else 2
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            for line in file:
                fields, _, rest = line.partition(" - ")
                kind, _, options = rest.split()
                root, point = fields.split()[3:5]
                if (kind == "cgroup2" and version == 2) or (kind == "cgroup" and version == 1 and "memory" in options.split(",")):
                    below = os.path.relpath(paths.get(version, "/"), root)
                    return os.path.normpath(os.path.join(point, below if not below.startswith("..") else ".")), version
        raise unittest.SkipTest("no hierarchy of memory cgroups is mounted")

    def write(self, name, text, optional=False):
        path = os.path.join(self.folder, name)
        if optional and not os.path.exists(path):
            return
        with open(path, "r+", encoding="utf-8") as file:
            file.write(text)

    def enter(self):
        self.write("cgroup.procs", "0")

    def kills(self):
        """Processes that the system has killed for their memory in it."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))

    def close(self):
        for _ in range(100):
            try:
                os.rmdir(self.folder)
                return
            except OSError:  # its last process is still going
                time.sleep(0.05)


class Limits:
    """Tests of one kind of limit, `limit_of`."""

    def limited(self, mib):
        limit = self.limit_of(mib * MIB)
        self.addCleanup(limit.close)
        return limit

    def run_within(self, limit, command, *args):
        """(exit code, stdout, stderr, seconds)"""
        begin = time.monotonic()
        done = subprocess.run([PAGODA, command, *COMMON, *args], capture_output=True, text=True, timeout=120,
                              preexec_fn=limit.enter)
        self.assertEqual(limit.kills(), 0)
        return done.returncode, done.stdout, done.stderr, time.monotonic() - begin

    def plan_within(self, limit, *args):
        code, out, err, _ = self.run_within(limit, "inspect", "--json", *args)
        self.assertEqual(code, 0, err)
        return json.loads(out)["memory"]

    def blocks_of(self, mib):
        out = subprocess.run([PAGODA, "inspect", *COMMON, "--json"], capture_output=True, text=True, check=True).stdout
        return str(mib * MIB // json.loads(out)["memory"]["kv_bytes_per_block"])

    def assert_refused(self, limit, *args):
        for command in (["generate", "--prompt", "Once"], ["generate", "--touch-memory", "--prompt", "Once"],
                        ["serve", "--listen", "127.0.0.1:0"]):
            code, out, err, seconds = self.run_within(limit, *command, *args)
            self.assertIn(code, (1, 2), err)
            self.assertEqual(out, "")
            self.assertLess(seconds, 20)
            self.assertEqual(err.count("\n"), 1, err)
            self.assertRegex(err, r"\d+ MiB .*\d+ MiB are available \(" + limit.words)
            self.assertIn(f"{limit.limit // MIB} MiB", err)

    def test_a_kv_cache_above_the_limit_is_refused_at_once(self):
        self.assert_refused(self.limited(1024), "--num-device-blocks", self.blocks_of(2048))

    def test_pools_that_fit_alone_and_not_together_are_refused_at_once(self):
        blocks = self.blocks_of(600)
        self.assert_refused(self.limited(1024), "--num-device-blocks", blocks, "--num-host-blocks", blocks)

    def test_by_default_the_kv_cache_is_a_quarter_of_what_is_left_and_its_memory_is_taken_as_it_is_used(self):
        as_used, kv_bytes = self.serve_within_a_quarter([])
        at_start, _ = self.serve_within_a_quarter(["--touch-memory"])
        self.assertGreater(at_start, kv_bytes)
        self.assertGreater(at_start - as_used, 0.8 * kv_bytes)

    def serve_within_a_quarter(self, flags):
        """Returns the resident memory of a server that has answered one request, and the size of its KV cache."""
        limit = self.limited(1024)
        # So many contexts that a quarter is less than they need.
        rows = ["--max-num-seqs", "4096", "--max-num-batched-tokens", "4096", "--kv-cache-dtype", "float32"]
        plan = self.plan_within(limit, *rows)
        self.assertLess(plan["device_free_bytes"], limit.limit)
        self.assertGreater(plan["device_free_bytes"], limit.usable * 0.6)
        self.assertIn(limit.words, plan["device_free_limit"])
        self.assertAlmostEqual(plan["kv_bytes"] / plan["device_free_bytes"], 0.25, delta=0.02)
        server = subprocess.Popen([PAGODA, "serve", *COMMON, *rows, *flags, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, preexec_fn=limit.enter)
        try:
            found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", server.stdout.readline())
            self.assertTrue(found, "the server does not start within the limit")
            with socket.create_connection(("127.0.0.1", int(found.group(1))), 30) as connection:
                stream = connection.makefile("rw", encoding="utf-8")
                stream.write(json.dumps({"op": "model"}) + "\n")
                stream.flush()
                blocks = json.loads(stream.readline())["num_device_blocks"]
                stream.write(json.dumps({"id": "a", "prompt": "Once", "max_tokens": 20, "ignore_eos": True,
                                         "stream": False}) + "\n")
                stream.flush()
                self.assertEqual(json.loads(stream.readline())["event"], "done")
            kv_bytes = blocks * plan["kv_bytes_per_block"]
            self.assertLess(kv_bytes / plan["kv_bytes"], 1.05)
            self.assertGreater(kv_bytes / plan["kv_bytes"], self.least_of_planned)
            with open(f"/proc/{server.pid}/status", encoding="utf-8") as status:
                resident = int(re.search(r"RssAnon:\s+(\d+) kB", status.read()).group(1)) * 1024
            self.assertLess(resident, limit.limit)
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(30), 0)
            self.assertEqual(limit.kills(), 0)
            return resident, kv_bytes
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
            server.stderr.close()

    def test_the_smallest_limits_are_told_as_well(self):
        """However little there is: never a signal."""
        for mib in (16, 32, 48, 64, 96, 128, 192, 256, 384):
            if mib < LEAST_LIMIT:
                continue
            code, _, err, _ = self.run_within(self.limited(mib), "generate", "--prompt", "Once", "--max-tokens", "2")
            with self.subTest(mib=mib):
                self.assertIn(code, self.codes_of_small_limits, err)
                self.assertTrue(code == 0 or err)


class WithinAnAddressSpace(Limits, unittest.TestCase):
    limit_of = AddressSpace
    least_of_planned = 0.5  # a server's threads take address space before it looks
    codes_of_small_limits = (0, 1, 2, 127)  # 127: the system's loader has no room for the program


class WithinACgroup(Limits, unittest.TestCase):
    limit_of = Cgroup
    least_of_planned = 0.95
    codes_of_small_limits = (0, 1, 2)


class Loading(unittest.TestCase):
    """What a process holds at most while it loads, beside what it holds of a small model: the weights and 10 % more, the
    rows that are dequantised at once, and the pages of the file that these are read from."""

    CONSTANT = 32 * MIB
    VOCAB, HIDDEN, INTERMEDIATE, LAYERS = 32768, 512, 1408, 2

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def peak(self, model, *args):
        server = subprocess.Popen([PAGODA, "serve", "--model", model, "--listen", "127.0.0.1:0", "--threads", "2",
                                   "--num-device-blocks", "4", "--max-num-seqs", "1", "--max-num-batched-tokens", "64",
                                   "--max-model-len", "64", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.assertRegex(server.stdout.readline(), "listening on ")
            with open(f"/proc/{server.pid}/status", encoding="utf-8") as status:
                return int(re.search(r"VmHWM:\s+(\d+) kB", status.read()).group(1)) * 1024
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
            server.stderr.close()

    def weight_bytes(self, model, *args):
        done = subprocess.run([PAGODA, "inspect", "--model", model, "--json", *args], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["memory"]["weight_bytes"]

    def assert_holds_little_more_than_weights(self, model, *args):
        weights = self.weight_bytes(model, *args)
        self.assertGreater(weights, self.CONSTANT)
        self.assertLess(self.peak(model, *args) - self.peak(MODEL), 1.1 * weights + self.CONSTANT)

    def gguf(self):
        """A Llama of Q8_0 whose head is the largest matrix and taken last."""
        def matrix(rows, columns):
            block = struct.pack("<e", 1 / 1024) + bytes(range(32))
            return gguf_files.Q8_0, [rows, columns], block * (rows * columns // 32)

        def norm():
            return gguf_files.F32, [self.HIDDEN], struct.pack("<f", 1) * self.HIDDEN

        hidden, intermediate = self.HIDDEN, self.INTERMEDIATE
        tensors = {"token_embd.weight": matrix(self.VOCAB, hidden), "output.weight": matrix(self.VOCAB, hidden),
                   "output_norm.weight": norm()}
        for layer in range(self.LAYERS):
            begin = f"blk.{layer}."
            tensors |= {begin + name + ".weight": matrix(hidden, hidden) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
            tensors |= {begin + name + ".weight": matrix(intermediate, hidden) for name in ("ffn_gate", "ffn_up")}
            tensors |= {begin + name + ".weight": norm() for name in ("attn_norm", "ffn_norm")}
            tensors[begin + "ffn_down.weight"] = matrix(hidden, intermediate)
        characters = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256)]] + [chr(256 + i) for i in range(68)]
        tokens = characters + ["ab"] + [f"w{i}" for i in range(self.VOCAB - len(characters) - 1)]
        text, number, real, array = gguf_files.STRING, 4, 6, gguf_files.ARRAY
        keys = {"general.architecture": (text, "llama"), "llama.block_count": (number, self.LAYERS),
                "llama.context_length": (number, 64), "llama.embedding_length": (number, hidden),
                "llama.feed_forward_length": (number, intermediate), "llama.attention.head_count": (number, 8),
                "llama.attention.layer_norm_rms_epsilon": (real, 1e-5), "tokenizer.ggml.model": (text, "gpt2"),
                "tokenizer.ggml.pre": (text, "gpt-2"), "tokenizer.ggml.tokens": (array, tokens),
                "tokenizer.ggml.token_type": (array, [1] * self.VOCAB), "tokenizer.ggml.merges": (array, ["a b"])}
        path = os.path.join(self.folder, "model.gguf")
        gguf_files.write_gguf(path, keys, tensors)
        return path

    def test_dequantised_matrices_have_no_whole_copy_in_float32(self):
        self.assert_holds_little_more_than_weights(self.gguf(), "--quantize", "none", "--dtype", "bfloat16")

    def test_nor_have_those_that_are_quantised_anew(self):
        self.assert_holds_little_more_than_weights(self.gguf(), "--quantize", "int8", "--dtype", "bfloat16")

    def test_random_weights_are_let_go_when_they_are_quantised(self):
        config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
                  "num_attention_heads": 8, "vocab_size": 8192, "max_position_embeddings": 64, "torch_dtype": "bfloat16"}
        with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.assert_holds_little_more_than_weights(self.folder, "--load-format", "dummy", "--quantize", "int8")


if __name__ == "__main__":
    skipping_main("__main__", *sys.argv[3:])
