#!/usr/bin/env python3
"""Runs the commands of README.md and docs/*.md and compares what they print with what is written there.

usage: commands_test.py REPOSITORY BIN_DIR [FILE.md ...]

Every fenced block marked ```console is run, the blocks of a file in one shell, with the pagoda of BIN_DIR on the PATH, in
a folder that looks like the repository's root, so that files which commands write do not end there. ```console skip-test FILE
is not run: FILE, of the repository, does what it says, or checks it as far as it can be. In a block

    $ COMMAND           is a command; it goes on in the next line behind a \\, and in lines that begin with "> ".
    $ COMMAND &         is a server: it is waited for until it has printed the lines below it, or that it listens.
    other lines         are what the command prints, standard error too. None: it may print anything.
    ...                 a line that stands for any number of lines; within a line … stands for anything.

A command must end with 0 unless `echo $?` follows it. Ports of 127.0.0.1 stand for free ones. A block marked ```python is a
program that must end with 0; it has the packages of tests/clients/requirements.txt.

A block that names build/models/NAME.gguf, or a port that such a block serves, is skipped where that model is not there
(scripts/fetch-model), one with curl where there is no curl, and a program where its packages cannot be had. Ends with 77
(skipped) when a block could not be run.
"""
import fcntl
import functools
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
import run_client  # noqa: E402
from ports import free_port  # noqa: E402

SKIPPED = 77
SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers
SECONDS = 300 * SLOWNESS  # for a command, and for a server to listen
SECONDS_OF_LINES = 30  # for a server that listens to print all of its lines
LISTEN_PORT = "7070"  # of pagoda serve unless it is told
PORT = re.compile(r"(?<=127\.0\.0\.1[:/])\d+")
MODEL = re.compile(r"build/models/([\w.-]+)\.gguf")
SKIP = re.compile(r"```(?:console|python) skip-test (\S+)")
FETCH = re.compile(r"scripts/fetch-model ([\w.-]+)")
LISTENS = re.compile(r"^(listening|http) on ", re.MULTILINE)


class Command:
    def __init__(self, text, line):
        self.text = text
        self.line = line
        self.expected = []

    @property
    def is_server(self):
        return self.text.endswith(" &")


class Block:
    def __init__(self, line, is_program=False):
        self.line = line
        self.is_program = is_program
        self.commands = []

    @property
    def text(self):
        return "\n".join(command.text for command in self.commands)


def blocks_of(text, root):
    """The blocks to run. Raises ValueError where one is not written as the head of this file says."""
    blocks, block, open_fence = [], None, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            block = None
            if not open_fence:
                block = begin_block(line, number, root)
            if block:
                blocks.append(block)
            open_fence = not open_fence
        elif block is not None and block.is_program:
            block.commands[0].text += line + "\n"
        elif block is not None:
            read_line(block, line, number)
    return blocks


def begin_block(fence, number, root):
    """None for one that is not run."""
    if "skip-test" in fence:
        skipped = SKIP.fullmatch(fence)
        if not skipped or not (root / skipped[1]).is_file():
            raise ValueError(f"line {number}: {fence} names no file that does what it says")
        return None
    if fence not in ("```console", "```python"):
        return None
    block = Block(number, is_program=fence == "```python")
    if block.is_program:
        block.commands.append(Command("", number))
    return block


def read_line(block, line, number):
    last = block.commands[-1] if block.commands else None
    if last and not last.expected and last.text.endswith("\\"):
        last.text += "\n" + line
    elif line.startswith("$ "):
        block.commands.append(Command(line[2:], number))
    elif last is None:
        raise ValueError(f"line {number}: a console block begins with a command")
    elif line.startswith("> ") and not last.expected:
        last.text += "\n" + line[2:]
    else:
        last.expected.append(line)


def pattern_of(expected):
    pieces = []
    for line in expected:
        if line.strip() == "...":
            pieces.append(r"(?:.*\n)*?")
        else:
            pieces.append(".*".join(re.escape(piece) for piece in line.rstrip().split("…")) + r"\n")
    return re.compile("".join(pieces))


def tidy(text):
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(line + "\n" for line in lines)


def matches(expected, output):
    return not expected or pattern_of(tidy("\n".join(expected)).splitlines()).fullmatch(tidy(output)) is not None


class Ports:
    """Free ports in the place of those that a file names."""

    def __init__(self, text):
        self.real = {}
        for port in sorted({LISTEN_PORT, *PORT.findall(text)}):
            self.real[port] = str(free_port())

    def hide(self, text):
        for shown, real in self.real.items():
            text = re.sub(rf"(127\.0\.0\.1[:/]){real}\b", rf"\g<1>{shown}", text)
        return text

    def put(self, text):
        return PORT.sub(lambda found: self.real[found.group()], text)


class Failed(Exception):
    pass


class Shell:
    """One bash for the commands of a file."""

    def __init__(self, root, folder, bin_dir, ports):
        self.folder = folder
        self.ports = ports
        self.num_servers = 0
        self.write_tools(bin_dir)
        here = folder / "root"
        here.mkdir()
        for entry in root.iterdir():
            (here / entry.name).symlink_to(entry)
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        self.bash = subprocess.Popen(["bash", "--norc", "--noprofile"], cwd=here, env=environment,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     start_new_session=True)

    def write_tools(self, bin_dir):
        """pagoda, whose servers leave ports and memory to others, and curl without its progress, as on a terminal."""
        tools = self.folder / "bin"
        tools.mkdir()
        listen = f"--listen 127.0.0.1:{self.ports.real[LISTEN_PORT]}"
        pagoda = (f'#!/bin/sh\n[ "$1" = serve ] || exec "{bin_dir}/pagoda" "$@"\nshift\n'
                  f'case " $* " in *" --listen "*) ;; *) set -- {listen} "$@" ;; esac\n'
                  f'exec "{bin_dir}/pagoda" serve --no-touch-memory "$@"\n')
        scripts = {"pagoda": pagoda}
        if shutil.which("curl"):
            scripts["curl"] = f'#!/bin/sh\nexec {shutil.which("curl")} -sS "$@"\n'
        for name, text in scripts.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)

    def run(self, text):
        """What the command prints, and its exit code."""
        script = self.folder / "command"
        script.write_text(self.ports.put(text) + "\n")
        mark = "--- the command has ended: "
        # The last exit code is there for `echo $?`.
        self.bash.stdin.write(f'(exit "${{last:-0}}"); . {script} </dev/null; last=$?; printf "\\n{mark}%d\\n" "$last"\n'
                              .encode())
        self.bash.stdin.flush()
        output, deadline = b"", time.monotonic() + SECONDS
        while True:
            found = re.search(rb"\n" + mark.encode() + rb"(\d+)\n", output)  # what the shell tells of its jobs may come behind it
            if found:
                return self.ports.hide(output[: found.start()].decode(errors="replace")), int(found.group(1))
            ready, _, _ = select.select([self.bash.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.bash.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise Failed(f"the command did not end within {SECONDS} s, or ended the shell:\n"
                             + output.decode(errors="replace"))
            output += data

    def run_program(self, text):
        (self.folder / "program.py").write_text(self.ports.put(text))
        return self.run(f"NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 {python_of_clients()} {self.folder}/program.py")

    def serve(self, command):
        self.num_servers += 1
        printed = self.folder / f"server-{self.num_servers}"
        printed.touch()
        self.run(f"{command.text[:-2]} >{printed} 2>&1 &")
        deadline = time.monotonic() + SECONDS
        listens = False
        while True:
            output = self.ports.hide(printed.read_text())
            if LISTENS.search(output) and not listens:
                listens, deadline = True, time.monotonic() + SECONDS_OF_LINES
            if listens and matches(command.expected, output):
                return
            if self.run("kill -0 $!")[1] != 0 or time.monotonic() > deadline:
                raise Failed("the server did not print what is written:\n" + output)
            time.sleep(0.05)

    def close(self):
        os.killpg(self.bash.pid, signal.SIGTERM)  # bash leads a group of its own; its servers are in it
        try:
            self.bash.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@functools.cache
def python_of_clients():
    """The python that has the packages of tests/clients; None where they cannot be had."""
    clients = HERE.parents[1] / "build" / "clients"
    clients.mkdir(parents=True, exist_ok=True)
    with open(clients / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return clients / "venv" / "bin" / "python" if run_client.install(str(clients / "venv")) else None


def reason_to_skip(block, root, lost_ports):
    text = block.text
    for model in MODEL.findall(text) + FETCH.findall(text):
        if not (root / "build/models" / f"{model}.gguf").exists():
            lost_ports.update(PORT.findall(text))
            return f"build/models/{model}.gguf is not there: scripts/fetch-model {model}"
    lost = sorted(lost_ports.intersection(PORT.findall(text)))
    if lost:
        return f"nobody serves port {lost[0]}"
    if re.search(r"\bcurl\b", text) and shutil.which("curl") is None:
        return "curl is not installed"
    if block.is_program and python_of_clients() is None:
        return "the packages of tests/clients/requirements.txt cannot be installed from PyPI"
    return None


def run_block(shell, block):
    for command, following in zip(block.commands, [*block.commands[1:], None]):
        try:
            if command.is_server:
                shell.serve(command)
                continue
            output, code = (shell.run_program if block.is_program else shell.run)(command.text)
            if code != 0 and (following is None or following.text != "echo $?"):
                raise Failed(f"exit code {code}:\n{output}")
            if not matches(command.expected, output):
                raise Failed("it prints something else:\n" + output)
        except Failed as failed:
            raise Failed(f"line {command.line}: $ {command.text}\n{failed}") from None


def test_file(root, bin_dir, path):
    """The blocks that were not run, and why."""
    text = path.read_text()
    blocks, lost_ports, num_run, skipped = blocks_of(text, root), set(), 0, []
    if not blocks:
        return []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(root, pathlib.Path(folder), bin_dir, Ports(text))
        try:
            for block in blocks:
                why = reason_to_skip(block, root, lost_ports)
                if why:
                    skipped.append(f"{path.name}:{block.line}: skipped: {why}")
                    continue
                run_block(shell, block)
                num_run += len(block.commands)
        finally:
            shell.close()
    print(f"{path.name}: {num_run} commands, {time.monotonic() - begun:.1f} s")
    return skipped


def check_itself():
    block, program = blocks_of("```console\n$ a \\\n  b\nout\n$ c <<E\n> d\n> E\n```\n```console skip-test docs/commands_test.py\n"
                               "$ no\n```\n```python\nif a:\n    b()\n```\n", HERE.parent)
    assert program.is_program and program.text == "if a:\n    b()\n"
    assert [command.text for command in block.commands] == ["a \\\n  b", "c <<E\nd\nE"]
    assert block.commands[0].expected == ["out"]
    assert matches(["a", "...", "z"], "a\nb\nc\nz\n") and matches(["a", "...", "z"], "a\nz")
    assert matches(['{"id":"…"}'], '{"id":"x"}\n') and not matches(["a.c"], "abc\n") and not matches(["a"], "a\nb\n")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    check_itself()
    root = pathlib.Path(sys.argv[1]).resolve()
    bin_dir = pathlib.Path(sys.argv[2]).resolve()
    files = [pathlib.Path(name) for name in sys.argv[3:]] or [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    skipped, failed = [], False
    for path in files:
        try:
            skipped += test_file(root, bin_dir, path)
        except (Failed, ValueError) as error:
            print(f"{path.name}: {error}")
            failed = True
    for line in skipped:
        print(line)
    if failed:
        sys.exit(1)
    sys.exit(SKIPPED if skipped else 0)


if __name__ == "__main__":
    main()
