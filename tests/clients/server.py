"""A pagoda server under test, and HTTP without any client library. Standard library only."""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CHATML = os.path.join(HERE, "chatml.jinja")


class Server:
    """`with Server(pagoda, model, *flags) as server`: server.url, server.host, server.port, server.model; with
    json_lines also server.json_lines_port. `log` is an open file for its log."""

    def __init__(self, pagoda, model, *flags, json_lines=False, log=None):
        self.command = [pagoda, "serve", "--model", model, "--http", "127.0.0.1:0", "--listen",
                        "127.0.0.1:0" if json_lines else "none", "--log-level", "info" if log else "warn", *flags]
        self.json_lines = json_lines
        self.flags = flags
        self.log = log
        if "--chat-template" not in flags and not has_chat_template(model):
            self.command += ["--chat-template", CHATML]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if self.json_lines and (listening := re.fullmatch(r"listening on .*:(\d+)\n", line)):
            self.json_lines_port = int(listening[1])
            line = self.process.stdout.readline()
        address = re.fullmatch(r"http on (.*):(\d+)\n", line)
        if not address:
            self.process.kill()
            raise RuntimeError(f"the server said {line!r} and ended with {self.process.wait()}")
        self.host, self.port = address[1], int(address[2])
        self.url = f"http://{self.host}:{self.port}"
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
        if code != 0:
            raise RuntimeError(f"the server ended with {code}")

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers, body as bytes). A body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            headers = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        """The JSON of an answer that is 200."""
        status, _, answer = self.request(method, path, body, headers)
        if status != 200:
            raise AssertionError(f"{method} {path}: {status} {answer[:500]!r}")
        return json.loads(answer)

    def has_route(self, method, path):
        """Whether there is such a route, whatever it makes of an empty body."""
        status, _, answer = self.request(method, path, {} if method == "POST" else None)
        return status != 405 and not (status == 404 and b"there is no" in answer)

    def stats(self):
        return self.json("GET", "/stats")

    def count(self, text, **fields):
        """How many tokens a prompt has."""
        return self.json("POST", "/tokenize", {"prompt": text, **fields})["count"]

    def count_chat(self, messages):
        return self.json("POST", "/tokenize", {"messages": messages})["count"]

    def wait_until_idle(self, seconds):
        """The stats as soon as nothing runs or waits and no step holds blocks any more; else an assertion."""
        deadline = time.monotonic() + seconds
        while True:
            stats = self.stats()
            held = stats["device_blocks_total"] - stats["device_blocks_free"] - stats["device_blocks_cached"]
            if stats["requests_running"] == stats["requests_waiting"] == stats["requests_swapped"] == held == 0:
                return stats
            assert time.monotonic() < deadline, f"still busy after {seconds} s: {stats}"
            time.sleep(0.002)


def slow_model(model, folder):
    """A copy of a model's tokenizer with a network of 134 million parameters that need no file (--load-format dummy):
    milliseconds a token, so that what it runs can be watched. Returns the flags that a server needs besides."""
    for name in os.listdir(model):
        if not name.endswith(".safetensors"):
            shutil.copy(os.path.join(model, name), folder)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config |= {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 16,
               "num_key_value_heads": 8, "head_dim": 64}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    return "--load-format", "dummy"


def has_chat_template(model):
    if model.endswith(".gguf"):
        return True  # those that the tests know have one
    if os.path.exists(os.path.join(model, "chat_template.jinja")):
        return True
    with open(os.path.join(model, "tokenizer_config.json")) as file:
        return bool(json.load(file).get("chat_template"))


def main(module, *flags, slow=False):
    """Runs the tests of a script whose arguments are PAGODA MODEL [unittest's] [-- flags of serve], with its server as
    module.server: of slow_model(MODEL) where `slow`."""
    import unittest
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments] [-- flags of serve]")
    pagoda, model, *arguments = sys.argv[1:]
    if "--" in arguments:
        at = arguments.index("--")
        flags += tuple(arguments[at + 1:])
        arguments = arguments[:at]
    with contextlib.ExitStack() as kept:
        if slow:
            folder = kept.enter_context(tempfile.TemporaryDirectory())
            flags += slow_model(model, folder)
            model = folder
        server = kept.enter_context(Server(pagoda, model, *flags))
        module.server = server
        module.model = server.json("GET", "/v1/models")["data"][0]["id"]
        ok = unittest.main(module=module, argv=[sys.argv[0], *arguments], exit=False).result.wasSuccessful()
    sys.exit(0 if ok else 1)
