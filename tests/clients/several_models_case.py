"""What the tests of several models share: a server with a file of them, and models that are slow, of another architecture,
or load for as long as a test likes. Standard library only.
"""
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
import unittest

from server import Server, slow_model

PROMPT = "Once upon a time"
SHORT = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
PATIENCE = 120 * float(os.environ.get("PAGODA_SLOWNESS", "1"))
pagoda = model = models_dir = None


class PoolServer(Server):
    def __init__(self, file, *flags, json_lines=False):
        super().__init__(pagoda, model, *flags, json_lines=json_lines)
        at = self.command.index("--model")
        self.command[at:at + 2] = ["--models", file]

    def complete(self, name, **fields):
        return self.json("POST", "/v1/completions", {**SHORT, "model": name, **fields})

    def states(self):
        return {entry["id"]: entry["state"] for entry in self.json("GET", "/v1/models")["data"]}

    def facts(self, name):
        """What /stats tells of a model."""
        return next(each for each in self.stats()["models"] if each["model"] == name)


def eventually(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.01)


class Several(unittest.TestCase):
    def setUp(self):
        self.kept = contextlib.ExitStack()
        self.addCleanup(self.kept.close)
        self.folder = self.kept.enter_context(tempfile.TemporaryDirectory())

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, models):
        path = self.path("models.json")
        with open(path, "w") as file:
            json.dump(models, file)
        return path

    def start(self, models, *flags, **more):
        small = {"num_device_blocks": 64}
        models = {name: {**small, **entry} for name, entry in models.items()}
        return self.kept.enter_context(PoolServer(self.file(models), "--threads", "1", *flags, **more))

    def slow(self):
        folder = self.path("slow")
        os.mkdir(folder)
        slow_model(model, folder)
        return {"model": folder, "load_format": "dummy"}

    def other(self, which="qwen2-gqa-f32"):
        """A model of another architecture, with random weights and the demo model's tokenizer."""
        folder = self.path(which)
        os.mkdir(folder)
        slow_model(model, folder)
        with open(os.path.join(model, "config.json")) as file:
            vocab_size = json.load(file)["vocab_size"]
        with open(os.path.join(models_dir, which, "config.json")) as file:
            config = {**json.load(file), "vocab_size": vocab_size}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        return {"model": folder, "load_format": "dummy"}

    def gated(self, name="gate"):
        """An entry whose load ends when open_gate(NAME) is called."""
        os.mkfifo(self.path(name))
        return {"model": model, "trace": self.path(name)}

    def open_gate(self, name="gate"):
        """Reads the trace from now on, or it would block the engine."""
        def read():
            with open(self.path(name), "rb") as pipe:
                while pipe.read(1 << 16):
                    pass
        threading.Thread(target=read, daemon=True).start()

    def in_background(self, call):
        result = {}

        def run():
            try:
                result["value"] = call()
            except Exception as error:  # for the test's thread
                result["error"] = error
        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def join():
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "a request has no answer")
            if "error" in result:
                raise result["error"]
            return result["value"]
        return join


def read_arguments():
    """The first of those of the program that was started, which its tests need: PAGODA and MODEL_DIR."""
    global pagoda, model, models_dir
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR MODELS_DIR [unittest arguments]")
    pagoda, model, models_dir = sys.argv[1:4]
    return pagoda, model
