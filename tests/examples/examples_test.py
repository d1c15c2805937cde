#!/usr/bin/env python3
"""Every example is run, and every file of configs/ starts a server: those for GPUs as far as there is one. Standard
library only.

usage: examples_test.py REPOSITORY BIN_DIR EXAMPLES_BIN_DIR MODEL_DIR [unittest arguments]
"""
import asyncio
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import unittest

REPOSITORY = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
sys.path[:0] = [str(REPOSITORY / "tests/clients"), str(REPOSITORY / "examples")]
import asyncio_client  # noqa: E402
from server import Server  # noqa: E402

PROMPT = "Once upon a time"
PATIENCE = 120 * float(os.environ.get("PAGODA_SLOWNESS", "1"))
binaries = examples = model = None


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE, **more)


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(str(binaries / "pagoda"), model, "--threads", "1", json_lines=True).__enter__()
        cls.port = str(cls.server.json_lines_port)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def expected(self, prompt, max_tokens):
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        return self.server.json("POST", "/v1/completions", body)["choices"][0]["text"]

    def test_the_client_in_bash(self):
        ended = run("bash", REPOSITORY / "examples/client.sh", "127.0.0.1", self.port, PROMPT, "30")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(ended.stdout, PROMPT + self.expected(PROMPT, 30) + "\n")

    def test_the_client_in_bash_writes_and_reads_any_text(self):
        prompt = 'She said: "A\\B"\n\tand häßlich'
        ended = run("bash", REPOSITORY / "examples/client.sh", "127.0.0.1", self.port, prompt, "5")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(ended.stdout, prompt + self.expected(prompt, 5) + "\n")

    def test_the_client_in_bash_tells_what_is_wrong(self):
        ended = run("bash", REPOSITORY / "examples/client.sh", "127.0.0.1", self.port, PROMPT, "-1")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("client.sh: max_tokens", ended.stderr)

    def test_the_client_in_python(self):
        ended = run(sys.executable, REPOSITORY / "examples/client.py", "--server", "127.0.0.1:" + self.port, "--temperature", "0",
                    "--max-tokens", "30", PROMPT)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(ended.stdout.strip(), (PROMPT + self.expected(PROMPT, 30)).strip())

    def test_the_client_on_asio(self):
        ended = run(examples / "example_asio_client", "127.0.0.1", self.port, PROMPT, "The dog")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(sorted(ended.stdout.splitlines()),
                         sorted((self.expected(PROMPT, 24) + "\n[1] " + self.expected("The dog", 24)).splitlines()))
        self.assertEqual(run(examples / "example_asio_client", "127.0.0.1", "1", PROMPT).returncode, 1)

    def test_the_client_on_asyncio(self):
        ended = run(sys.executable, REPOSITORY / "examples/asyncio_client.py", "--port", self.port, PROMPT, "The dog")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        for prompt in (PROMPT, "The dog"):
            self.assertIn(prompt + self.expected(prompt, 40), ended.stdout)

    def test_a_cancelled_task_cancels_its_request(self):
        async def watch():
            async with asyncio_client.AsyncClient("127.0.0.1", int(self.port)) as client:
                async def endless():
                    async for _ in client.stream(PROMPT, max_tokens=900, ignore_eos=True):
                        begun.set()
                begun = asyncio.Event()
                task = asyncio.create_task(endless())
                await asyncio.wait_for(begun.wait(), PATIENCE)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                with self.assertRaises(asyncio_client.PagodaError) as refused:
                    await client.complete(PROMPT, max_tokens=-1)
                self.assertEqual(refused.exception.code, "invalid_request")
        asyncio.run(watch())
        self.server.wait_until_idle(PATIENCE)


class LostServerTest(unittest.TestCase):
    def test_a_stream_that_begins_after_the_server_has_closed_is_told(self):
        async def watch():
            async def close_at_once(_, writer):
                writer.close()
            listener = await asyncio.start_server(close_at_once, "127.0.0.1", 0)
            port = listener.sockets[0].getsockname()[1]
            async with listener, asyncio_client.AsyncClient("127.0.0.1", port) as client:
                await asyncio.wait_for(client.reading, PATIENCE)
                with self.assertRaises(asyncio_client.PagodaError) as lost:
                    await asyncio.wait_for(client.complete(PROMPT), PATIENCE)
                self.assertEqual(lost.exception.code, "connection")
                self.assertEqual(client.events, {})
        asyncio.run(watch())


class EmbeddingTest(unittest.TestCase):
    def test_a_program_with_an_engine_in_it(self):
        ended = run(examples / "example_embed", model, PROMPT)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertTrue(ended.stdout.startswith(PROMPT))

    def test_a_program_with_the_engine_s_actors_in_it(self):
        ended = run(examples / "example_actors_client", model, PROMPT)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertTrue(ended.stdout.startswith(PROMPT))

    def test_a_service_with_actors_of_its_own(self):
        process = subprocess.Popen([examples / "example_summarizer", model, "0"], stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.fullmatch(r"summarizer on http://127.0.0.1:(\d+)\n", process.stdout.readline())[1])

            def ask(method, path, body=None):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                connection.request(method, path, body)
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                return answer.status, body
            long = " ".join(["The little dog ran to the big house and was happy."] * 80).encode()
            results = []
            threads = [threading.Thread(target=lambda text=text: results.append(ask("POST", "/summarize", text)))
                       for text in (PROMPT.encode(), long, long)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertEqual([status for status, _ in results], [200] * 3, results)
            self.assertTrue(all(json.loads(body)["summary"] for _, body in results))
            status, body = ask("POST", "/summarize", b"")
            self.assertEqual((status, json.loads(body)["error"]), (400, "there is no text"))
            self.assertEqual(ask("GET", "/summarize")[0], 405)
            self.assertEqual(ask("GET", "/other")[0], 404)
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.sendall(b"POST /summarize HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
                self.assertIn(b" 413 ", connection.recv(1000))
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            self.assertEqual(process.wait(PATIENCE), 0)


class ConfigsTest(unittest.TestCase):
    """A file of configs/ that no test here names fails the last one."""
    MODELS = ("models/several-models.json", "models/several-gpus.json")
    GPUS = ("one-gpu.json", "models/several-gpus.json")

    def start(self, name, *flags):
        """A server with a file's settings, which listens where the test says and takes little memory."""
        file = str(REPOSITORY / "configs" / name)
        which = ["--models", file] if name in self.MODELS else ["--model", model, "--config", file]
        ended = subprocess.Popen([binaries / "pagoda", "serve", *which, "--listen", "none", "--http", "127.0.0.1:0",
                                  *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, cwd=REPOSITORY)
        return ended

    def complete(self, name, *flags, model_name=None):
        process = self.start(name, *flags)
        try:
            line = process.stdout.readline()
            address = re.fullmatch(r"http on (.*):(\d+)\n", line)
            self.assertTrue(address, line or process.stderr.read())
            connection = http.client.HTTPConnection(address[1], int(address[2]), timeout=PATIENCE)
            body = {"prompt": PROMPT, "max_tokens": 3} | ({"model": model_name} if model_name else {})
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200, answer.read())
            connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE), 0, process.stderr.read())
            process.stdout.close()
            process.stderr.close()

    def test_those_for_cpus_serve(self):
        for name in ("laptop.json", "server.json", "batch.json", "cpu-server.json"):
            with self.subTest(name):
                self.complete(name, "--kv-cache-memory", "0.1", "--no-touch-memory")

    def test_several_models_serve(self):
        for name in ("default", "stories-int8"):
            with self.subTest(name):
                self.complete("models/several-models.json", "--kv-cache-memory", "0.1", model_name=name)

    def test_those_for_gpus_lack_nothing_but_the_gpus(self):
        for name in self.GPUS:
            with self.subTest(name):
                process = self.start(name)
                is_up = process.stdout.readline() != ""
                if is_up:  # here are GPUs
                    process.send_signal(signal.SIGTERM)
                words = process.stderr.read()
                code = process.wait(PATIENCE)
                process.stdout.close()
                process.stderr.close()
                if is_up:
                    self.assertEqual(code, 0, words)
                    continue
                self.assertNotEqual(code, 0)
                errors = [line for line in words.splitlines() if line.strip()]
                self.assertEqual(len(errors), 2 if name in self.MODELS else 1, words)
                for line in errors:
                    self.assertRegex(line, r"(?i)cuda|gpu", "of the GPU and of nothing else")

    def test_every_file_is_one_of_those(self):
        known = {"laptop.json", "server.json", "batch.json", "cpu-server.json", *self.MODELS, *self.GPUS}
        configs = REPOSITORY / "configs"
        found = {str(path.relative_to(configs)) for path in configs.rglob("*.json") if path.parent.name != "grafana"}
        self.assertEqual(found, known)

    def test_each_example_is_run_here(self):
        run_here = pathlib.Path(__file__).read_text()
        for path in (REPOSITORY / "examples").rglob("*"):
            if path.suffix in (".cpp", ".py", ".sh"):
                name = path.parent.name if path.name in ("main.cpp", "summarizer.cpp") else path.stem
                self.assertIn(name, run_here, path)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(f"usage: {sys.argv[0]} REPOSITORY BIN_DIR EXAMPLES_BIN_DIR MODEL_DIR [unittest arguments]")
    binaries, examples, model = (pathlib.Path(argument).resolve() for argument in sys.argv[2:5])
    model = str(model)
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
