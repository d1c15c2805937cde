#!/usr/bin/env python3
"""Tests of vLLM's and llama-server's command lines given to `pagoda serve`. Standard library only.

usage: foreign_flags_test.py PAGODA MODEL_DIR SOURCE_DIR [unittest arguments]
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL, SOURCE = sys.argv[1:4]
PAGE = os.path.join(SOURCE, "docs", "from-vllm.md")


def tables():
    """The rows of each table of the page, by its section's heading."""
    found, heading = {}, ""
    with open(PAGE, encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                heading = line[3:].strip()
            elif line.startswith("| `"):
                found.setdefault(heading, []).append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


class Serve:
    """`with Serve(*flags) as server`: server.get(path, headers) -> (status, JSON)."""

    def __init__(self, *flags, errors=False):
        """`errors`: their lines are checked, and flags of the log are the caller's."""
        command = [PAGODA, "serve", *flags, "--no-touch-memory", "--listen", "none"]
        if not errors:
            command += ["--log-level", "warn"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        line = self.process.stdout.readline()
        address = re.fullmatch(r"http on (.*):(\d+)\n", line)
        assert address, line + self.process.communicate(timeout=60)[1]
        self.host, self.port = address[1], int(address[2])
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.end()

    def end(self):
        """Ends the server. Returns what it has written to standard error."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[1]

    def get(self, path, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class ForeignFlags(unittest.TestCase):
    def bad_usage(self, *args):
        done = subprocess.run([PAGODA, "serve", *args], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (args, done.stderr))
        return done.stderr

    def test_each_flag_of_the_page_is_refused_in_the_line_that_stands_there(self):
        rows = tables()
        count = 0
        for section in ("Flags of vLLM that are refused", "Flags of llama-server that are refused"):
            for names, advice in rows[section]:
                for name in re.findall(r"`([^`]+)`", names):
                    value = ["x"] if name in ("--tokenizer", "--hf-config-path") else []
                    self.assertIn(f"pagoda: {name} {advice}\n", self.bad_usage(MODEL, name, *value))
                    count += 1
        self.assertGreaterEqual(count, 80)

    def test_all_that_are_refused_are_told_at_once(self):
        err = self.bad_usage(MODEL, "--port=0", "--fully-sharded-loras", "--tokenizer=x", "--mmproj", "f")
        self.assertEqual(err.count("\n"), 3, err)
        err = self.bad_usage(MODEL, "--fully-sharded-loras", "--no-such-flag", "--device", "auto")
        self.assertEqual(err.count("\n"), 3, err)
        for word in ("--fully-sharded-loras has no counterpart", "--device auto has no counterpart", "unknown flag --no-such-flag"):
            self.assertIn(word, err)

    def test_command_lines_that_people_have_serve(self):
        """Each with this model, a free port, this machine's address and lengths that the model has."""
        with open(os.path.join(SOURCE, "tests", "data", "apps", "command_lines.json"), encoding="utf-8") as file:
            lines = json.load(file)
        served = {"vllm": 0, "llama-server": 0}
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys")
            with open(keys, "w", encoding="utf-8") as file:
                file.write("k\n")
            template = os.path.join(folder, "template")
            with open(template, "w", encoding="utf-8") as file:
                file.write("{{ messages[0].content }}")
            for entry in lines:
                given = entry["line"]
                if entry["refused"]:
                    self.assertTrue(all(flag in self.bad_usage(*given) for flag in entry["refused"]), given)
                    continue
                if "--lora-modules" in given:
                    continue  # adapters_test.py has adapters
                if "--ssl-key-file" in given:
                    continue  # serve_options_test.cpp and tls_test.cpp have certificates
                flags, i = [], 0
                if not any(flag in given for flag in ("-m", "--model")):
                    flags, i = [MODEL], 1
                while i < len(given):
                    flag, value = given[i], given[i + 1] if i + 1 < len(given) else ""
                    for names, other in ((("-m", "--model", "-md"), MODEL), (("--tokenizer",), MODEL), (("--port",), "0"), (("--host",), "127.0.0.1"),
                                         (("--max-model-len", "-c", "--ctx-size"), "64" if value != "0" else "0"),
                                         (("--chat-template", "--chat-template-file"), template), (("--api-key-file",), keys),
                                         (("--tensor-parallel-size", "-tp"), str(min(2, len(os.sched_getaffinity(0))))),
                                         (("--swap-space",), "0.01"), (("-np",), "2"), (("--threads", "-t"), "1")):
                        if flag in names:
                            value = other
                            break
                    else:
                        value = None
                    flags += [flag] if value is None else [flag, value]
                    i += 1 if value is None else 2
                if "--port" not in flags:
                    flags += ["--port", "0"]
                key = next((flags[i + 1] for i, flag in enumerate(flags) if flag == "--api-key"), "k")
                with self.subTest(line=entry["line"]), Serve(*flags, errors=True) as server:
                    self.assertEqual(server.get("/v1/models", {"Authorization": "Bearer " + key})[0], 200)
                    noted = re.findall(r"^pagoda: (-\S+).* has no effect", server.end(), re.M)
                    parsers = [flag for flag in ("--reasoning-parser", "--tool-call-parser") if flag in flags]
                    self.assertEqual(sorted(noted), sorted(entry["noted"] + parsers))
                    served[entry["server"]] += 1
        self.assertGreaterEqual(min(served.values()), 19, served)

    def test_the_name_of_a_parser_is_compared_with_the_dialect(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
                       "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}"
                       "\n</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
                       "{% if tools %}{{ tools | tojson }}{% endif %}"
                       "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
            file.flush()
            flags = [MODEL, "--port", "0", "--chat-template", file.name]
            for name, said in (("hermes", "already"), ("mistral", "is the name of another dialect"), ("mine", "is an unknown name")):
                with Serve(*flags, "--enable-auto-tool-choice", "--tool-call-parser", name, errors=True) as server:
                    err = server.end()
                self.assertRegex(err, f"(?m)^pagoda: --tool-call-parser {name} has no effect.*{said}")
            with Serve(*flags, "--reasoning-parser", "qwen3", errors=True) as server:
                self.assertIn("--reasoning-parser qwen3 has no effect: the chat template shows no thoughts", server.end())

    def test_the_nearest_known_name_is_told(self):
        for flag, known in (("--max-modle-len", "--max-model-len"), ("--max_model_length", "--max-model-len"),
                            ("--gpu-memory-utilisation=0.5", "--gpu-memory-utilization"), ("--no-enable-prefix-cachin", "--no-enable-prefix-caching"),
                            ("--enable-auto-tool-choic", "--enable-auto-tool-choice"), ("--ctx-sise", "--ctx-size")):
            name = flag.split("=")[0].replace("_", "-")
            self.assertIn(f"pagoda: unknown flag {name}; did you mean {known}?\n", self.bad_usage(MODEL, flag))
        self.assertEqual(self.bad_usage(MODEL, "--quite-another"), "pagoda: unknown flag --quite-another\n")

    def test_a_command_line_of_vllm_serves(self):
        flags = ["--host", "127.0.0.1", "--port", "0", "--api-key", "secret", "--max_model_len", "1K", "--dtype", "half",
                 "--served-model-name", "stories", "--tensor-parallel-size", "1", "-pp=1", "--seed", "7",
                 "--max-num-seqs", "4", "--num-gpu-blocks-override", "64", "--no-enable-prefix-caching",
                 "--no-async-scheduling", "--block-size", "16", "--gpu-memory-utilization", "0.9",
                 "--enable-chunked-prefill", "--generation-config", "vllm", "--allowed-origins", '["*"]']
        with Serve(MODEL, *flags) as server:
            self.assertEqual(server.get("/v1/models")[0], 401)
            key = {"Authorization": "Bearer secret", "Origin": "http://a.example"}
            status, models = server.get("/v1/models", key)
            self.assertEqual(status, 200)
            self.assertEqual(models["data"][0]["id"], "stories")
            self.assertEqual(models["data"][0]["max_model_len"], 1024)

    def test_aliases_reach_the_engine(self):
        base = [MODEL, "--port", "0"]
        with Serve(*base, "-tp", "2", "--threads", "2", "--num-gpu-blocks-override", "77", "--dtype", "float") as server:
            status, told = server.get("/stats")
            self.assertEqual(status, 200)
            self.assertEqual(told["device_blocks_total"], 77)
        self.assertIn("-dcp 2 has no counterpart", self.bad_usage(*base, "-dcp", "2"))
        self.assertIn("tls_key", self.bad_usage(*base, "--ssl-certfile", "/no/such/file"))
        self.assertIn("--port cannot be given beside --http", self.bad_usage(*base, "--http", "127.0.0.1:0"))

    def test_the_model_is_an_argument(self):
        self.assertIn("given twice", self.bad_usage(MODEL, "--model", MODEL))
        self.assertIn("given twice", self.bad_usage("--model", MODEL, "--served-model-name", "a", "b"))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"model": "/no/such/folder", "http": "127.0.0.1:0"}, file)
            file.flush()
            with Serve(MODEL, "--config", file.name) as server:
                self.assertEqual(server.get("/health")[0], 200)

    def test_keys_come_from_the_command_line_and_from_a_file(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("third\n")
            file.flush()
            with Serve(MODEL, "--port", "0", "--api-key", "first,second", "--api-key-file", file.name) as server:
                for key, status in (("first", 200), ("second", 200), ("third", 200), ("fourth", 401)):
                    self.assertEqual(server.get("/v1/models", {"x-api-key": key})[0], status, key)
        self.assertIn("api_key", self.bad_usage(MODEL, "--api-key", "a,,b"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
