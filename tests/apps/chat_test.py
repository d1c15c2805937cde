#!/usr/bin/env python3
"""Tests of `pagoda chat` and `pagoda generate --chat`: in pipes and on a terminal. Standard library only.

usage: chat_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

PAGODA, MODEL = sys.argv[1:3]
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
GREEDY = ["--temperature=0", "--max-tokens=8"]


def setUpModule():
    global FOLDER, BASE
    FOLDER = tempfile.TemporaryDirectory()
    path = os.path.join(FOLDER.name, "template.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    BASE = ["--model", MODEL, "--chat-template", path]


def tearDownModule():
    FOLDER.cleanup()


def run(*args, stdin=""):
    done = subprocess.run([PAGODA, *args], input=stdin, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def continued(prompt):
    """What the model makes of a rendered prompt."""
    code, out, err = run("generate", "--model", MODEL, *GREEDY, "--no-add-special-tokens", "--prompt", prompt)
    assert code == 0, err
    return out.rstrip("\n")


class Scripts(unittest.TestCase):
    def test_one_prompt_has_one_answer(self):
        code, out, err = run("chat", *BASE, *GREEDY, "--system", "Be kind.", "--prompt", "Hello")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.rstrip("\n"), continued("<system>Be kind.\n<user>Hello\n<assistant>"))

    def test_a_prompt_may_come_from_standard_input(self):
        _, expected, _ = run("chat", *BASE, *GREEDY, "--prompt", "two\nlines")
        code, out, _ = run("chat", *BASE, *GREEDY, "--prompt", "-", stdin="two\nlines\n")
        self.assertEqual((code, out), (0, expected))

    def test_turns_of_a_pipe_build_on_each_other(self):
        code, out, err = run("chat", *BASE, *GREEDY, stdin="Hello\nAnd then?\n")
        self.assertEqual((code, err), (0, ""))
        first = continued("<user>Hello\n<assistant>")
        second = continued(f"<user>Hello\n<assistant>{first}\n<user>And then?\n<assistant>")
        self.assertEqual(out, f"{first}\n{second}\n")

    def test_reset_forgets_and_save_writes_what_was_said(self):
        path = os.path.join(FOLDER.name, "saved.json")
        code, out, err = run("chat", *BASE, *GREEDY, stdin=f"Hello\n/reset\n/system Be brief.\nHello\n/save {path}\n/stats\n")
        self.assertEqual((code, err), (0, ""))
        with open(path, encoding="utf-8") as file:
            messages = json.load(file)["messages"]
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
        self.assertEqual(messages[2]["content"], continued("<system>Be brief.\n<user>Hello\n<assistant>"))
        self.assertRegex(out, r"last answer: \d+ tokens of prompt")

    def test_a_block_is_one_message(self):
        code, out, _ = run("chat", *BASE, *GREEDY, stdin='"""one\ntwo\n"""\n')
        self.assertEqual(code, 0)
        self.assertEqual(out.rstrip("\n"), continued("<user>one\ntwo\n<assistant>"))

    def test_generate_puts_prompts_into_the_template(self):
        code, out, err = run("generate", *BASE, *GREEDY, "--chat", "--output=json", "--prompts=-",
                             stdin='Hello\n{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}\n')
        self.assertEqual((code, err), (0, ""))
        texts = [json.loads(line)["outputs"][0]["text"] for line in out.splitlines()]
        self.assertEqual(texts, [continued("<user>Hello\n<assistant>")] * 2)

    def test_what_cannot_be_is_said(self):
        bare = os.path.join(FOLDER.name, "bare")  # a model without a chat template
        os.mkdir(bare)
        for name in os.listdir(MODEL):
            if name != "tokenizer_config.json":
                os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(bare, name))
        for args, word in (
            (["chat", "--model", bare], "--chat-template"),
            (["generate", "--chat", "--model", bare, "--prompt", "x"], "--chat-template"),
            (["generate", "--system", "x", "--model", MODEL, "--prompt", "x"], "--chat"),
            (["chat", "--model", MODEL, "--chat-template", "/no/such/file"], "/no/such/file"),
        ):
            code, out, err = run(*args)
            self.assertIn(code, (1, 2), err)
            self.assertEqual(out, "")
            self.assertIn(word, err)

    def test_a_broken_template_names_its_line(self):
        path = os.path.join(FOLDER.name, "broken.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{% if true %}\n{{ oops")
        _, _, err = run("chat", "--model", MODEL, "--chat-template", path, "--prompt", "x")
        self.assertIn("broken.jinja", err)
        self.assertIn("line 2", err)


class Terminal(unittest.TestCase):
    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(PAGODA, [PAGODA, "chat", *BASE, "--temperature=0", "--ignore-eos"])
        self.seen = ""

    def tearDown(self):
        os.close(self.terminal)

    def read_until(self, text, timeout=60):
        deadline = time.monotonic() + timeout
        while text not in self.seen:
            self.assertGreater(deadline, time.monotonic(), f"no {text!r} in {self.seen!r}")
            if select.select([self.terminal], [], [], 0.2)[0]:
                self.seen += os.read(self.terminal, 65536).decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.terminal, text.encode())

    def test_ctrl_c_ends_the_answer_and_not_the_chat(self):
        self.read_until(">>> ")
        self.type("Hello\n")
        time.sleep(0.3)
        self.type("\x03")
        self.read_until(">>> ")
        self.type("\x03")  # nothing runs: only the line is dropped
        self.read_until(">>> ")
        self.type("/stats\n")
        self.read_until("last answer:")
        self.read_until(">>> ")
        self.type("/exit\n")
        _, status = os.waitpid(self.pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main()
