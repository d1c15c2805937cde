#!/usr/bin/env python3
"""A walk over every route, method and way to get a request wrong: the right status, the error in the shape of the API
that was called, and behind them a server that answers. Standard library only.

usage: http_walk.py PAGODA MODEL_DIR
"""
import json
import os
import sys
import tempfile

from server import Server

KEY = "a-key-that-is-good-enough"
ADMIN_KEY = "an-admin-key-that-is-good"
MAX_BODY_BYTES = 80 << 20
BIG = 64 << 20
DEPTH = 100_000
NORMAL_EVERY = 8  # requests
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
# path: who may call it, and a body that is answered with 200 (none: it is a GET). "TEXT" is a text that a client writes.
ROUTES = {
    "/health": ("all", None),
    "/health_generate": ("all", None),
    "/ready": ("all", None),
    "/version": ("all", None),
    "/stats": ("key", None),
    "/load": ("key", None),
    "/kv_event_sources": ("key", None),
    "/metrics": ("key", None),
    "/v1/models": ("key", None),
    "/v1/models/MODEL": ("key", None),
    "/v1/completions": ("key", {"prompt": "TEXT", "max_tokens": 1}),
    "/v1/chat/completions": ("key", {"messages": [{"role": "user", "content": "TEXT"}], "max_tokens": 1}),
    "/v1/responses": ("key", {"input": "TEXT", "max_output_tokens": 16}),
    "/v1/messages": ("key", {"model": "MODEL", "messages": [{"role": "user", "content": "TEXT"}], "max_tokens": 1}),
    "/v1/messages/count_tokens": ("key", {"model": "MODEL", "messages": [{"role": "user", "content": "TEXT"}]}),
    "/v1/responses/input_tokens": ("key", {"input": "TEXT"}),
    "/v1/responses/render": ("key", {"input": "TEXT"}),
    "/v1/completions/render": ("key", {"prompt": "TEXT"}),
    "/v1/chat/completions/render": ("key", {"messages": [{"role": "user", "content": "TEXT"}]}),
    "/tokenizer_info": ("key", None),
    "/server_info": ("key", None),
    "/model_info": ("key", None),
    "/get_server_info": ("key", None),
    "/get_model_info": ("key", None),
    "/get_load": ("key", None),
    "/v1/loads": ("key", None),
    "/tokenize": ("key", {"prompt": "TEXT"}),
    "/detokenize": ("key", {"tokens": [40, 41]}),
    "/apply_template": ("key", {"messages": [{"role": "user", "content": "TEXT"}]}),
    "/api/generate": ("key", {"model": "MODEL", "prompt": "TEXT", "stream": False, "options": {"num_predict": 1}}),
    "/api/chat": ("key", {"model": "MODEL", "messages": [{"role": "user", "content": "TEXT"}], "stream": False,
                          "options": {"num_predict": 1}}),
    "/api/show": ("key", {"model": "MODEL"}),
    "/api/pull": ("key", {"model": "MODEL", "stream": False}),
    "/api/tags": ("key", None),
    "/api/ps": ("key", None),
    "/api/version": ("all", None),
}
# Likewise of admins alone; the last is the method. Only refusals are walked: what they do would end the walk.
ADMIN_ROUTES = {
    "/admin/requests": "GET",
    "/admin/requests/1": "DELETE",
    "/admin/replicas": "GET",
    "/admin/replicas/0/drain": "POST",
    "/admin/drain": "POST",
    "/admin/reset_prefix_cache": "POST",
    "/flush_cache": "POST",
}
# Routes of the interface that a build may not have yet.
MAY_BE_MISSING = {"/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}


def error_shape(path, answer):
    """What is wrong with an error's shape; None when it is that of its API."""
    try:
        error = json.loads(answer)
    except ValueError:
        return f"no JSON: {answer[:200]!r}"
    if path.startswith("/v1/messages"):
        inner = error.get("error", {})
        details = inner.pop("details", {"error_code": "none"})
        good = (error.get("type") == "error" and set(inner) == {"type", "message"}
                and set(details) == {"error_code"} and details["error_code"])
    elif path.startswith("/api"):
        good = set(error) == {"error"} and isinstance(error["error"], str) and error["error"]
    else:
        good = set(error) == {"error"} and set(error["error"]) == {"message", "type", "param", "code"}
    return None if good else f"another API's shape: {answer[:200]!r}"


class Walk:
    def __init__(self, server, model):
        self.server = server
        self.model = model
        self.failures = []
        self.num_requests = 0
        self.num_unchecked = 0

    def ask(self, method, path, body=None, key=KEY, content_type="application/json", **headers):
        self.num_requests += 1
        if key is not None:
            headers["Authorization"] = "Bearer " + key
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            return self.server.request(method, path, body, headers)
        except OSError as error:  # the answer to a body that is too long may come while it is sent
            return 0, {}, repr(error).encode()

    def expect(self, what, path, wanted, answer, shape=True, mentions=None):
        status, _, body = answer
        wanted = (wanted,) if isinstance(wanted, int) else wanted
        if status not in wanted:
            self.fail(f"{what} {path}: {status}, not {' or '.join(map(str, wanted))}: {body[:200]!r}")
        elif shape and status >= 400 and (wrong := error_shape(path, body)):
            self.fail(f"{what} {path}: {wrong}")
        elif mentions and status >= 400 and mentions.encode() not in body:
            self.fail(f"{what} {path}: does not say {mentions}: {body[:200]!r}")
        self.check_alive(f"{what} {path}")

    def expect_ignored(self, what, path, answer):
        """A 200 whose header names the field "colour"."""
        self.expect(what, path, 200, answer)
        if answer[0] == 200 and answer[1].get("x-pagoda-ignored") != "colour":
            self.fail(f"{what} {path}: x-pagoda-ignored is {answer[1].get('x-pagoda-ignored')!r}")

    def fail(self, text):
        self.failures.append(text)
        print("FAIL", text, flush=True)

    def check_alive(self, after):
        """The next request is answered too; a normal one comes every so often."""
        if self.server.process.poll() is not None:
            sys.exit(f"after {after}: the server has ended")
        self.num_unchecked += 1
        if self.num_unchecked < NORMAL_EVERY:
            return
        self.num_unchecked = 0
        status, _, body = self.ask("POST", "/v1/completions", b'{"prompt": "Hi", "max_tokens": 1}')
        if status != 200:
            self.fail(f"after {after}, or what came before it: a normal request gets {status}: {body[:200]!r}")

    def text_of(self, body, text='"Hi"'):
        """The JSON of a route's body, with TEXT (quotes and all) as `text`."""
        return json.dumps(body).replace("MODEL", self.model).replace('"TEXT"', text).encode()

    # -- what is walked

    def methods(self, path, access, body):
        if path in ("/v1/responses/input_tokens", "/v1/responses/render"):
            return  # of other methods it is the id of an answer
        served = {"POST"} if body else {"GET", "HEAD"}
        for method in METHODS:
            sent = self.text_of(body) if method == "POST" and body else None
            answer = self.ask(method, path, sent)
            has_body = method != "HEAD"
            if method in served:
                self.expect(method, path, (200, 503) if path == "/ready" else 200, answer, shape=has_body)
            else:
                self.expect(method, path, 405, answer, shape=has_body)
                if set(answer[1].get("allow", "").split(", ")) != served:
                    self.fail(f"{method} {path}: allow is {answer[1].get('allow')!r}")
        self.expect("TRACE", path, (501, 400), self.ask("TRACE", path))
        self.expect("a path below", path + "/x/y", 200 if path.startswith("/v1/models/") else 404,
                    self.ask("GET", path + "/x/y")) if not path.startswith("/v1/models") else None

    def keys(self, path, access, body):
        method = "POST" if body else "GET"
        sent = self.text_of(body) if body else None
        wanted = 200 if access == "all" else 401
        self.expect("no key", path, wanted, self.ask(method, path, sent, key=None))
        self.expect("a bad key", path, wanted, self.ask(method, path, sent, key="wrong"))
        self.expect("half a key", path, wanted, self.ask(method, path, sent, key=KEY[:-1]))
        self.expect("the admin's key", path, 200, self.ask(method, path, sent, key=ADMIN_KEY))
        self.expect("x-api-key", path, 200, self.ask(method, path, sent, key=None, **{"X-Api-Key": KEY}))

    def admin_keys(self, path, method):
        for what, key, wanted in (("no key", None, 401), ("a bad key", "wrong", 401), ("a user's key", KEY, 403),
                                  ("half an admin's key", ADMIN_KEY[:-1], 401)):
            self.expect(what, path, wanted, self.ask(method, path, b"{}" if method == "POST" else None, key=key))
        for other in METHODS:
            if other != method and (other, method) != ("HEAD", "GET"):
                self.expect(other, path, 405, self.ask(other, path, key=ADMIN_KEY), shape=other != "HEAD")
        self.expect("a query", path + "?key=" + ADMIN_KEY, 401, self.ask(method, path + "?key=" + ADMIN_KEY, key=None))

    def bodies(self, path, body):
        good = json.loads(self.text_of(body))
        post = lambda sent, **options: self.ask("POST", path, sent, **options)
        is_lenient = path.startswith("/api/")  # Ollama's clients send JSON under any type; pages in browsers may not
        page = {"Origin": "https://elsewhere"}
        self.expect("plain text", path, 200 if is_lenient else 415, post(self.text_of(body), content_type="text/plain"))
        self.expect("a form", path, 400 if is_lenient else 415, post(b"a=b", content_type="application/x-www-form-urlencoded"))
        self.expect("a page's plain text", path, 415, post(self.text_of(body), content_type="text/plain", **page))
        self.expect("gzip", path, 415, post(self.text_of(body), **{"Content-Encoding": "gzip"}))
        self.expect("JSON with a charset", path, 200, post(self.text_of(body), content_type="application/json; charset=utf-8"))
        self.expect("an empty body", path, 400, post(b""))
        self.expect("no fields", path, 400, post(b"{}"))
        for sent in (b"null", b"[]", b"7", b'"x"'):
            self.expect(f"the body {sent.decode()}", path, 400, post(sent))
        for sent in (b"{", b"{]}", b'{"a":1,}', b"{'a':1}", b'{"a":NaN}', b'{"a":01}', b"\xff\xfe", b'{"a":"\xff"}',
                     b'{"a":"\n"}', b"{}{}", b"{} x", b'{"a":1e999}'):
            self.expect(f"malformed {sent!r}", path, 400, post(sent))
        self.expect_ignored("an unknown field", path, post(json.dumps({**good, "colour": 1}).encode()))
        first, value = next(iter(good.items()))
        doubled = f'{{{json.dumps(first)}: {json.dumps(value)}, {json.dumps(good)[1:]}'.encode()
        self.expect("a doubled key", path, 400, post(doubled), mentions=first)
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            deep = b'{"colour":' + opening * DEPTH + b"1" + closing * DEPTH + b"}"
            self.expect("a deep value", path, 400, post(deep))
            self.expect("a deep value that never ends", path, 400, post(opening * DEPTH))
        for name in good:
            for wrong in (None, True, -1, 1.5, 10**15, 2**64 - 1, "x", [], {}, [None], {"a": None}):
                answer = post(json.dumps({**good, name: wrong}).encode())
                self.expect(f"{name} = {wrong!r}", path, (200, 400, 404), answer)
        for name in ("n", "best_of", "seed", "logprobs", "top_logprobs", "top_k", "priority", "max_tokens", "min_tokens",
                     "prompt_logprobs", "temperature", "top_p", "stop_token_ids", "max_completion_tokens"):
            for value in (10**15, 2**64 - 1, -(2**63), 1e308, [10**15]):
                # Behind so much space the body is read off the I/O thread, where exceptions are others.
                for padding in ("", " " * 40_000):
                    sent = json.dumps({**good, name: value}) + padding
                    self.expect(f"{name} = {value!r}", path, (200, 400), post(sent.encode()))
        if '"TEXT"' in json.dumps(body):
            for escape in (r'"\ud800"', r'"a\udc00b"', r'"\ud800\ud800"', r'"\udc00\ud800"'):
                self.expect(f"the lone surrogate {escape}", path, 400, post(self.text_of(body, escape)))
            for text in (r'"\u0000"', r'"a\u0000b"', r'"\ud83d\ude42"', r'"\uffff\u200b\u202e"'):
                self.expect(f"the text {text}", path, 200, post(self.text_of(body, text)))

    def sizes(self, path, body):
        post = lambda sent: self.ask("POST", path, sent)
        self.expect("a huge body", path, 413, self.announce(path, MAX_BODY_BYTES + 1))
        self.expect("a body of 2^63 bytes", path, (400, 413), self.announce(path, 1 << 63))
        good = self.text_of(body)[:-1].decode()
        size = BIG if path == "/v1/completions" else BIG // 8
        big = (good + ', "colour": [' + "0," * (size // 2 - 1) + "0]}").encode()
        self.expect_ignored(f"{size >> 20} MiB of numbers", path, post(big))
        if '"TEXT"' in json.dumps(body) and path not in ("/tokenize", "/apply_template"):
            self.expect(f"{size >> 20} MiB of text", path, 200 if any(part in path for part in ("_tokens", "/render")) else 400,
                        post(self.text_of(body, '"' + "a " * (size // 2) + '"')))

    def announce(self, path, size):
        """The answer to a head that promises so long a body."""
        import socket
        with socket.create_connection((self.server.host, self.server.port), timeout=60) as connection:
            connection.sendall((f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: "
                                f"Bearer {KEY}\r\nContent-Length: {size}\r\n\r\n").encode())
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), {}, body

    def run(self):
        for path, (access, body) in ROUTES.items():
            path = path.replace("MODEL", self.model)
            status, _, _ = self.ask("POST" if body else "GET", path, self.text_of(body) if body else None)
            if status == 404 and path in MAY_BE_MISSING:
                print(f"left out: {path} is not served")
                continue
            self.methods(path, access, body)
            self.keys(path, access, body)
            if body:
                self.bodies(path, body)
                self.sizes(path, body)
        for path, method in ADMIN_ROUTES.items():
            self.admin_keys(path, method)
        for path in ("/nowhere", "/v1/nowhere", "/v1/messages/nowhere", "/api/nowhere", "/v1", "/api", "//v1/models"):
            for method in ("GET", "POST"):
                self.expect(f"{method} an unknown path", path, 404, self.ask(method, path, b"{}" if method == "POST" else None))


def main():
    pagoda, model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--max-body-bytes", str(MAX_BODY_BYTES)]
        for name, key in (("api", KEY), ("admin", ADMIN_KEY)):
            path = os.path.join(folder, name)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(key + "\n")
            flags += [f"--{name}-key-file", path]
        with Server(pagoda, model, *flags) as server:
            served = server.json("GET", "/v1/models", headers={"Authorization": "Bearer " + KEY})["data"][0]["id"]
            walk = Walk(server, served)
            walk.run()
    print(f"{walk.num_requests} requests, {len(walk.failures)} failures")
    sys.exit(1 if walk.failures else 0)


if __name__ == "__main__":
    main()
