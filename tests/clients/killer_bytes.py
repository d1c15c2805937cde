"""What kills servers below the bodies: bytes of HTTP that are none, connections that misbehave, and lines of the JSON
protocol. Standard library only.
"""
import json
import socket
import struct

from killer_bodies import BIG, DEEP, nested

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "Hi", "max_tokens": 2}'
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
CLOSED = 0  # no answer, only the end of the connection

# name: (bytes, statuses that the first answer may have)
HTTP_BYTES = {
    "vLLM CVE-2025-48956: a header of a megabyte": (GET + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", (431, 400, CLOSED)),
    "10,000 headers": (GET + b"".join(b"X%d: a\r\n" % i for i in range(10_000)) + b"\r\n", (431, 400, CLOSED)),
    "a name of a header of 100 KB": (GET + b"x" * 100_000 + b": a\r\n\r\n", (431, 400, CLOSED)),
    "a request line of a megabyte": (b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n", (414, 400, CLOSED)),
    "a path that leads out": (b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", (400, 404)),
    "a path that leads out, escaped": (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", (400, 404)),
    "a path with NUL": (b"GET /v1/models/%00 HTTP/1.1\r\nHost: x\r\n\r\n", (400, 404)),
    "a path with half an escape": (b"GET /v1/models/%f HTTP/1.1\r\nHost: x\r\n\r\n", (400,)),
    "NULs": (b"\0" * 65536, (400, CLOSED)),
    "TLS at a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 512, (400, CLOSED)),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505, CLOSED)),
    "HTTP/9.9": (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", (400, 505)),
    "HTTP/0.9": (b"GET /health\r\n\r\n", (400, 505, CLOSED)),
    "a method of 64 KB": (b"A" * 65536 + b" / HTTP/1.1\r\n\r\n", (400, 414, 431, 501, CLOSED)),
    "a length below 0": (HEAD + b"Content-Length: -1\r\n\r\n" + BODY, (400,)),
    "a length of 2^64": (HEAD + b"Content-Length: 18446744073709551616\r\n\r\n", (400, 413)),
    "a length of 2^63": (HEAD + b"Content-Length: 9223372036854775808\r\n\r\n", (400, 413)),
    "two lengths": (HEAD + b"Content-Length: 33\r\nContent-Length: 5\r\n\r\n" + BODY, (400,)),
    "a length and chunks": (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    "a length with a sign": (HEAD + b"Content-Length: +33\r\n\r\n" + BODY, (400,)),
    "a chunk of 2^64": (CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n", (400, 413)),
    "a chunk whose size is none": (CHUNKED + b"xyz\r\n", (400,)),
    "a chunk of a size below 0": (CHUNKED + b"-1\r\n", (400,)),
    "chunks of a byte each": (CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n", (200,)),
    "a chunk with an extension of a megabyte": (CHUNKED + b"1;" + b"a" * (1 << 20) + b"\r\n{\r\n", (400, 413, CLOSED)),
    "chunks with trailers without end": (CHUNKED + b"0\r\n" + b"X: a\r\n" * 100_000 + b"\r\n", (400, 413, 431, CLOSED)),
    "chunks longer than a body may be": (CHUNKED + b"100000\r\n" + b" " * 0x100000 + b"\r\n" + b"7FFFFFFF\r\n", (413,)),
    "an encoding of the transfer that is none": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", (400, 501)),
    "a bomb of gzip": (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00", (415,)),
    "an Expect that is none": (HEAD + b"Expect: 200-maybe\r\nContent-Length: 5\r\n\r\n", (417, 400)),
    "folded headers": (GET + b"X: a\r\n b\r\n\r\n", (400, 200)),
    "line ends without CR": (b"GET /health HTTP/1.1\nHost: x\n\n", (400, 200, CLOSED)),
    "no Host, and two": (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (400, 200)),
    "1,000 requests at once": (WHOLE * 1000, (200,)),
    "an id with bytes above 127": (HEAD + b"X-Request-Id: \xff\xfe\xc3\r\nContent-Length: 33\r\n\r\n" + BODY, (200, 400)),
    "an id of 8 KB": (HEAD + b"X-Request-Id: " + b"i" * 8000 + b"\r\nContent-Length: 33\r\n\r\n" + BODY, (200, 400)),
    "a traceparent that is none": (HEAD + b"traceparent: 00-zz-\r\nContent-Length: 33\r\n\r\n" + BODY, (200,)),
    "a range of bytes": (b"GET /metrics HTTP/1.1\r\nHost: x\r\nRange: bytes=0-,0-,0-,0-\r\n\r\n", (200, 206, 416)),
    "an upgrade": (GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", (200, 400, 426)),
    "keys without end": (GET + b"Authorization: Bearer " + b"k" * 15_000 + b"\r\n\r\n", (200, 431)),
}


def generate(**fields):
    return {"id": "k", "prompt": "Hi", "max_tokens": 4, **fields}


# name: (a line, or an object; events that may answer it; CLOSED: or the connection ends)
LINES = {
    "no JSON": (b"hello", ("error",)),
    "NULs": (b"\0" * 1000, ("error",)),
    "bytes that are no UTF-8": (b'{"id": "k", "prompt": "\xff\xfe"}', ("error",)),
    "lone surrogates": (b'{"id": "k", "prompt": "\\ud800"}', ("error",)),
    "arrays 100,000 deep": (b"[" * 100_000, ("error",)),
    "objects 100,000 deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ("error",)),
    "NaN": (b'{"id": "k", "prompt": "Hi", "temperature": NaN}', ("error",)),
    "a number of a million digits": (b'{"id": "k", "prompt": "Hi", "n": ' + b"9" * 1_000_000 + b"}", ("error",)),
    "an op that is none": ({"op": "shutdown", "id": "k"}, ("error",)),
    "an op of no type": ({"op": 7, "id": "k"}, ("error",)),
    "no id": ({"prompt": "Hi"}, ("error",)),
    "an id of a megabyte": ({"id": "i" * (1 << 20), "prompt": "Hi"}, ("error",)),
    "an id of no type": ({"id": {"a": 1}, "prompt": "Hi"}, ("error",)),
    "n of 2^63": (generate(n=BIG), ("error",)),
    "n of a million": (generate(n=1_000_000), ("error",)),
    "best_of of 2^31": (generate(best_of=2**31), ("error",)),
    "max_tokens below 0": (generate(max_tokens=-1), ("error",)),
    "max_tokens of 2^63": (generate(max_tokens=BIG), ("error",)),
    "an empty prompt": (generate(prompt=""), ("error", "done")),
    "no tokens": ({"id": "k", "prompt_token_ids": []}, ("error",)),
    "a token out of the vocabulary": ({"id": "k", "prompt_token_ids": [10**9]}, ("error",)),
    "a token of 2^63": ({"id": "k", "prompt_token_ids": [BIG]}, ("error",)),
    "a million tokens": ({"id": "k", "prompt_token_ids": [40] * 1_000_000}, ("error",)),
    "a prompt of 8 MiB": (generate(prompt="a" * (8 << 20)), ("error", CLOSED)),
    "a bias of a token that is none": (generate(logit_bias={"x": 1}), ("error",)),
    "100,000 stop strings": (generate(stop=["s"] * 100_000), ("error",)),
    "a regex of 60,000 groups": (generate(structured_outputs={"regex": "(" * DEEP + "a" + ")" * DEEP}), ("error",)),
    "a grammar of 60,000 groups": (generate(structured_outputs={"grammar": "root ::= " + "(" * DEEP + '"a"' + ")" * DEEP}),
                                   ("error",)),
    "a schema nested 2,000 deep": (generate(structured_outputs={"json": nested(
        2000, {"type": "string"}, lambda inner: {"type": "array", "items": inner})}), ("error",)),
    "cancel of nothing": ({"op": "cancel", "id": "nobody"}, ("error",)),
    "detokenize of 2^63": ({"op": "detokenize", "id": "k", "token_ids": [BIG]}, ("error",)),
    "tokenize of 4 MiB": ({"op": "tokenize", "id": "k", "text": "ab " * (1 << 20)}, ("tokens", "error", CLOSED)),
    "a template's variables nested 2,000 deep": ({"op": "apply_template", "id": "k", "messages": [
        {"role": "user", "content": "a"}], "chat_template_kwargs": {"x": nested(2000, 1, lambda inner: [inner])}},
        ("error", "text")),
    "messages that are none": ({"id": "k", "messages": [None]}, ("error",)),
    "auth without keys": ({"op": "auth", "key": "k" * 100_000}, ("error", "ok")),
    "stats with a field that is none": ({"op": "stats", "x": 1}, ("error",)),
    "a line that never ends": (b"a" * (40 << 20), ("error", CLOSED)),
    "empty lines without end": (b"\n" * 1_000_000 + b"{}", ("error",)),
}

PLEA = json.dumps(generate()).encode() + b"\n"
# What a web page can have a browser send to the port, each with a request behind it that must not run.
LINES_OF_PAGES = {
    "fetch": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nContent-Type: text/plain;charset=UTF-8\r\n"
             b"Content-Length: %d\r\n\r\n" % len(PLEA) + PLEA,
    "a form": b"POST /a?b HTTP/1.1\r\nHost: localhost:7070\r\nContent-Type: text/plain\r\n\r\na=" + PLEA + PLEA,
    "a method with a name of its own": b"chicken / HTTP/1.1\r\n\r\n" + PLEA,
    "WebSocket": b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + PLEA,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + PLEA,
    "TLS with a ticket of lines": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n" + PLEA,
}


def first_status(connection):
    """The status of the first answer; CLOSED where the connection ends without one."""
    answer = b""
    while b"\r\n" not in answer:
        try:
            piece = connection.recv(65536)
        except ConnectionError:
            return CLOSED
        if not piece:
            return CLOSED
        answer += piece
    return int(answer.split(b" ", 2)[1])


def send_bytes(server, data):
    """The status of the first answer to these bytes."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        try:
            connection.sendall(data)
        except ConnectionError:
            pass  # the server has seen enough; an answer may have come
        return first_status(connection)


def send_line(server, line):
    """The event that answers a line first, of those that end something; CLOSED where the connection ends instead."""
    data = line if isinstance(line, bytes) else json.dumps(line).encode()
    with socket.create_connection((server.host, server.json_lines_port), timeout=60) as connection:
        try:
            connection.sendall(data + b"\n")
        except ConnectionError:
            pass
        try:
            for answer in connection.makefile("rb"):
                if answer.strip() and (event := json.loads(answer)["event"]) != "delta":
                    return event
        except ConnectionError:
            pass
        return CLOSED


def events_of_lines(server, data):
    """All events that answer these bytes up to the end of the connection, which is the server's."""
    with socket.create_connection((server.host, server.json_lines_port), timeout=60) as connection:
        connection.sendall(data)
        return [json.loads(line)["event"] for line in connection.makefile("rb") if line.strip()]


# -- connections that misbehave for as long as they are kept: each returns sockets

def slowloris(server):
    kept = []
    for i in range(100):
        connection = socket.create_connection((server.host, server.port))
        connection.sendall((GET, HEAD, WHOLE[:-5], b"P")[i % 4])
        kept.append(connection)
    return kept


def streams_that_nobody_reads(server):
    kept = []
    body = json.dumps({"prompt": "Hi", "max_tokens": 400, "ignore_eos": True, "stream": True, "logprobs": 20}).encode()
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect((server.host, server.port))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        kept.append(connection)
    return kept


def half_closed(server):
    kept = []
    for _ in range(20):
        connection = socket.create_connection((server.host, server.port))
        connection.sendall(WHOLE)
        connection.shutdown(socket.SHUT_WR)
        kept.append(connection)
    return kept


def resets(server):
    for data in (b"", b"P", GET, HEAD, WHOLE[:-5], WHOLE, CHUNKED):
        for _ in range(10):
            connection = socket.create_connection((server.host, server.port))
            connection.sendall(data)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    return []


def lines_that_nobody_reads(server):
    kept = []
    for i in range(10):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect((server.host, server.json_lines_port))
        for j in range(8):
            line = {"id": f"{i}-{j}", "prompt": "Hi", "max_tokens": 300, "ignore_eos": True, "logprobs": 20}
            connection.sendall(json.dumps(line).encode() + b"\n")
        kept.append(connection)
    return kept


def silent_lines(server):
    kept = []
    for i in range(100):
        connection = socket.create_connection((server.host, server.json_lines_port))
        connection.sendall((b"", b"{", b'{"id": "k", "prompt": ', b"\n")[i % 4])
        kept.append(connection)
    return kept


def words_of_farewell(connection):
    """The code of the error with which JSON lines end a connection that asks for nothing; None where they do not."""
    connection.settimeout(60)
    answer = b""
    try:
        with connection:
            while piece := connection.recv(65536):
                answer += piece
    except OSError:
        return None
    return json.loads(answer)["error"]["code"] if answer else None


CONNECTIONS = (slowloris, streams_that_nobody_reads, half_closed, resets)
LINE_CONNECTIONS = (lines_that_nobody_reads, silent_lines)
