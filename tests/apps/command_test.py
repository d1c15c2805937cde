#!/usr/bin/env python3
"""Tests of the pagoda command: exit codes, messages, outputs. Standard library only.

usage: command_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL = sys.argv[1:3]


def run(*args, stdin="", timeout=120):
    """(exit code, stdout, stderr) of one call of the command."""
    done = subprocess.run([PAGODA, *args], input=stdin, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


class Usage(unittest.TestCase):
    def assert_bad_usage(self, name, *args):
        code, out, err = run(*args)
        self.assertEqual(code, 2, err)
        self.assertEqual(out, "")
        self.assertIn(name, err)
        return err

    def test_help_and_version_succeed(self):
        for args in (["--help"], ["serve", "--help"], ["bench", "throughput", "--help"], ["--version"]):
            code, out, _ = run(*args)
            self.assertEqual(code, 0, args)
            self.assertTrue(out)

    def test_no_subcommand_is_bad_usage(self):
        self.assert_bad_usage("subcommand")

    def test_a_wrong_flag_is_named_in_one_line(self):
        for command in ("serve", "generate", "tokenize", "inspect"):
            err = self.assert_bad_usage("--no-such-flag", command, "--no-such-flag")
            self.assertEqual(err.count("\n"), 1, err)

    def test_a_wrong_value_is_named(self):
        self.assert_bad_usage("--block-size", "serve", "--model", MODEL, "--block-size", "abc")
        self.assert_bad_usage("--preemption-mode", "serve", "--model", MODEL, "--preemption-mode", "never")
        self.assert_bad_usage("pipeline_depth", "serve", "--model", MODEL, "--pipeline-depth", "3")
        self.assert_bad_usage("listen", "serve", "--model", MODEL, "--listen", "nowhere")
        self.assert_bad_usage("log_level", "serve", "--model", MODEL, "--log-level", "loud")
        self.assert_bad_usage("max_num_batched_tokens must be at least max_num_seqs (65), not 64", "serve", "--model", MODEL,
                              "--max-num-seqs", "65", "--max-num-batched-tokens", "64")
        self.assert_bad_usage("drain_timeout", "serve", "--model", MODEL, "--drain-timeout", "-1")
        for names in (["a,,b"], ["a", ""], ["a", "b,a"]):
            flags = [part for name in names for part in ("--served-model-name", name)]
            self.assert_bad_usage("served_model_name", "serve", "--model", MODEL, *flags)

    def test_an_unknown_subcommand_is_named_beside_the_known(self):
        self.assertIn("serve, chat, generate, run-batch, bench, inspect, tokenize", self.assert_bad_usage("unknown subcommand foo", "foo"))
        err = self.assert_bad_usage("unknown subcommand foo", "bench", "foo", "--model", MODEL)
        self.assertIn("the subcommands of bench are throughput, latency, sampling, tokenizer", err)
        self.assertIn("throughput", self.assert_bad_usage("a subcommand of bench", "bench"))
        self.assert_bad_usage("unknown flag --block-size", "--block-size", "4")
        self.assert_bad_usage("foo", "serve", "foo", "--listen", "127.0.0.1:0")

    def test_the_nearest_known_name_is_told(self):
        self.assertIn("unknown subcommand sevre; did you mean serve?", self.assert_bad_usage("sevre", "sevre", MODEL))
        self.assertIn("did you mean run-batch?", self.assert_bad_usage("run_batch", "run_batch"))
        self.assertIn("did you mean reset-prefix-cache?", self.assert_bad_usage("reset", "ctl", "reset"))
        self.assertIn("unknown subcommand stauts; did you mean status?", self.assert_bad_usage("stauts", "ctl", "stauts"))
        self.assertIn("did you mean throughput?", self.assert_bad_usage("througput", "bench", "througput"))
        self.assertNotIn("did you mean", self.assert_bad_usage("banana", "banana"))
        self.assertEqual(self.assert_bad_usage("--temprature", "generate", "--temprature", "0"),
                         "pagoda: unknown flag --temprature; did you mean --temperature?\n")
        self.assertIn("did you mean --base-url?", self.assert_bad_usage("--base-ulr", "ctl", "status", "--base-ulr", "x"))
        err = self.assert_bad_usage("--sed", "inspect", "--model", MODEL, "--sed", "1", "--max-num-seq", "2")
        self.assertIn("unknown flag --max-num-seq; did you mean --max-num-seqs?", err)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"model": MODEL, "max_modle_len": 5}, file)
            file.flush()
            self.assertIn('unknown key "max_modle_len"; did you mean "max_model_len"?',
                          self.assert_bad_usage("max_modle_len", "serve", "--config", file.name))

    def test_a_wrong_choice_is_told_beside_the_right_ones(self):
        for flag, choices in (("--preemption-mode", "recompute, swap, auto"), ("--scheduling-policy", "fcfs, priority, fair")):
            err = self.assert_bad_usage(flag, "serve", "--model", MODEL, flag, "foo")
            self.assertEqual(err, f"pagoda: {flag} must be one of {choices}, not foo\n")
        self.assert_bad_usage("--output must be one of text, json, not xml", "generate", "--prompt", "a", "--output", "xml")
        for flag in ("--dtype", "--kv-cache-dtype", "--quantize", "--device", "--generation-config", "--cpu-isa",
                     "--cpu-affinity", "--log-level"):
            err = self.assert_bad_usage(flag.lstrip("-").replace("-", "_"), "serve", "--model", MODEL, flag, "foo")
            self.assertIn("foo", err)

    def test_a_negative_number_does_not_wrap_around(self):
        for flag in ("--max-stop-strings", "--max-stop-string-bytes", "--max-logit-bias"):
            err = self.assert_bad_usage(flag, "serve", "--model", MODEL, flag, "-1")
            self.assertEqual(err, f"pagoda: {flag} must be at least 0, not -1\n")
        for key in ("seed", "max_stop_strings"):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump({"model": MODEL, key: -1}, file)
                file.flush()
                self.assertIn("-1", self.assert_bad_usage(key, "serve", "--config", file.name))

    def test_a_number_is_told_with_what_it_may_be(self):
        for args, message in ((["bench", "throughput", "--num-prompts", "0"], "--num-prompts must be at least 1, not 0"),
                              (["bench", "throughput", "--request-rate", "-1"], "--request-rate must be at least 0, not -1"),
                              (["bench", "sampling", "-n", "0"], "--n must be at least 1, not 0"),
                              (["bench", "tokenizer", "--num-iters", "x"], "--num-iters must be an integer, not x"),
                              (["serve", "--block-size", "1.5"], "--block-size must be an integer, not 1.5"),
                              (["serve", "--threads", "0x2"], "--threads must be an integer, not 0x2"),
                              (["serve", "--block-size", "9999999999"],
                               "--block-size must be at most 2147483647, not 9999999999"),
                              (["serve", "--seed", "18446744073709551616"],
                               "--seed must be at most 18446744073709551615, not 18446744073709551616"),
                              (["serve", "--swap-space", "nan"], "--swap-space must be a number, not nan"),
                              (["generate", "--temperature", "warm"], "--temperature must be a number, not warm"),
                              (["generate", "--max-tokens", ""], '--max-tokens must be an integer, not ""')):
            self.assertEqual(self.assert_bad_usage(message, *args), f"pagoda: {message}\n")

    def test_help_shows_choices_and_defaults(self):
        _, out, _ = run("serve", "--help")
        for line in (r"--preemption-mode recompute\|swap\|auto=auto\s", r"--scheduling-policy fcfs\|priority\|fair=fcfs\s",
                     r"--\[no-\]enable-prefix-caching\s+Share [^-]*\(default: on\)", r"--seed UINT=0\s", r"--watermark FLOAT=0.01\s"):
            self.assertRegex(out, line)
        for word in ("ENUM", "{false}"):
            self.assertNotIn(word, out)

    def test_a_path_that_a_flag_names_wrongly_is_bad_usage(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, "missing", "file")
            generate = ["generate", "--model", MODEL, "--prompt", "a"]
            self.assertIn(missing, self.assert_bad_usage("config", *generate, "--config", missing))
            self.assertIn(folder, self.assert_bad_usage("config", *generate, "--config", folder))
            self.assertIn(missing, self.assert_bad_usage("trace", *generate, "--trace", missing))
            self.assertIn(missing, self.assert_bad_usage("swap_dir", *generate, "--swap-space", "0.01", "--swap-dir", missing))
            for path in (missing, folder, os.devnull):
                self.assertIn(path, self.assert_bad_usage("api_key_file", "serve", "--model", MODEL, "--api-key-file", path))

    def test_too_little_memory_for_one_sequence_is_bad_usage(self):
        for command in (["generate", "--prompt", "a"], ["serve", "--listen", "127.0.0.1:0"], ["inspect"]):
            self.assert_bad_usage("raise kv_cache_memory", *command, "--model", MODEL, "--kv-cache-memory", "0.0000001")

    def test_a_gpu_that_is_not_there_is_bad_usage(self):
        for command in (["generate", "--prompt", "a"], ["serve", "--listen", "127.0.0.1:0"], ["inspect"]):
            err = self.assert_bad_usage("", *command, "--model", MODEL, "--device", "cuda:999")
            self.assertRegex(err, "CUDA|cuda")
            self.assertEqual(err.count("\n"), 1, err)
        self.assert_bad_usage("enforce_eager is for --device cuda", "inspect", MODEL, "--enforce-eager")

    def test_a_flag_of_a_server_that_is_not_started_is_bad_usage(self):
        for flag in (["--tls-cert", "c"], ["--cors-origin", "*"], ["--no-page"], ["--max-body-bytes", "5"]):
            self.assert_bad_usage(f"{flag[0]} needs --http", "serve", "--model", MODEL, *flag)
        self.assert_bad_usage("--max-connections is a key of JSON lines, which --listen none turns off", "serve", "--model", MODEL,
                              "--listen", "none", "--http", "127.0.0.1:0", "--max-connections", "5")

    def test_every_problem_is_told(self):
        err = self.assert_bad_usage("block_size", "serve", "--block-size", "-1", "--pipeline-depth", "5")
        for name in ("model", "block_size", "pipeline_depth"):
            self.assertIn(name, err)

    def test_generate_wants_one_source_of_prompts(self):
        self.assert_bad_usage("--prompt", "generate", "--model", MODEL)
        self.assert_bad_usage("--prompt", "generate", "--model", MODEL, "--prompt", "a", "--prompts", "-")

    def test_a_model_without_config_or_tokenizer_is_bad_config(self):
        for args in (["serve", "--listen", "127.0.0.1:0"], ["generate", "--prompt", "a"], ["inspect"], ["tokenize"]):
            code, _, err = run(*args, "--model", "/no/such/folder")
            self.assertEqual(code, 2, args)
            self.assertIn("/no/such/folder", err)
            self.assertEqual(err.count("\n"), 1, err)


class ForeignFiles(unittest.TestCase):
    """Files of models that were damaged, or made to do harm, end the command in one line that names them."""

    DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
    FOLDER_FILES = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors")

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def copy(self, without=()):
        folder = tempfile.mkdtemp(dir=self.folder)
        return shutil.copytree(MODEL, folder, ignore=lambda _, files: [f for f in files if f in without], dirs_exist_ok=True)

    def generate(self, model):
        return run("generate", "--model", model, "--prompt", "Once", "--max-tokens", "2", "--threads", "1")

    def assert_refused(self, model, file):
        code, out, err = self.generate(model)
        self.assertIn(code, (1, 2), err)
        self.assertEqual(out, "")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(file, err)

    def assert_folder_refused(self, file, content, without=()):
        model = self.copy(without)
        with open(os.path.join(model, file), "wb") as written:
            written.write(content)
        self.assert_refused(model, file)

    @staticmethod
    def read(*path):
        with open(os.path.join(*path), "rb") as file:
            return file.read()

    def test_damaged_files_of_a_folder_are_named(self):
        far = (2**63).to_bytes(8, "little")
        for file in self.FOLDER_FILES:
            whole = self.read(MODEL, file)
            damaged = {"empty": b"", "cut": whole[:len(whole) // 2], "zeros": bytes(64), "other": b"\x7fELF" + whole[4:]}
            if file.endswith(".json"):
                damaged |= {"array": b"[]", "deep": b"[" * 100000, "not_utf8": b'{"\xff\xfe": 1}x', "number": b"1e999"}
            else:
                damaged |= {"length": far + whole[8:], "one_byte_less": whole[:-1], "a_byte_more": whole + b"x"}
            for damage, content in damaged.items():
                with self.subTest(file=file, damage=damage):
                    self.assert_folder_refused(file, content)

    def test_damaged_files_of_pytorch_are_named(self):
        whole = self.read(self.DATA, "torch", "module.bin")
        for damage, content in {"empty": b"", "cut": whole[:len(whole) // 2], "zeros": bytes(64), "without_end": whole[:-20],
                                "no_zip": b"\x80\x02" + whole[2:],
                                "other_model": whole, "older": self.read(self.DATA, "torch", "legacy.bin")}.items():
            with self.subTest(damage=damage):
                self.assert_folder_refused("pytorch_model.bin", content, without=["model.safetensors"])

    def test_damaged_gguf_files_are_named(self):
        whole = self.read(self.DATA, "gguf", "llama-gqa-bf16.gguf")
        many = (2**64 - 1).to_bytes(8, "little")
        for damage, content in {"empty": b"", "magic": whole[:4], "cut": whole[:len(whole) // 2], "one_byte_less": whole[:-1],
                                "zeros": bytes(64), "version": whole[:4] + many[:4] + whole[8:],
                                "tensors": whole[:8] + many + whole[16:], "keys": whole[:16] + many + whole[24:],
                                "key": whole[:24] + many + whole[32:]}.items():
            with self.subTest(damage=damage):
                path = os.path.join(self.folder, "damaged.gguf")
                with open(path, "wb") as file:
                    file.write(content)
                self.assert_refused(path, path)

    def test_links_to_nothing_to_themselves_or_to_a_device_are_named(self):
        targets = {"nothing": lambda path: "/nowhere/file", "itself": lambda path: path, "device": lambda path: "/dev/zero"}
        for kind, target in targets.items():
            for file in self.FOLDER_FILES:
                with self.subTest(file=file, kind=kind):
                    model = self.copy(without=[file])
                    path = os.path.join(model, file)
                    os.symlink(target(path), path)
                    self.assert_refused(model, file)
            with self.subTest(file="model.gguf", kind=kind):
                path = os.path.join(tempfile.mkdtemp(dir=self.folder), "model.gguf")
                os.symlink(target(path), path)
                self.assert_refused(path, path)

    def test_a_pipe_is_no_model(self):
        path = os.path.join(self.folder, "pipe")
        os.mkfifo(path)
        self.assert_refused(path, path)

    def test_code_that_comes_with_a_model_is_not_run(self):
        model = self.copy()
        run_file = os.path.join(self.folder, "was_run")
        with open(os.path.join(model, "own.py"), "w", encoding="utf-8") as file:
            file.write(f"open({run_file!r}, 'w')\nclass Own: pass\n")
        for name in ("config.json", "tokenizer_config.json"):
            path = os.path.join(model, name)
            content = {}
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    content = json.load(file)
            content["auto_map"] = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoTokenizer": ["own.Own", None]}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
        code, out, err = self.generate(model)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, self.generate(MODEL)[1])
        self.assertFalse(os.path.exists(run_file))


class Progress(unittest.TestCase):
    QUANTIZED = ["generate", "--model", MODEL, "--quantize", "int8", "--prompt", "Once", "--max-tokens", "1", "--threads", "1"]

    def test_loading_is_shown_on_a_terminal(self):
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        try:
            done = subprocess.run([PAGODA, *self.QUANTIZED], stdout=subprocess.DEVNULL, stderr=follower, timeout=120)
        finally:
            os.close(follower)
        self.assertEqual(done.returncode, 0)
        shown = b""
        try:
            while piece := os.read(leader, 4096):
                shown += piece
        except OSError:  # nobody holds the other end any more
            pass
        self.assertRegex(shown, rb"loading weights: \d+ %")
        self.assertGreater(shown.rfind(b"\r\x1b[K"), shown.rfind(b"loading weights"), "the line is cleared")

    def test_loading_is_not_shown_in_a_pipe(self):
        code, _, err = run(*self.QUANTIZED)
        self.assertEqual(code, 0)
        self.assertNotIn("loading", err)


class StandardOutput(unittest.TestCase):
    """/dev/full takes nothing, as a disk that is full."""

    def test_what_cannot_be_written_is_a_failure_of_every_subcommand(self):
        bench = ["--model", MODEL, "--num-iters", "1"]
        for args in (["--help"], ["--version"], ["serve", "--help"], ["inspect", MODEL], ["inspect", MODEL, "--json"],
                     ["inspect", "--architectures"], ["tokenize", "--model", MODEL], ["bench", "tokenizer", *bench],
                     ["bench", "latency", *bench, "--input-len", "4", "--output-len", "2", "--json"],
                     ["generate", "--model", MODEL, "--prompt", "a", "--max-tokens", "2"],
                     ["serve", "--model", MODEL, "--listen", "127.0.0.1:0"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PAGODA, *args], input="Once", stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=120)
            self.assertEqual(done.returncode, 1, args)
            self.assertIn("standard output", done.stderr, args)


class ConfigFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, content):
        path = os.path.join(self.folder.name, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_an_unknown_key_is_bad_usage_that_names_it(self):
        code, _, err = run("serve", "--config", self.write({"model": MODEL, "blok_size": 4}))
        self.assertEqual(code, 2)
        self.assertIn("blok_size", err)

    def test_a_wrong_type_is_bad_usage_that_names_the_key(self):
        code, _, err = run("generate", "--prompt", "a", "--config", self.write({"model": MODEL, "block_size": "4"}))
        self.assertEqual(code, 2)
        self.assertIn("block_size", err)

    def test_a_file_that_is_not_json_is_bad_usage(self):
        code, _, err = run("inspect", "--config", self.write("{"))
        self.assertEqual(code, 2)
        self.assertIn("config.json", err)

    def test_its_keys_count_and_a_flag_wins(self):
        path = self.write({"model": MODEL, "block_size": 4, "num_device_blocks": 40, "listen": "127.0.0.1:0"})
        code, out, err = run("inspect", "--json", "--config", path)
        self.assertEqual(code, 0, err)
        memory = json.loads(out)["memory"]
        self.assertEqual((memory["block_size"], memory["num_device_blocks"]), (4, 40))
        code, out, err = run("inspect", "--json", "--config", path, "--block-size", "8")
        self.assertEqual(json.loads(out)["memory"]["block_size"], 8, err)


class GenerationConfig(unittest.TestCase):
    """A model folder whose generation_config.json makes every draw greedy and five tokens long."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = folder.name
        for name in os.listdir(MODEL):
            if name != "generation_config.json":
                os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(self.model, name))
        self.write({"eos_token_id": [1], "do_sample": True, "temperature": 0.9, "top_k": 1, "max_new_tokens": 5})

    def write(self, content):
        with open(os.path.join(self.model, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)

    def tokens(self, *flags, **fields):
        line = json.dumps({"prompt": "Once upon a time", "ignore_eos": True, **fields})
        code, out, err = run("generate", "--model", self.model, "--threads", "1", "--prompts", "-", "--output", "json",
                             *flags, stdin=line + "\n")
        self.assertEqual(code, 0, err)
        done = json.loads(out)
        self.assertEqual(done["event"], "done", out)
        return done["outputs"][0]["token_ids"]

    def test_its_values_fill_what_a_request_leaves_open(self):
        greedy = self.tokens(temperature=0, max_tokens=5)
        self.assertEqual(self.tokens(seed=1), greedy)
        self.assertEqual(self.tokens(seed=2), greedy)

    def test_fields_and_flags_win(self):
        self.assertEqual(len(self.tokens(max_tokens=9)), 9)
        self.assertEqual(len(self.tokens("--max-tokens", "8")), 8)
        drawn = {tuple(self.tokens(seed=seed, top_k=-1, temperature=3.0)) for seed in range(4)}
        self.assertGreater(len(drawn), 1)

    def test_it_can_be_left_out_of_account(self):
        self.assertEqual(len(self.tokens("--generation-config", "vllm")), 16)

    def test_another_folder_may_have_it(self):
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "generation_config.json"), "w", encoding="utf-8") as file:
                json.dump({"max_new_tokens": 3}, file)
            self.assertEqual(len(self.tokens("--generation-config", other)), 3)
        code, _, err = run("generate", "--model", self.model, "--prompt", "a", "--generation-config", "/nowhere")
        self.assertEqual(code, 2)
        self.assertIn("generation_config must be auto, vllm, or a folder", err)

    def test_beam_search_takes_only_its_length(self):
        self.assertEqual(len(self.tokens(use_beam_search=True, n=2, temperature=0)), 5)

    def test_a_wrong_value_is_bad_config_that_names_the_file_and_the_key(self):
        self.write({"temperature": -1})
        code, _, err = run("generate", "--model", self.model, "--prompt", "a")
        self.assertEqual(code, 2)
        self.assertIn("generation_config.json: temperature", err)


class Generate(unittest.TestCase):
    def generate(self, *args, stdin=""):
        return run("generate", "--model", MODEL, "--temperature", "0", "--threads", "1", *args, stdin=stdin)

    def test_json_is_one_done_object_a_line_in_input_order(self):
        prompts = "".join(f"Once {i}\n" for i in range(40))
        code, out, err = self.generate("--prompts", "-", "--output", "json", "--max-tokens", "5", stdin=prompts)
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["id"] for line in lines], [str(i + 1) for i in range(40)])
        for line in lines:
            self.assertEqual(line["event"], "done")
            self.assertLessEqual(len(line["outputs"][0]["token_ids"]), 5)

    def test_a_queue_of_one_place_serves_every_prompt(self):
        prompts = "Once\n" * 300
        code, out, err = self.generate("--prompts", "-", "--output", "json", "--max-tokens", "1",
                                       "--max-queued-requests", "1", stdin=prompts)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([json.loads(line)["event"] for line in out.splitlines()], ["done"] * 300)

    def test_a_line_with_a_brace_is_a_generate_object_and_blank_lines_are_skipped(self):
        prompts = 'Once\n\n{"id": "mine", "prompt": "The", "max_tokens": 2, "ignore_eos": true}\n'
        code, out, err = self.generate("--prompts", "-", "--output", "json", stdin=prompts)
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["id"] for line in lines], ["1", "mine"])
        self.assertEqual(lines[1]["usage"]["completion_tokens"], 2)

    def test_a_bad_line_gets_its_error_and_the_others_their_outputs(self):
        prompts = '{"prompt": "a", "temprature": 1}\nOnce\n{nope\n{"id": "t", "prompt": "a", "temperature": -1}\n'
        code, out, err = self.generate("--prompts", "-", "--output", "json", stdin=prompts)
        self.assertEqual(code, 1)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["event"] for line in lines], ["error", "done", "error", "error"])
        self.assertEqual(lines[0]["error"]["param"], "temprature")
        self.assertEqual(lines[3]["id"], "t")
        self.assertEqual(lines[3]["error"]["param"], "temperature")

    def test_a_wrong_sampling_flag_is_bad_usage(self):
        code, _, err = self.generate("--prompt", "a", "--top-p", "2")
        self.assertEqual(code, 2)
        self.assertIn("top_p", err)

    def test_text_is_the_output_alone(self):
        code, out, err = self.generate("--prompt", "Once upon a time", "--max-tokens", "8", "--ignore-eos")
        self.assertEqual((code, err), (0, ""))
        _, as_json, _ = self.generate("--prompt", "Once upon a time", "--max-tokens", "8", "--ignore-eos", "--output",
                                      "json")
        self.assertEqual(out, json.loads(as_json)["outputs"][0]["text"] + "\n")

    def test_a_pool_smaller_than_the_longest_request_is_warned_of(self):
        flags = ("--prompt", "a", "--num-device-blocks", "1", "--block-size", "16", "--max-tokens", "40", "--ignore-eos",
                 "--output", "json")
        code, out, err = self.generate(*flags)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["outputs"][0]["finish_reason"], "length")
        self.assertEqual(err.count("\n"), 1, err)
        for words in ("warn", "holds 16 tokens", "max_model_len 1024", "raise num_device_blocks or lower max_model_len"):
            self.assertIn(words, err)
        self.assertEqual(self.generate(*flags, "--max-model-len", "16")[2], "")

    def test_a_prompts_file_that_is_not_there_is_a_failure(self):
        code, _, err = self.generate("--prompts", "/no/such/prompts")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/prompts", err)


class Others(unittest.TestCase):
    def test_tokenize_prints_the_ids_of_all_of_standard_input(self):
        code, out, err = run("tokenize", "--model", MODEL, stdin="Once upon\na time\n")
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("\n"), 1)
        self.assertTrue(all(isinstance(token, int) for token in json.loads(out)))

    def test_inspect_tells_facts_and_a_plan(self):
        code, out, err = run("inspect", MODEL, "--json")
        self.assertEqual(code, 0, err)
        facts = json.loads(out)
        self.assertGreater(facts["model"]["num_parameters"], 0)
        self.assertGreater(facts["memory"]["kv_bytes_per_token"], 0)
        self.assertGreater(facts["memory"]["num_device_blocks"], 0)
        self.assertEqual(run("inspect", MODEL)[0], 0)

    def test_inspect_tells_what_defaults_come_to(self):
        def planned(*flags):
            code, out, err = run("inspect", MODEL, "--json", *flags)
            self.assertEqual(code, 0, err)
            memory = json.loads(out)["memory"]
            return memory["max_num_seqs"], memory["max_num_batched_tokens"], memory["swap"]

        self.assertEqual(planned(), (256, 384, "none"))
        self.assertEqual(planned("--max-num-seqs", "16"), (16, 144, "none"))
        self.assertEqual(planned("--max-num-batched-tokens", "64"), (48, 64, "none"))
        self.assertEqual(planned("--swap-space", "0.01"), (256, 384, "host memory"))
        self.assertEqual(planned("--swap-space", "0.01", "--swap-dir", "/tmp"), (256, 384, "file in /tmp"))

    def test_inspect_names_an_unknown_architecture_beside_the_known(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump({"architectures": ["FalconForCausalLM"]}, file)
            code, _, err = run("inspect", folder)
        self.assertEqual(code, 2)
        self.assertIn('"FalconForCausalLM" is not supported; supported are BaiChuanForCausalLM BaichuanForCausalLM', err)

    def test_inspect_lists_architectures(self):
        code, out, _ = run("inspect", "--architectures")
        self.assertEqual(code, 0)
        self.assertIn("LlamaForCausalLM", out.split())

    def test_bench_reports_rates_and_latencies(self):
        code, out, err = run("bench", "throughput", "--model", MODEL, "--json", "--num-prompts", "6", "--input-len", "8",
                             "--output-len", "4", "--concurrency", "3")
        self.assertEqual(code, 0, err)
        result = json.loads(out)
        self.assertEqual(result["generation_tokens"], 24)
        self.assertEqual(result["prompt_tokens"], 48)
        self.assertGreaterEqual(result["steps"], 8)
        self.assertGreater(result["ttft_ms"]["p50"], 0)
        self.assertGreater(result["itl_ms"]["p99"], 0)
        code, out, err = run("bench", "latency", "--model", MODEL, "--json", "--batch-size", "2", "--input-len", "8",
                             "--output-len", "4", "--num-iters", "2")
        self.assertEqual(code, 0, err)
        self.assertGreater(json.loads(out)["latency_ms"]["mean"], 0)


class Serve(unittest.TestCase):
    def start(self, *args, **popen):
        server = subprocess.Popen([PAGODA, "serve", "--model", MODEL, "--listen", "127.0.0.1:0", "--threads", "1", *args],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)
        self.addCleanup(lambda: (server.kill(), server.wait(), server.stdout.close(), server.stderr.close()))
        line = server.stdout.readline()
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line)
        self.assertTrue(found, line)
        return server, int(found.group(1))

    def connect(self, port):
        connection = socket.create_connection(("127.0.0.1", port), 30)
        self.addCleanup(connection.close)
        stream = connection.makefile("rw", encoding="utf-8")
        self.addCleanup(stream.close)
        return stream

    def ask(self, stream, message):
        stream.write(json.dumps(message) + "\n")
        stream.flush()
        return json.loads(stream.readline())

    def test_a_taken_port_is_a_failure(self):
        _, port = self.start()
        code, out, err = run("serve", "--model", MODEL, "--listen", f"127.0.0.1:{port}")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(str(port), err)

    def test_nothing_is_served_beyond_this_machine_without_keys_or_consent(self):
        for listen in (["--listen", "0.0.0.0:0"], ["--listen", "none", "--http", "0.0.0.0:0"]):
            code, out, err = run("serve", "--model", MODEL, *listen)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("--allow-unauthenticated", err)

    def test_addresses_and_certificates_are_looked_at_before_the_model(self):
        _, port = self.start()
        model = ["--model", "/no/such/folder"]
        code, out, err = run("serve", *model, "--listen", "none", "--http", f"127.0.0.1:{port}")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(f"cannot listen on 127.0.0.1:{port}", err)
        code, out, err = run("serve", *model, "--listen", "none", "--http", "127.0.0.1:0", "--tls-cert", "/no/cert.pem",
                             "--tls-key", "/no/key.pem")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("/no/cert.pem", err)
        code, out, err = run("serve", *model, "--listen", "0.0.0.0:0")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("give --keys-file or --api-key-file with a user's key", err)

    def assert_drains(self, *signals):
        server, port = self.start()
        stream = self.connect(port)
        first = self.ask(stream, {"id": "a", "prompt": "Once", "max_tokens": 60, "ignore_eos": True, "temperature": 0})
        self.assertEqual(first["event"], "delta")
        for each in signals:
            server.send_signal(each)
        events = [json.loads(line) for line in stream]
        self.assertEqual(events[-1]["event"], "done")
        self.assertEqual(events[-1]["outputs"][0]["finish_reason"], "length")
        self.assertEqual(server.wait(30), 0)

    def test_sigterm_lets_live_requests_finish(self):
        self.assert_drains(signal.SIGTERM)

    def test_sighup_does_as_sigterm_and_after_it_is_no_second_wish(self):
        self.assert_drains(signal.SIGHUP)
        self.assert_drains(signal.SIGTERM, signal.SIGHUP)

    def test_sighup_that_is_ignored_at_start_stays_ignored(self):
        server, port = self.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        server.send_signal(signal.SIGHUP)
        self.assertEqual(self.ask(self.connect(port), {"op": "ping"})["event"], "pong")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)

    def test_sigterm_aborts_live_requests_after_the_drain_timeout(self):
        server, port = self.start("--drain-timeout", "0")
        stream = self.connect(port)
        self.assertEqual(self.ask(stream, {"id": "a", "prompt": "Once", "max_tokens": 200, "ignore_eos": True,
                                           "min_tokens": 200})["event"], "delta")
        server.send_signal(signal.SIGINT)
        events = [json.loads(line) for line in stream]
        self.assertIn(events[-1]["event"], ("done", "error"))
        self.assertEqual(server.wait(30), 0)

    def test_a_models_file_that_is_cut_short_is_named_at_the_end(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(MODEL, os.path.join(folder, "copy"))
            weights = os.path.join(copy, "model.safetensors")
            with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
                server = subprocess.Popen([PAGODA, "serve", "--model", copy, "--listen", "127.0.0.1:0", "--weight-memory",
                                           "mapped"], stdout=subprocess.PIPE, stderr=log, text=True)
                port = int(server.stdout.readline().rsplit(":", 1)[1])
                os.truncate(weights, 4096)
                stream = self.connect(port)
                stream.write(json.dumps({"id": "a", "prompt": "Once", "max_tokens": 4}) + "\n")
                stream.flush()
                self.assertEqual(server.wait(30), -signal.SIGBUS)
                server.stdout.close()
                log.seek(0)
                self.assertIn(f"was truncated, so this process ends: {weights}\n", log.read())

    def test_an_idle_server_uses_no_cpu(self):
        server, port = self.start()
        self.assertEqual(self.ask(self.connect(port), {"op": "ping"})["event"], "pong")

        def ticks():
            with open(f"/proc/{server.pid}/stat", encoding="utf-8") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before = ticks()
        try:
            server.wait(2)
        except subprocess.TimeoutExpired:
            pass
        self.assertLessEqual(ticks() - before, 2)

    def test_keys_are_read_from_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("# keys\nopen sesame\n")
            keys.flush()
            _, port = self.start("--api-key-file", keys.name)
            stream = self.connect(port)
            self.assertEqual(self.ask(stream, {"op": "ping"})["error"]["code"], "unauthorized")
            self.assertEqual(self.ask(stream, {"op": "auth", "key": "open sesame"})["event"], "ok")
            self.assertEqual(self.ask(stream, {"op": "ping"})["event"], "pong")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
