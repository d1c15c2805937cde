#!/usr/bin/env python3
"""Talks to `pagoda serve` over its JSON-lines protocol. Python 3.8 or newer, standard library only.

On the command line it streams the answer to each prompt:

    python examples/client.py "Once upon a time" --max-tokens 200 --temperature 0.8
    python examples/client.py --prompts prompts.txt --max-tokens 64       one prompt per line, all at once

As a module:

    with PagodaClient("127.0.0.1", 7070) as client:
        for piece in client.stream("Once upon a time", max_tokens=200):
            print(piece, end="", flush=True)
        request = client.submit("The fox", max_tokens=50, n=2, stream=False)
        done = request.result()                       # the server's `done` event
        print([output["text"] for output in done["outputs"]])

Any number of requests may be in flight on one client, from any number of threads: one thread reads the connection and
hands each event to its request.
"""

import argparse
import itertools
import json
import queue
import socket
import sys
import threading
import time

DEFAULT_ADDRESS = "127.0.0.1:7070"
NOT_THE_LAST = ("delta", "tool_call")  # of a request's events
MAX_LINE_BYTES = 4 * 1024 * 1024
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class PagodaError(Exception):
    """An `error` event of the server, or a lost connection (code "connection")."""

    def __init__(self, code, message, param=None, retry_after_ms=None):
        super().__init__(f"{code}: {message}" + (f" (field {param})" if param else ""))
        self.code, self.message, self.param, self.retry_after_ms = code, message, param, retry_after_ms

    @classmethod
    def of_event(cls, event):
        error = event.get("error", {})
        return cls(error.get("code", "internal"), error.get("message", "no message"), error.get("param"),
                   error.get("retry_after_ms"))


class Request:
    """One request in flight. Read it with events(), text() or result(), from one thread."""

    def __init__(self, client, request_id):
        self.client, self.id = client, request_id
        self._events = queue.Queue()
        self._terminal = None

    def events(self):
        """Each event in order (delta and tool_call..., done); raises PagodaError for an error."""
        while self._terminal is None:
            event = self._events.get()
            if isinstance(event, PagodaError):
                self._terminal = event
                break
            if event.get("event") == "error":
                self._terminal = PagodaError.of_event(event)
                break
            if event.get("event") not in NOT_THE_LAST:
                self._terminal = event
            yield event
        if isinstance(self._terminal, PagodaError):
            raise self._terminal

    def text(self, index=0):
        """The pieces of text of one sequence, as they arrive."""
        for event in self.events():
            if event["event"] == "delta" and event["index"] == index:
                yield event["text"]

    def result(self):
        """Waits for the end; the `done` event, or what the operation answers."""
        for _ in self.events():
            pass
        return self._terminal

    def cancel(self):
        """Asks the server to stop: the request ends with finish_reason "abort". Harmless when it has ended."""
        self.client._send({"op": "cancel", "id": self.id})


class PagodaClient:
    """A connection. Methods may be called from any thread; use it in a `with`, or call close()."""

    def __init__(self, host="127.0.0.1", port=7070, api_key=None, connect_timeout_s=10.0):
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s)
        except OSError as failure:
            raise PagodaError("connection", f"cannot connect to {host}:{port}: {failure}") from failure
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")
        self._live, self._lock, self._send_lock = {}, threading.Lock(), threading.Lock()
        self._numbers = itertools.count(1)
        self._complaint = self._lost = None
        self._reader = threading.Thread(target=self._read, name="pagoda-client", daemon=True)
        self._reader.start()
        if api_key is not None:
            try:
                self.call("auth", key=api_key)
            except PagodaError:
                self.close()
                raise

    # --- requests ---------------------------------------------------------------------------------------------------

    def submit(self, prompt, **fields):
        """Sends a generate request and returns at once. `prompt` is text, a list of messages or one of token ids;
        `fields` are the protocol's (max_tokens, temperature, seed, stop, n, logprobs, stream, tools, ...)."""
        is_chat = not isinstance(prompt, str) and any(isinstance(part, dict) for part in prompt)
        key = "prompt" if isinstance(prompt, str) else "messages" if is_chat else "prompt_token_ids"
        return self._start({"op": "generate", key: prompt, **fields})

    def generate(self, prompt, **fields):
        """The `done` event of one request."""
        return self.submit(prompt, stream=False, **fields).result()

    def stream(self, prompt, **fields):
        """The text of one request, piece by piece. Leaving the loop early cancels the request."""
        request = self.submit(prompt, stream=True, **fields)
        try:
            yield from request.text()
        finally:
            if request._terminal is None and self._lost is None:
                request.cancel()

    def call(self, op, **fields):
        """The answer to any other operation."""
        return self._start({"op": op, **fields}).result()

    def tokenize(self, text, **fields):
        return self.call("tokenize", text=text, **fields)["token_ids"]

    def detokenize(self, token_ids, **fields):
        return self.call("detokenize", token_ids=token_ids, **fields)["text"]

    def model(self):
        return self.call("model")

    def stats(self):
        return self.call("stats")

    def ping(self):
        return self.call("ping")

    # --- the connection ---------------------------------------------------------------------------------------------

    def close(self):
        """Ends the connection; the server drops what is still in flight."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed by the server
        self._reader.join()
        self._lines.close()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _start(self, message):
        request_id = message.get("id") or f"r{next(self._numbers)}"
        request = Request(self, request_id)
        line = self._line({**message, "id": request_id})
        with self._lock:
            if self._lost is not None:
                raise self._lost
            if request_id in self._live:
                raise PagodaError("duplicate_id", f"there is a live request with the id {request_id!r}", "id")
            self._live[request_id] = request
        try:
            self._send_line(line)
        except PagodaError:
            with self._lock:
                self._live.pop(request_id, None)
            raise
        return request

    @staticmethod
    def _line(message):
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise PagodaError("line_too_long", f"the request has {len(line)} bytes; a line holds {MAX_LINE_BYTES}")
        return line

    def _send(self, message):
        self._send_line(self._line(message))

    def _send_line(self, line):
        try:
            with self._send_lock:
                self._socket.sendall(line)
        except OSError as failure:
            raise PagodaError("connection", f"the connection is lost: {failure}") from failure

    def _read(self):
        reason = "the server closed the connection"
        try:
            for line in self._lines:
                self._dispatch(json.loads(line))
        except (OSError, ValueError) as failure:
            reason = f"the connection is lost: {failure}"
        with self._lock:
            self._lost = self._complaint or PagodaError("connection", reason)
            left, self._live = list(self._live.values()), {}
        for request in left:
            request._events.put(self._lost)

    def _dispatch(self, event):
        if event.get("event") == "error" and event.get("id") is None:
            self._complaint = PagodaError.of_event(event)  # about the connection: the reason, if it is closed now
            return
        if event.get("event") == "error" and event.get("error", {}).get("code") == "unknown_id":
            return  # a cancel that crossed the request's end
        with self._lock:
            request = self._live.get(event.get("id"))
            if request is not None and event.get("event") not in NOT_THE_LAST:
                del self._live[event["id"]]
        if request is not None:
            request._events.put(event)


# --- the command line -----------------------------------------------------------------------------------------------

def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Streams prompts through a Pagoda server (JSON lines over TCP).",
        epilog="Ctrl-C cancels what is running. Exit status: 0 done, 1 failed, 2 bad usage, 130 cancelled.")
    parser.add_argument("prompt", nargs="*", help="a prompt; several run at once on one connection")
    parser.add_argument("--prompts", metavar="FILE", help="a file with one prompt per line; - is stdin")
    parser.add_argument("--server", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=f"default {DEFAULT_ADDRESS}")
    parser.add_argument("--api-key-file", metavar="FILE", help="file whose first line is the key of the server")
    parser.add_argument("--json", action="store_true",
                        help="print one `done` event per line, in the order of the prompts")
    parser.add_argument("--timing", action="store_true", help="print tokens and times of each request to stderr")
    parser.add_argument("--stats", action="store_true", help="print the server's model and counters, then end")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after the end-of-text token")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="stop before this text; may be repeated")
    parser.add_argument("--max-tokens", type=int, default=256, help="default 256")
    for flag, kind in [("temperature", float), ("top-p", float), ("top-k", int), ("min-p", float), ("seed", int),
                       ("min-tokens", int), ("presence-penalty", float), ("frequency-penalty", float),
                       ("repetition-penalty", float), ("logprobs", int), ("priority", int)]:
        parser.add_argument(f"--{flag}", type=kind, help="as in the protocol; the server's default when not given")
    args = parser.parse_args()
    host, colon, port = args.server.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        parser.error(f"--server {args.server!r} is not HOST:PORT")
    args.host, args.port = host.strip("[]") or "127.0.0.1", int(port)
    args.key = None
    try:
        if args.prompts:
            with sys.stdin if args.prompts == "-" else open(args.prompts, encoding="utf-8") as file:
                args.prompt += [line.rstrip("\r\n") for line in file if line.strip()]
        if args.api_key_file:
            with open(args.api_key_file, encoding="utf-8") as file:
                args.key = file.readline().strip()
    except (OSError, UnicodeDecodeError) as failure:
        parser.error(str(failure))
    if not args.prompt and not args.stats:
        parser.error("no prompt: give one, or --prompts FILE")
    return args


def sampling_fields(args):
    names = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "min_tokens", "presence_penalty",
             "frequency_penalty", "repetition_penalty", "logprobs", "priority", "stop"]
    fields = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return {**fields, "ignore_eos": True} if args.ignore_eos else fields


def show(request, prompt, args):
    """Prints one request as it comes. Its later siblings gather in their queues meanwhile."""
    started = time.monotonic()
    if args.json:
        print(json.dumps(request.result(), ensure_ascii=False), flush=True)
    else:
        sys.stdout.write(prompt)
        for piece in request.text():
            sys.stdout.write(piece)
            sys.stdout.flush()
        print("\n" if len(args.prompt) > 1 else "", flush=True)
    if args.timing:
        done = request.result()
        usage, timing = done.get("usage", {}), done.get("timing", {})
        reasons = ", ".join(str(output.get("finish_reason")) for output in done.get("outputs", []))
        print(f"[{request.id}: {usage.get('prompt_tokens')} prompt tokens ({usage.get('cached_tokens')} cached), "
              f"{usage.get('completion_tokens')} generated, {reasons}; first token {timing.get('ttft_ms')} ms, "
              f"total {timing.get('total_ms')} ms, shown in {time.monotonic() - started:.2f} s]", file=sys.stderr)


def cancel_all(requests):
    for request in requests:
        if request._terminal is None:
            request.cancel()
    for request in requests:
        try:
            request.result()
        except PagodaError:
            pass  # it failed before the cancel came


def run(args):
    with PagodaClient(args.host, args.port, args.key) as client:
        if args.stats:
            print(json.dumps({"model": client.model(), "stats": client.stats()}, indent=2, ensure_ascii=False))
            return EXIT_OK
        fields = sampling_fields(args)
        requests, failed = [], False
        try:
            requests = [client.submit(prompt, stream=not args.json, **fields) for prompt in args.prompt]
            for request, prompt in zip(requests, args.prompt):
                try:
                    show(request, prompt, args)
                except PagodaError as error:
                    failed = True
                    print(f"\nclient.py: prompt {prompt!r}: {error}", file=sys.stderr)
                    if error.code == "connection":
                        break
            return EXIT_FAILED if failed else EXIT_OK
        except KeyboardInterrupt:
            print("\n[cancelled]", file=sys.stderr)
            cancel_all(requests)
            return EXIT_INTERRUPTED


def main():
    args = parse_arguments()
    try:
        return run(args)
    except PagodaError as error:
        print(f"client.py: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
