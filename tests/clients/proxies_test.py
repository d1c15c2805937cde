#!/usr/bin/env python3
"""Streams through nginx, haproxy and caddy as they are without settings of their own: each token comes when it is made. A proxy
that is not installed is skipped. Standard library only.

usage: proxies_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from ports import free_port
from server import main

NUM_TOKENS = 40
server = None
model = None

# Each listens on PORT, and serves the server at UPSTREAM at / and, but for haproxy's plain one, below /llm/.
CONFIGS = {
    "nginx": ("nginx.conf", """
daemon off; pid FOLDER/nginx.pid; error_log FOLDER/error.log; worker_processes 1;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  server {
    listen 127.0.0.1:PORT;
    location / { proxy_pass http://UPSTREAM; }
    location /llm/ { proxy_pass http://UPSTREAM/; }
  }
}
""", ("nginx", "-p", "FOLDER", "-c", "CONFIG")),
    "nginx with keep-alive": ("nginx.conf", """
daemon off; pid FOLDER/nginx.pid; error_log FOLDER/error.log; worker_processes 1;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
  upstream pagoda { server UPSTREAM; keepalive 4; }
  proxy_http_version 1.1; proxy_set_header Connection "";
  server {
    listen 127.0.0.1:PORT;
    location / { proxy_pass http://pagoda; }
    location /llm/ { proxy_pass http://pagoda/; }
  }
}
""", ("nginx", "-p", "FOLDER", "-c", "CONFIG")),
    "haproxy": ("haproxy.cfg", """
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend clients
  bind 127.0.0.1:PORT
  http-request replace-path /llm(/.*) \\1
  default_backend pagoda
backend pagoda
  server pagoda UPSTREAM
""", ("haproxy", "-db", "-f", "CONFIG")),
    "caddy": ("Caddyfile", """
{
  admin off
  auto_https off
}
http://:PORT {
  bind 127.0.0.1
  handle_path /llm/* {
    reverse_proxy UPSTREAM
  }
  reverse_proxy UPSTREAM
}
""", ("caddy", "run", "--adapter", "caddyfile", "--config", "CONFIG")),
}


def find(program):
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


class Proxy:
    def __init__(self, name, upstream):
        self.name, self.upstream = name, upstream

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        file, text, command = CONFIGS[self.name]
        config = os.path.join(self.folder.name, file)
        for word, value in (("FOLDER", self.folder.name), ("PORT", str(self.port)), ("UPSTREAM", self.upstream)):
            text = text.replace(word, value)
        with open(config, "w") as out:
            out.write(text)
        command = [each.replace("FOLDER", self.folder.name).replace("CONFIG", config) for each in command]
        self.process = subprocess.Popen([find(command[0]), *command[1:]], cwd=self.folder.name, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.folder.name})
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    raise RuntimeError(f"{self.name} does not start")
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.folder.cleanup()


class Client:
    """A plain connection: what comes is seen when it comes."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.held = b""

    def send(self, path, body, version="1.1"):
        text = json.dumps(body).encode()
        self.connection.sendall(f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                f"Content-Length: {len(text)}\r\n\r\n".encode() + text)

    def read_until(self, end):
        """(the bytes up to the first `end`, when each piece of them came)"""
        times = []
        while end not in self.held:
            piece = self.connection.recv(65536)
            if not piece:
                break
            times.append(time.monotonic())
            self.held += piece
        at = self.held.find(end)
        taken, self.held = (self.held, b"") if at < 0 else (self.held[:at + len(end)], self.held[at + len(end):])
        return taken, times

    def close(self):
        self.connection.close()


class Streams:
    """The tests of one proxy."""

    def setUp(self):
        program = CONFIGS[self.proxy_name][2][0]
        if not find(program):
            self.skipTest(program + " is not installed")
        self.proxy = self.enterContext(Proxy(self.proxy_name, f"{server.host}:{server.port}"))

    def stream(self, client, path="/v1/completions", version="1.1", end=b"data: [DONE]\n\n"):
        client.send(path, {"model": model, "prompt": "Once", "max_tokens": NUM_TOKENS, "ignore_eos": True,
                           "stream": True}, version)
        answer, times = client.read_until(end)
        self.assertIn(b" 200 ", answer.split(b"\r\n")[0], answer[:300])
        self.assertTrue(answer.endswith(end), answer[-200:])
        self.assertEqual(answer.count(b'"finish_reason":null'), NUM_TOKENS)
        # A proxy that holds a stream back brings it in one piece, or in pages of kilobytes. One that passes it on may join
        # tokens that come at nearly the same time.
        self.assertGreater(len(times), 2)
        self.assertGreater(times[-1] - times[0], 0.005)

    def client(self):
        client = Client(self.proxy.port)
        self.addCleanup(client.close)
        return client

    def test_each_token_comes_when_it_is_made(self):
        self.stream(self.client())

    def test_a_connection_takes_the_next_request(self):
        client = self.client()
        for _ in range(3):
            self.stream(client, end=b"data: [DONE]\n\n\r\n0\r\n\r\n")

    def test_below_a_path(self):
        self.stream(self.client(), "/llm/v1/completions")

    def test_http_1_0(self):
        self.stream(self.client(), version="1.0")

    def test_lines_of_ollama(self):
        client = self.client()
        client.send("/api/generate", {"model": model, "prompt": "Once", "raw": True,
                                      "options": {"num_predict": NUM_TOKENS}})
        answer, times = client.read_until(b'"done":true')
        self.assertIn(b" 200 ", answer.split(b"\r\n")[0], answer[:300])
        self.assertGreater(len(times), 2)

    def test_a_client_that_goes_has_its_request_cancelled(self):
        before = server.stats()["requests_aborted_total"]
        client = Client(self.proxy.port)
        client.send("/v1/completions", {"model": model, "prompt": "Once", "max_tokens": 2000, "ignore_eos": True,
                                        "stream": True})
        client.read_until(b"data: ")
        client.close()
        server.wait_until_idle(20)
        self.assertEqual(server.stats()["requests_aborted_total"], before + 1)


class Nginx(Streams, unittest.TestCase):
    proxy_name = "nginx"


class NginxWithKeepAlive(Streams, unittest.TestCase):
    proxy_name = "nginx with keep-alive"


class Haproxy(Streams, unittest.TestCase):
    proxy_name = "haproxy"


class Caddy(Streams, unittest.TestCase):
    proxy_name = "caddy"


if __name__ == "__main__":
    main(sys.modules[__name__], slow=True)
