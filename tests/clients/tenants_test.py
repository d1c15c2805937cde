#!/usr/bin/env python3
"""Keys with names, limits and roles, deadlines and admin routes, at a real server; and that its logs hold no key and no
prompt. Standard library only.

usage: tenants_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from metrics_test import WithLines
from raw_stream import send
from server import Server

PROMPT = "Once upon a time there was a little secret-of-the-prompt"
LONG = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "temperature": 0}
SHORT = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0}
SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))
NUM_REQUESTS = 10_000 if SLOWNESS == 1 else 500
pagoda = model = None


def make_key(*arguments, stdin=None):
    """What `pagoda key` prints, line by line."""
    ended = subprocess.run([pagoda, "key", *arguments], capture_output=True, text=True, timeout=60, input=stdin)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def bearer(key, **more):
    return {"Authorization": "Bearer " + key, **more}


class WithKeys(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.file = os.path.join(folder.name, "keys")
        self.log = os.path.join(folder.name, "log")

    def key(self, name, *flags):
        line, = make_key(name, "--file", self.file, *flags)
        return line

    def start(self, *flags, kind=Server, level="info", plain=False):
        server = kind(pagoda, model, *(() if plain else ("--keys-file", self.file)), *flags)
        server.command[server.command.index("warn")] = level
        log = open(self.log, "w")
        self.addCleanup(log.close)
        real = subprocess.Popen
        subprocess.Popen = lambda *a, **k: real(*a, **{**k, "stderr": log})
        try:
            server.__enter__()
        finally:
            subprocess.Popen = real
        self.addCleanup(server.__exit__)
        return server

    def logged(self):
        with open(self.log) as file:
            return file.read()

    def wait_for_log(self, text):
        deadline = time.monotonic() + 20 * SLOWNESS
        while text not in self.logged():
            self.assertLess(time.monotonic(), deadline, self.logged())
            time.sleep(0.01)

    def complete(self, server, key, **fields):
        status, headers, body = server.request("POST", "/v1/completions", {**SHORT, **fields}, bearer(key))
        return status, headers, json.loads(body)


class Keys(WithKeys):
    def test_a_key_is_shown_once_and_not_kept(self):
        key, line = make_key("alice", "--requests-per-minute", "5")
        self.assertRegex(key, r"^sk-pagoda-[0-9a-f]{64}$")
        self.assertEqual(set(json.loads(line)), {"name", "sha256", "requests_per_minute"})
        self.assertNotIn(key[10:], line)
        key = self.key("alice", "--admin")
        with open(self.file) as file:
            text = file.read()
        self.assertNotIn(key[10:], text)
        self.assertEqual(json.loads(text)["role"], "admin")
        self.assertEqual(os.stat(self.file).st_mode & 0o007, 0)

    def test_a_key_that_somebody_has_can_be_named(self):
        line, = make_key("alice", "--from-stdin", stdin="some-old-key-of-alice\n")
        with open(self.file, "w") as file:
            file.write("# mine\n" + line)  # without a line end
        other = self.key("bob")
        server = self.start()
        for key in ("some-old-key-of-alice", other):
            self.assertEqual(self.complete(server, key)[0], 200)

    def test_what_cannot_be_a_key_is_refused(self):
        for arguments, stdin, said in (((), None, "NAME"), (("a b",), None, "NAME"), (("a", "--priority", "x"), None, "integer"),
                                       (("a", "--from-stdin"), "short\n", "16"),
                                       (("a", "--requests-per-minute", "-1"), None, "at least 0")):
            ended = subprocess.run([pagoda, "key", *arguments], capture_output=True, text=True, timeout=60,
                                   input=stdin or "")
            self.assertEqual((ended.returncode, ended.stdout), (2, ""), arguments)
            self.assertIn(said, ended.stderr)

    def test_a_file_that_is_wrong_stops_the_start_and_names_its_line(self):
        self.key("alice")
        with open(self.file, "a") as file:
            file.write("{\"name\": \"bob\"}\n")
        ended = subprocess.run([pagoda, "serve", "--model", model, "--keys-file", self.file], capture_output=True,
                               text=True, timeout=60)
        self.assertEqual(ended.returncode, 2)
        self.assertIn(f"{self.file}:2: sha256", ended.stderr)

    def test_sighup_reads_the_keys_anew(self):
        alice = self.key("alice")
        server = self.start()
        held = send_with(server, {**LONG, "n": 4}, alice)
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log("number of keys: 1")
        bob = self.key("bob")
        self.assertEqual(self.complete(server, bob)[0], 401)
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log("number of keys: 2")
        self.assertEqual([self.complete(server, key)[0] for key in (alice, bob)], [200, 200])
        with open(self.file, "a") as file:
            file.write("nonsense\n")
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log(f"the keys are not changed: {self.file}:3: ")
        self.assertEqual(self.complete(server, bob)[0], 200)
        with open(self.file, "w") as file:
            file.write(make_key("root", "--admin")[1] + "\n")
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log("every client could call")
        self.assertEqual(self.complete(server, bob)[0], 200)
        self.assertEqual(server.request("POST", "/v1/completions", SHORT)[0], 401)
        os.remove(self.file)
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log("cannot read")
        self.assertEqual(answer_of(held)[0], 200, "what was live goes on")


class PlainKeys(WithKeys):
    def test_sighup_reads_plain_files_anew(self):
        """Of users and of admins, without a file of named keys."""
        admins = os.path.join(self.folder, "admins")
        def write(path, key):
            with open(path, "w") as file:
                file.write(key + "\n")
        def statuses():
            return [server.request("GET", "/v1/models", None, bearer(key))[0] for key in
                    ("user-key-1", "user-key-2", "admin-key-1", "admin-key-2")]
        write(self.file, "user-key-1")
        write(admins, "admin-key-1")
        server = self.start("--api-key-file", self.file, "--admin-key-file", admins, plain=True)
        self.assertEqual(statuses(), [200, 401, 200, 401])
        for path, key, expected in ((self.file, "user-key-2", [401, 200, 200, 401]),
                                    (admins, "admin-key-2", [401, 200, 401, 200])):
            write(path, key)
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 20 * SLOWNESS
            while (seen := statuses()) != expected and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(seen, expected)
        self.assertEqual(self.logged().count("the keys were read again"), 2)


def send_with(server, body, key, path="/v1/completions", **headers):
    """A socket on which this request was sent, with a key."""
    payload = json.dumps(body).encode()
    connection = socket.create_connection((server.host, server.port), timeout=120)
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**bearer(key), **headers}.items())
    connection.sendall((f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n{lines}"
                        f"Content-Length: {len(payload)}\r\n\r\n").encode() + payload)
    return connection


def answer_of(connection):
    """(status, body) of what is answered on a socket, up to its end."""
    data = b""
    with connection:
        while piece := connection.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


class Tenants(WithKeys):
    def test_limits_hold_over_both_servers_and_all_keys_of_a_name(self):
        first = self.key("alice", "--requests-per-minute", "3")
        second = self.key("alice", "--requests-per-minute", "3")
        server = self.start(kind=WithLines)
        for key in (first, second):
            self.assertEqual(self.complete(server, key)[0], 200)
        events = server.ask({"op": "auth", "key": second}, {**SHORT, "id": "a"}, {**SHORT, "id": "b"})
        codes = {event["id"]: event.get("error", {}).get("code") for event in events if event["event"] in ("done", "error")}
        self.assertEqual(codes, {"a": None, "b": "rate_limited"})
        status, headers, body = self.complete(server, first)
        self.assertEqual((status, body["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertTrue(0 < int(headers["retry-after"]) <= 20)
        self.assertEqual(headers["x-ratelimit-remaining-requests"], "0")

    def test_tokens_are_counted_as_the_engine_counts_them(self):
        key = self.key("alice", "--tokens-per-minute", "100000")
        server = self.start()
        _, headers, body = self.complete(server, key, max_tokens=5, ignore_eos=True)
        used = body["usage"]["prompt_tokens"] + 5
        self.assertTrue(100_000 - used <= int(headers["x-ratelimit-remaining-tokens"]) <= 100_000)
        # So little a minute that it hardly refills meanwhile.
        slow = self.key("bob", "--tokens-per-minute", "60")
        server.process.send_signal(signal.SIGHUP)
        self.wait_for_log("number of keys: 2")
        began = time.monotonic()
        status, headers, body = self.complete(server, slow, max_tokens=300, ignore_eos=True)
        self.assertEqual((status, headers["x-ratelimit-remaining-tokens"]), (200, "0"))
        used = body["usage"]["prompt_tokens"] + 300
        status, headers, _ = self.complete(server, slow)
        took = time.monotonic() - began
        self.assertEqual(status, 429)
        # The next prompt's tokens, about a quarter of its bytes, are waited for too.
        owed = used - 60 + 1 + len(PROMPT) // 4
        self.assertTrue(owed - took - 2 <= int(headers["retry-after"]) <= owed + 1, (owed, took, headers))

    def test_one_tenant_does_not_find_anothers_prompts_in_the_cache(self):
        alice, bob = self.key("alice"), self.key("bob")
        sharing = [self.key(name, "--share-prefix-cache") for name in ("carol", "dave")]
        server = self.start()
        long_prompt = PROMPT * 20
        cached = lambda key, **more: self.complete(server, key, prompt=long_prompt, **more)[2]["usage"][
            "prompt_tokens_details"]["cached_tokens"]
        self.assertEqual([cached(alice), cached(bob), cached(sharing[0])], [0, 0, 0])
        self.assertTrue(all(count > 0 for count in (cached(alice), cached(bob), cached(sharing[1]))))
        self.assertEqual(cached(bob, cache_salt="alice"), 0)

    def test_who_waits_is_served_fairly_by_the_names_of_keys(self):
        alice = self.key("alice")
        root = self.key("root", "--admin")
        server = self.start("--scheduling-policy", "fair")
        held = send_with(server, {**LONG, "user": "somebody"}, alice, **{"X-Request-Id": "held-1"})
        listed = wait_for_requests(server, root, 1)
        self.assertEqual((listed[0]["tenant"], listed[0]["request_id"]), ("alice", "held-1"))
        held.close()
        server.request("DELETE", f"/admin/requests/{listed[0]['id']}", None, bearer(root))


def wait_for_requests(server, root, count, state=None):
    """The list of admins once it has so many requests, in that state."""
    deadline = time.monotonic() + 30 * SLOWNESS
    while True:
        listed = server.json("GET", "/admin/requests", None, bearer(root))["requests"]
        if len(listed) == count and all(state in (None, request["state"]) for request in listed):
            return listed
        assert time.monotonic() < deadline, listed
        time.sleep(0.002)


class Deadlines(unittest.TestCase):
    FOREVER = {**LONG, "max_tokens": 100_000, "n": 8}

    def setUp(self):
        server = WithLines(pagoda, model, "--max-num-seqs", "8")
        self.server = server.__enter__()
        self.addCleanup(server.__exit__)

    def test_a_request_whose_time_is_over_fails_and_frees_its_memory(self):
        began = time.monotonic()
        status, headers, body = self.server.request("POST", "/v1/completions", {**self.FOREVER, "timeout": 0.2})
        took = time.monotonic() - began
        self.assertEqual(status, 504)
        error = json.loads(body)["error"]
        self.assertEqual((error["type"], error["code"]), ("timeout_error", "timeout"))
        self.assertIn("200 ms", error["message"])
        self.assertEqual(headers["x-should-retry"], "false")
        self.assertTrue(0.2 <= took < 0.2 + 2 * SLOWNESS, took)
        stats = self.server.stats()
        self.assertEqual((stats["requests_running"], stats["requests_failed_total"]), (0, 1))
        deadline = time.monotonic() + 10 * SLOWNESS  # the answer does not wait for what is in flight
        while stats["device_blocks_free"] + stats["device_blocks_cached"] != stats["device_blocks_total"]:
            self.assertLess(time.monotonic(), deadline, stats)
            time.sleep(0.01)
            stats = self.server.stats()

    def test_the_time_in_the_queue_counts(self):
        running = send(self.server, "/v1/completions", self.FOREVER)
        while self.server.stats()["requests_running"] == 0:
            time.sleep(0.002)
        status, _, body = self.server.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "timeout_ms": 150})
        self.assertEqual((status, json.loads(body)["error"]["code"]), (504, "timeout"))
        self.assertEqual(self.server.stats()["requests_running"], 1, "the others go on")
        running.close()

    def test_a_stream_ends_with_an_error_event(self):
        for path, body, end in (
                ("/v1/completions", {**self.FOREVER, "stream": True}, b'"code":"timeout"'),
                ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 700, "ignore_eos": True,
                                  "stream": True}, b'"type":"timeout_error"')):
            timeout = 0.3
            for _ in range(20):  # until it is over behind the first token and before the last
                status, _, answer = self.server.request("POST", path, {**body, "timeout": timeout})
                last = answer.strip().splitlines()[-1]
                if status == 200 and b"timeout" in last:
                    break
                self.assertIn(status, (200, 504))
                timeout *= 0.6 if status == 200 else 1.5
            self.assertEqual(status, 200)
            self.assertIn(end, last)
            self.assertNotIn(b"[DONE]", answer)

    def test_json_lines(self):
        events = self.server.ask({**self.FOREVER, "id": "a", "timeout_ms": 200})
        self.assertEqual((events[-1]["event"], events[-1]["error"]["code"]), ("error", "timeout"))
        self.assertIn("delta", [event["event"] for event in events])

    def test_who_is_done_in_time_hears_nothing_of_it(self):
        began = time.monotonic()
        self.assertEqual(self.server.request("POST", "/v1/completions", {**SHORT, "timeout": 600})[0], 200)
        self.assertLess(time.monotonic() - began, 60)

    def test_many_at_once(self):
        results = [None] * 40
        def run(i):
            results[i] = self.server.request("POST", "/v1/completions", {**LONG, "timeout": 0.05 + i / 100})[0]
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertTrue(set(results) <= {200, 504}, results)
        self.assertIn(504, results)
        self.server.wait_until_idle(20)

    def test_a_timeout_of_the_server(self):
        with Server(pagoda, model, "--request-timeout", "0.2") as server:
            self.assertEqual(server.request("POST", "/v1/completions", self.FOREVER)[0], 504)
            self.assertEqual(server.request("POST", "/v1/completions", {**SHORT, "timeout": 60})[0], 200)


class Admins(WithKeys):
    def setUp(self):
        super().setUp()
        self.alice, self.root = self.key("alice"), self.key("root", "--admin")

    def test_a_live_request_is_seen_and_cancelled(self):
        server = self.start()
        held = send_with(server, {**LONG, "max_tokens": 100_000}, self.alice)
        request, = wait_for_requests(server, self.root, 1, "running")
        self.assertEqual(request["tenant"], "alice")
        self.assertTrue(request["prompt_tokens"] > 5 and request["age_s"] >= 0)
        self.assertNotIn("secret-of-the", json.dumps(request))
        later, = wait_for_requests(server, self.root, 1)
        while later["generated_tokens"] <= request["generated_tokens"]:
            later, = wait_for_requests(server, self.root, 1)
        server.json("DELETE", f"/admin/requests/{request['id']}", None, bearer(self.root))
        status, body = answer_of(held)
        self.assertEqual((status, json.loads(body)["choices"][0]["finish_reason"]), (200, "abort"))
        self.assertEqual(server.request("DELETE", f"/admin/requests/{request['id']}", None, bearer(self.root))[0], 404)

    def test_the_prefix_cache_is_reset_also_while_others_run(self):
        server = self.start()
        long_prompt = PROMPT * 20
        cached = lambda: self.complete(server, self.alice, prompt=long_prompt)[2]["usage"]["prompt_tokens_details"][
            "cached_tokens"]
        reset = lambda: server.json("POST", "/admin/reset_prefix_cache", None, bearer(self.root))
        self.assertEqual(cached(), 0)
        self.assertGreater(cached(), 0)
        reset()
        self.assertEqual(cached(), 0)
        self.assertGreater(cached(), 0)
        text = lambda: self.complete(server, self.alice, max_tokens=300, ignore_eos=True)[2]["choices"][0]["text"]
        right = text()
        results = []
        running = threading.Thread(target=lambda: results.append(text()))
        running.start()
        while running.is_alive():
            reset()
        self.assertEqual(results, [right])

    def test_a_drain_lets_what_is_live_end_and_takes_nothing_new(self):
        server = self.start()
        held = send_with(server, {**LONG, "n": 4}, self.alice)
        wait_for_requests(server, self.root, 1, "running")
        drain = lambda: server.json("POST", "/admin/drain", None, bearer(self.root))
        self.assertEqual(drain(), {"status": "draining", "live_requests": 1})
        self.assertEqual(server.request("GET", "/ready")[0], 503)
        self.assertEqual(self.complete(server, self.alice)[0], 503)
        self.assertEqual(answer_of(held)[0], 200)
        deadline = time.monotonic() + 20
        while drain()["live_requests"] > 0:
            self.assertLess(time.monotonic(), deadline)
        self.assertIsNone(server.process.poll(), "it ends by a signal")
        self.assertIn("root drains the server", self.logged())


class Logs(WithKeys):
    def test_no_log_holds_a_key_or_a_prompt(self):
        access = os.path.join(self.folder, "access")
        key = self.key("alice", "--requests-per-minute", "1000000000")
        server = self.start("--access-log", access, "--max-queued-requests", "16", kind=WithLines, level="trace")
        name = server.json("GET", "/v1/models", None, bearer(key))["data"][0]["id"]
        conversation = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}
        bodies = [("/v1/completions", {**SHORT, "max_tokens": 1}), ("/v1/chat/completions", conversation),
                  ("/v1/responses", {"input": PROMPT, "max_output_tokens": 1}), ("/v1/messages", conversation),
                  ("/api/generate", {"model": name, "prompt": PROMPT, "options": {"num_predict": 1}}),
                  ("/api/chat", {"model": name, "messages": conversation["messages"], "options": {"num_predict": 1}}),
                  ("/tokenize", {"prompt": PROMPT}), ("/apply_template", {"messages": conversation["messages"]})]
        answered = set()
        wrong = "sk-pagoda-wrong-secret-of-the-key"
        hostile = ["a b", "x" * 129, "a\tb", "\u00e9", "evil\"},{\"status\":200"]
        def run(part):
            import http.client
            connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
            for i in range(part, NUM_REQUESTS, 8):
                given = wrong if i % 10 == 1 else key
                path, body = bodies[i // 10 % len(bodies)]
                body = dict(body)
                if i % 10 == 2:
                    body["field-of-others"] = PROMPT  # its name is logged
                if i % 10 == 3:
                    field = next(name for name in ("prompt", "messages", "input") if name in body)
                    body[field] = {"secret-of-the-field": PROMPT}
                if i % 10 == 8 and "max_tokens" in body:
                    body["max_tokens"] = PROMPT
                if i % 10 == 6 and path == "/v1/completions":
                    body["prompt"] = [10**12]
                if i % 10 == 7:
                    body["stream"] = True
                headers = {"Authorization": "Bearer " + given, "Content-Type": "application/json",
                           "X-Request-Id": hostile[i // 10 % len(hostile)] if i % 10 == 4 else f"request-{i}"}
                path = path if i % 10 != 5 else f"/v1/secret-of-the-path?key={key}"
                connection.request("POST", path, json.dumps(body).encode("utf-8"),
                                   {name: value.encode("utf-8") for name, value in headers.items()})
                answer = connection.getresponse()
                answer.read()
                answered.add((path, answer.status))
                if answer.headers.get("connection") == "close":
                    connection.close()
            connection.close()
        threads = [threading.Thread(target=run, args=(part,)) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for path, _ in bodies:
            self.assertIn((path, 200), answered)
            self.assertIn((path, 401), answered)
            self.assertIn((path, 400), answered)
        lines = [{"op": "auth", "key": wrong}, {"id": "early", **SHORT}, {"op": "auth", "key": key},
                 {"op": "secret-of-the-op"}, {"id": "wrong", **SHORT, "secret-of-the-field": PROMPT},
                 {"id": "range", "prompt_token_ids": [10**12]}, {"id": "type", **SHORT, "max_tokens": PROMPT},
                 {"op": "tokenize", "text": PROMPT}, {"op": "apply_template", "messages": conversation["messages"]},
                 *({"id": f"{i}", **SHORT, "stream": i % 2 == 0} for i in range(8)), {"id": "chat", **conversation}]
        events = server.ask(*lines)
        self.assertEqual({"ok", "error", "tokens", "text", "delta", "done"}, {event["event"] for event in events})
        with socket.create_connection(server.lines, timeout=60) as connection:
            connection.sendall(b"secret-of-the-line\n" + PROMPT.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(connection.makefile("rb").read().count(b'"event":"error"'), 2)
        stats = json.dumps(server.json("GET", "/stats", None, bearer(key)))
        metrics = server.request("GET", "/metrics", None, bearer(key))[2].decode()
        with open(f"/proc/{server.process.pid}/cmdline") as file:
            command = file.read()
        deadline = time.monotonic() + 30
        while True:
            with open(access) as file:
                text = file.read()
            if text.count("\n") >= NUM_REQUESTS:
                break
            self.assertLess(time.monotonic(), deadline, text.count("\n"))
            time.sleep(0.05)
        self.assertEqual({json.loads(line).get("tenant") for line in text.splitlines()}, {"alice", None})
        for held in (text, self.logged(), stats, metrics, command):
            for secret in ("secret-of-the", "Once upon", key[10:], wrong[10:]):
                self.assertNotIn(secret, held)

    def test_log_prompts_logs_them(self):
        key = self.key("alice")
        server = self.start("--log-prompts", kind=WithLines)
        self.complete(server, key, prompt=PROMPT + "\nof http")
        server.ask({"op": "auth", "key": key}, {**SHORT, "id": "mine", "prompt": PROMPT + "\nof lines"})
        for said in ("of http", "of lines"):
            line, = [line for line in self.logged().splitlines() if said in line]
            logged = json.loads(line[line.index("{"):])
            self.assertEqual((logged["user"], logged["prompt"]), ("alice", PROMPT + "\n" + said))
        self.assertNotIn(key[10:], self.logged())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
