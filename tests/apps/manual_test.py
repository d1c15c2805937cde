#!/usr/bin/env python3
"""Tests of what the command says of itself to shells and to man: completions in real shells, and manual pages.
Standard library only. What needs a shell or man that is not there is skipped; 77 where that is all that was asked for.

usage: manual_test.py PAGODA [unittest arguments]
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from skipping_main import skipping_main  # noqa: E402

PAGODA = sys.argv[1]
SECONDS = 60


def run(*args):
    done = subprocess.run([PAGODA, *args], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def long_flags(*command):
    """The flags of --help, with both forms of a switch."""
    flags = set()
    for name in re.findall(r"^\s+(?:-\w,\s*)?(--\S+)", run(*command, "--help"), re.M):
        name = name.split("=")[0].split(",")[0]
        flags |= {"--" + name[7:], "--no-" + name[7:]} if name.startswith("--[no-]") else {name}
    return flags


def commands_of(*command):
    help_text = run(*command, "--help")
    _, _, below = help_text.partition("Subcommands:")
    return re.findall(r"^  (\S+)", below, re.M)


def all_commands():
    for name in commands_of():
        inner = commands_of(name)
        yield from ((name, child) for child in inner)
        yield (name,)


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, command, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)

    def read_until(self, pattern):
        text, deadline = "", time.monotonic() + SECONDS
        while not re.search(pattern, text):
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{pattern!r} did not come: {text[-2000:]!r}")
            text += os.read(self.fd, 65536).decode(errors="replace")
        return text

    def send(self, text):
        os.write(self.fd, text.encode())

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@unittest.skipUnless(shutil.which("bash"), "bash is not installed")
class Bash(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.script = os.path.join(self.folder.name, "pagoda")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(run("completion", "bash"))

    def complete(self, *words):
        """What bash's function offers for the last of these words."""
        program = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pagoda; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", program, "bash", self.script, "pagoda", *words],
                              capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout.split()

    def test_offers_the_commands(self):
        self.assertEqual(set(self.complete("")), set(commands_of()))
        self.assertEqual(self.complete("ser"), ["serve"])
        self.assertEqual(set(self.complete("bench", "")), set(commands_of("bench")))

    def test_offers_every_flag_of_every_command(self):
        for command in all_commands():
            offered = {name for name in self.complete(*command, "-") if name.startswith("--")}
            self.assertEqual(offered, long_flags(*command), command)

    def test_offers_the_words_that_a_flag_takes(self):
        self.assertEqual(self.complete("serve", "--preemption-mode", ""), ["recompute", "swap", "auto"])
        self.assertEqual(self.complete("serve", "--preemption-mode", "s"), ["swap"])
        self.assertEqual(self.complete("serve", "--preemption-mode", "=", "sw"), ["swap"])
        self.assertEqual(self.complete("serve", "--preemption-mode", "="), ["recompute", "swap", "auto"])
        self.assertEqual(self.complete("serve", "--model", "-"), [], "a file is left to the shell")

    def test_completes_on_a_terminal(self):
        shell = Terminal(["bash", "--norc", "--noprofile"], {**os.environ, "PS1": "ready$ ", "TERM": "dumb"})
        self.addCleanup(shell.close)
        shell.read_until(r"ready\$ ")
        shell.send(f"cd {self.folder.name}; touch model-file; source ./pagoda; echo sour''ced\n")
        shell.read_until(r"sourced\r?\n")
        shell.send("pagoda serve --preempt\t")
        shell.read_until(r"--preemption-mode ")
        shell.send("rec\t")
        shell.read_until(r"recompute ")
        shell.send("--model mod\t")
        shell.read_until(r"model-file")


@unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
class Zsh(unittest.TestCase):
    def test_completes_on_a_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "_pagoda"), "w", encoding="utf-8") as file:
                file.write(run("completion", "zsh"))
            subprocess.run(["zsh", "-n", os.path.join(folder, "_pagoda")], check=True, timeout=SECONDS)
            environment = {**os.environ, "PS1": "ready$ ", "TERM": "dumb", "HOME": folder, "ZDOTDIR": folder}
            shell = Terminal(["zsh", "-f", "-i"], environment)
            self.addCleanup(shell.close)
            shell.read_until(r"ready\$ ")
            shell.send(f"unsetopt zle_bracketed_paste; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; "
                       "echo set''up\n")
            shell.read_until(r"setup\r?\n")
            # A completed line is run as the arguments of echo, whose output is what it has become.
            for typed, become in (("tok\t", "tokenize"), ("serve --scheduling-policy pri\t", "serve --scheduling-policy priority"),
                                  ("serve --preemption-m\trec\t", "serve --preemption-mode=recompute"),
                                  ("bench lat\t", "bench latency"), ("doctor --outp\tj\t", "doctor --output=json")):
                shell.send("pagoda " + typed + "\x01echo told: \x05\n")
                told = shell.read_until(r"\ntold: [^\n]*\n")
                self.assertEqual(re.findall(r"\ntold: pagoda ([^\r\n]*)", told)[-1].strip(), become)


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        run("manual", "--out", self.folder.name)


class ManualPages(Pages):
    def test_there_is_one_for_every_command(self):
        expected = {"pagoda.1"} | {"-".join(("pagoda", *command)) + ".1" for command in all_commands()}
        self.assertEqual(set(os.listdir(self.folder.name)), expected)

    def test_they_tell_every_flag(self):
        for command in all_commands():
            page = run("manual", *command).replace("\\-", "-").replace("\\fR", "")
            for flag in long_flags(*command):
                switch = "--[no-]" + (flag[5:] if flag.startswith("--no-") else flag[2:])
                self.assertTrue(flag in page or switch in page, (command, flag))

    def test_an_unknown_command_is_refused(self):
        done = subprocess.run([PAGODA, "manual", "foo"], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual((done.returncode, done.stderr), (2, "pagoda: there is no command pagoda foo\n"))


@unittest.skipUnless(shutil.which("man") and shutil.which("groff"), "man is not installed")
class Man(Pages):
    def test_shows_them_without_a_warning(self):
        for name in sorted(os.listdir(self.folder.name)):
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z",
                                   os.path.join(self.folder.name, name)], capture_output=True, text=True,
                                  timeout=SECONDS, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)


if __name__ == "__main__":
    skipping_main("__main__", *sys.argv[2:])
