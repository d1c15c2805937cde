#!/usr/bin/env python3
"""Tests of the pagoda command: exit codes, messages, outputs. Standard library only.

usage: command_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest

from pagoda_command import MODEL, PAGODA, run


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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
