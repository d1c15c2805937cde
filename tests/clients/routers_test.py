#!/usr/bin/env python3
"""Several servers behind a router for servers of vLLM or SGLang, unchanged, as docs/scaling.md starts it: vllm-router,
sglang-router or smg, whichever this Python has. Standard library only beside it.

usage: routers_test.py PAGODA MODEL_DIR ROUTER [unittest arguments]
"""
import concurrent.futures
import contextlib
import http.client
import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from ports import free_port
from server import HERE, Server

TEMPLATE = os.path.join(HERE, "..", "..", "examples", "templates", "chatml-tools.jinja")
KEY = "a-key-that-is-good-enough"
ALL_READY = 90  # seconds
LONG = 500  # tokens: the demo model needs some tenths of a second for them
NUM_REQUESTS = 40

# What docs/scaling.md recommends: servers that drain or are overloaded leave within a second and come back within another,
# and a request is tried for longer than this takes. Circuit breakers count answers that say nothing about a server: all 4xx
# (sglang-router), and the 503 of a full queue.
FLAGS = ["--health-check-endpoint", "/ready", "--health-check-interval-secs", "1", "--health-failure-threshold", "1",
         "--health-success-threshold", "1", "--retry-max-retries", "10", "--disable-circuit-breaker"]


class Kind:
    """How one of the routers is started, and what not all of them do."""

    def __init__(self, module, arguments, passes=(), ways=(), loads=None):
        self.module = module
        self.arguments = arguments
        self.passes = passes  # what it passes on to servers
        self.ways = ways
        self.loads = loads  # the load of each server in its answer to GET /get_loads; None: it asks for none that it uses


KINDS = {
    "vllm-router": Kind("vllm_router", ["-m", "vllm_router.launch_router"],
                        passes={"messages", "tokens", "render", "unknown fields", "adapters"}, ways={"cuts broken streams"}),
    "sglang-router": Kind("sglang_router", ["-m", "sglang_router.launch_router"], passes={"adapters"},
                          ways={"cuts broken streams", "has one key"},
                          loads=lambda answer: [each["load"] for each in answer["workers"]]),
    "smg": Kind("smg", ["-m", "smg", "launch"], passes={"messages", "unknown fields"}, ways={"has one key"},
                loads=lambda answer: [each["num_total_reqs"] for each in answer["loads"]]),
}
pagoda = model_folder = kind = model = None


def ask(port, method, path, body=None, headers=None):
    """(status, headers, body); status 0 where the connection breaks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, {}, repr(error).encode()
    finally:
        connection.close()


class Backend(Server):
    """A server whose port stays the same when it is started again."""

    def __init__(self, *flags):
        super().__init__(pagoda, model_folder, "--threads", "1", "--kv-cache-memory", "0.1", "--chat-template", TEMPLATE, *flags)
        self.port = free_port()
        self.command[self.command.index("127.0.0.1:0")] = f"127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def num_running(self):
        return self.stats()["requests_running"]

    def num_finished(self):
        return self.stats()["requests_finished_total"]


class Group:
    """`with Group(...) as group`: servers and a router over them. group.ask(METHOD, PATH, BODY) asks the router."""

    def __init__(self, num_servers=2, policy="cache_aware", server_flags=(), flags=()):
        self.backends = [Backend(*server_flags) for _ in range(num_servers)]
        self.policy, self.flags = policy, flags

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for backend in self.backends:
                backend.__enter__()
                stack.callback(self.end_server, backend)
            self.log = stack.enter_context(tempfile.TemporaryFile())
            self.start_router()
            stack.callback(self.end_router)
            self.await_servers(len(self.backends))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start_router(self):
        self.port = free_port()
        urls = [f"http://127.0.0.1:{backend.port}" for backend in self.backends]
        command = [sys.executable, *kind.arguments, "--host", "127.0.0.1", "--port", str(self.port), "--prometheus-port",
                   str(free_port()), "--worker-startup-check-interval", "1", "--policy", self.policy, *FLAGS, *self.flags,
                   "--worker-urls", *urls]
        self.router = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def end_router(self):
        self.router.kill()
        self.router.wait()

    @staticmethod
    def end_server(backend):
        if backend.process.poll() is None:
            backend.process.kill()
            backend.process.wait()
        if not backend.process.stdout.closed:
            backend.process.stdout.close()

    def await_servers(self, number):
        """Waits until the router has that many servers that it takes for healthy."""
        deadline = time.monotonic() + ALL_READY
        while True:
            status, _, answer = ask(self.port, "GET", "/readiness")
            if status == 200 and json.loads(answer)["healthy_workers"] == number:
                return
            if self.router.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                raise RuntimeError(f"{kind.module} has no {number} servers: {answer!r}\n{self.log.read()[-3000:].decode()}")
            time.sleep(0.05)

    def ask(self, method, path, body=None, headers=None):
        return ask(self.port, method, path, body, headers)

    def json(self, method, path, body=None, headers=None):
        status, _, answer = self.ask(method, path, body, headers)
        assert status == 200, (method, path, status, answer[:500])
        return json.loads(answer)

    def totals(self, name):
        return [backend.stats()[name] for backend in self.backends]

    def busiest(self):
        """Waits until every server computes; the one with the most requests."""
        deadline = time.monotonic() + 30
        while not all(numbers := [backend.num_running() for backend in self.backends]):
            assert time.monotonic() < deadline, f"requests stay on some of the servers: {numbers}"
        return self.backends[numbers.index(max(numbers))]


def chat(text="A story, please.", **fields):
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}


def completion(prompt="Once upon a time", **fields):
    return {"model": model, "prompt": prompt, "max_tokens": 8, **fields}


def has_ended(path, answer):
    """Whether a stream of that route came to its end without an error."""
    if b'"error":{' in answer or b"event: error" in answer:
        return False
    ends = {"/v1/messages": b"event: message_stop", "/v1/responses": b"event: response.incomplete"}
    return ends.get(path, b"data: [DONE]") in answer



class Apis(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = Group()
        cls.enterClassContext(cls.group)

    def needs(self, feature):
        if feature not in kind.passes:
            self.skipTest(f"{kind.module} does not pass on {feature}")

    def refusal(self, path, body):
        status, _, answer = self.group.ask("POST", path, body)
        return status, json.loads(answer)["error"]

    def test_health_and_models(self):
        for path in ("/health", "/liveness", "/readiness", "/health_generate"):
            self.assertEqual(self.group.ask("GET", path)[0], 200, path)
        self.assertEqual([each["id"] for each in self.group.json("GET", "/v1/models")["data"]], [model])
        about = self.group.json("GET", "/get_model_info")
        self.assertEqual((about["model_path"], about["is_generation"]), (model, True))
        self.assertTrue(self.group.json("GET", "/get_server_info"))

    def test_chats(self):
        answer = self.group.json("POST", "/v1/chat/completions", chat())
        self.assertEqual((answer["model"], answer["usage"]["completion_tokens"]), (model, 8))
        answer = self.group.json("POST", "/v1/chat/completions", chat(n=3, temperature=1, seed=1))
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2])
        answer = self.group.json("POST", "/v1/chat/completions", chat(logprobs=True, top_logprobs=2))
        self.assertEqual(len(answer["choices"][0]["logprobs"]["content"]), 8)

    def test_completions(self):
        answer = self.group.json("POST", "/v1/completions", completion(["Once", "The"], temperature=0, echo=True))
        self.assertEqual([choice["text"].split()[0] for choice in answer["choices"]], ["Once", "The"])
        if "tokens" in kind.passes:
            answer = self.group.json("POST", "/v1/completions", completion([40, 41, 42]))
            self.assertEqual(answer["usage"]["prompt_tokens"], 3)

    def test_streams(self):
        for path, body in (("/v1/chat/completions", chat(stream=True)), ("/v1/completions", completion(stream=True)),
                           ("/v1/responses", {"model": model, "input": "A story", "max_output_tokens": 16, "stream": True})):
            status, headers, answer = self.group.ask("POST", path, body)
            self.assertEqual((status, headers["content-type"].split(";")[0]), (200, "text/event-stream"), answer[:300])
            self.assertTrue(has_ended(path, answer), answer[-300:])
            self.assertGreater(answer.count(b"data: "), 4)
        answer = self.group.ask("POST", "/v1/completions", completion(stream=True, stream_options={"include_usage": True}))[2]
        self.assertIn(b'"completion_tokens":8', answer)

    def test_responses(self):
        body = {"model": model, "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
                "instructions": "Be short.", "max_output_tokens": 16}
        answer = self.group.json("POST", "/v1/responses", body)
        self.assertEqual((answer["object"], answer["output"][0]["type"]), ("response", "message"))

    def test_messages(self):
        self.needs("messages")
        answer = self.group.json("POST", "/v1/messages", chat())
        self.assertEqual((answer["type"], answer["usage"]["output_tokens"]), ("message", 8))
        answer = self.group.ask("POST", "/v1/messages", chat(stream=True))[2]
        self.assertTrue(has_ended("/v1/messages", answer), answer[-300:])
        self.assertEqual(list(self.group.json("POST", "/v1/messages/count_tokens",
                                              {"model": model, "messages": chat()["messages"]})), ["input_tokens"])

    def test_tools(self):
        tool = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}}
        answer = self.group.json("POST", "/v1/chat/completions", chat(tools=[tool], tool_choice="required", max_tokens=100))
        call = answer["choices"][0]["message"]["tool_calls"][0]
        self.assertEqual(call["function"]["name"], "weather")
        self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Rome", "Oslo"))
        conversation = [*chat()["messages"], answer["choices"][0]["message"],
                        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
        answer = self.group.json("POST", "/v1/chat/completions", chat(messages=conversation, tools=[tool]))
        self.assertEqual(answer["usage"]["completion_tokens"], 8)

    def test_structured_outputs(self):
        schema = {"type": "object", "properties": {"legs": {"enum": [2, 4]}}, "required": ["legs"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}
        answer = self.group.json("POST", "/v1/chat/completions", chat(response_format=form, max_tokens=60))
        self.assertIn(json.loads(answer["choices"][0]["message"]["content"]), ({"legs": 2}, {"legs": 4}))

    def test_errors_are_the_servers(self):
        status, error = self.refusal("/v1/completions", completion("word " * 3000))
        self.assertEqual((status, error["code"]), (400, "context_length_exceeded"))
        for body in ({"model": model}, chat(max_tokens=-1), chat(temperature="hot")):
            self.assertIn(self.group.ask("POST", "/v1/chat/completions", body)[0], (400, 422))  # of the router itself
        status, error = self.refusal("/v1/chat/completions", chat(model="nonesuch"))
        self.assertEqual((status, error["code"]), (404, "model_not_found"))
        for _ in range(30):  # which do not count against the servers
            self.group.ask("POST", "/v1/completions", completion("word " * 3000))
        self.group.json("POST", "/v1/completions", completion())

    def test_fields_that_only_pagoda_knows(self):
        answer = self.group.json("POST", "/v1/completions", completion(min_p=0.1, priority=1))
        self.assertEqual(answer["usage"]["completion_tokens"], 8)
        self.needs("unknown fields")
        self.assertIn("ttft_ms", self.group.json("POST", "/v1/completions", completion(timing=True))["timing"])
        _, headers, _ = self.group.ask("POST", "/v1/chat/completions", chat(colour=1))
        self.assertEqual(headers.get("x-pagoda-ignored"), "colour")

    def test_ids_are_passed_on(self):
        status, headers, answer = self.group.ask("POST", "/v1/chat/completions", chat(), {"x-request-id": "mine-7"})
        self.assertEqual((status, headers["x-request-id"], json.loads(answer)["id"]), (200, "mine-7", "chatcmpl-mine-7"))

    def test_render(self):
        self.needs("render")
        self.assertTrue(self.group.json("POST", "/v1/chat/completions/render", chat())["token_ids"])
        self.assertTrue(self.group.json("POST", "/v1/completions/render", completion())[0]["token_ids"])

    def test_a_client_that_goes_has_its_request_cancelled(self):
        for stream in (True, False):
            before = sum(self.group.totals("requests_aborted_total"))
            body = json.dumps(completion(max_tokens=LONG, ignore_eos=True, stream=stream)).encode()
            with socket.create_connection(("127.0.0.1", self.group.port), timeout=60) as client:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
                while not any(backend.num_running() for backend in self.group.backends):
                    pass
            for backend in self.group.backends:
                backend.wait_until_idle(20)
            self.assertEqual(sum(self.group.totals("requests_aborted_total")), before + 1, f"stream {stream}")

    def test_a_prefix_goes_where_it_is_cached(self):
        """Of all routes, since each has a text of its own to route by."""
        story = "The fox and the crow went to the meadow to find a little house. " * 6
        bodies = {"/v1/completions": lambda text: completion(text),
                  "/v1/chat/completions": lambda text: chat(text),
                  "/v1/responses": lambda text: {"model": model, "input": text, "max_output_tokens": 16}}
        for path, body in bodies.items():
            for _ in range(3):
                start = f"Story {random.random()}. {story}"
                usages = [self.group.json("POST", path, body(start + end))["usage"]
                          for end in ("", "And then?", "And then? It was late.", "So?")]
                cached = [(each.get("prompt_tokens_details") or each["input_tokens_details"])["cached_tokens"] for each in usages]
                self.assertEqual(cached[0], 0, path)
                self.assertTrue(all(number >= 64 for number in cached[1:]), (path, cached))

    def test_the_load_is_known(self):
        if kind.loads is None:
            self.skipTest(f"{kind.module} asks for no load that it uses")
        loads = lambda: kind.loads(self.group.json("GET", "/get_loads"))
        deadline = time.monotonic() + 30  # smg asks every 10 s
        while len(found := loads()) < 2:
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.2)
        self.assertEqual(found, [0, 0])


class Balance(unittest.TestCase):
    def test_each_server_has_its_share(self):
        with Group(3, policy="round_robin") as group:
            for _ in range(12):
                group.json("POST", "/v1/completions", completion())
            self.assertEqual(group.totals("requests_finished_total"), [4, 4, 4])


class Overload(unittest.TestCase):
    def test_full_queues(self):
        """What one server refuses (503) is tried again until there is room."""
        with Group(server_flags=["--max-num-seqs", "2", "--max-queued-requests", "4"]) as group:
            with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as pool:
                bodies = [completion(f"{i} foxes", max_tokens=60, ignore_eos=True) for i in range(NUM_REQUESTS)]
                answers = [pool.submit(group.ask, "POST", "/v1/completions", body) for body in bodies]
                self.assertEqual([each.result()[0] for each in answers], [200] * NUM_REQUESTS)


class LostServers(unittest.TestCase):
    """40 requests at a time on three servers, one of which goes. All requests ask different things, so that no policy puts
    them on one server."""

    def setUp(self):
        self.group = self.enterContext(Group(3, policy="round_robin"))
        self.pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS))

    def load(self, **fields):
        bodies = [completion(f"{i} foxes", max_tokens=LONG, ignore_eos=True, **fields) for i in range(NUM_REQUESTS)]
        return [self.pool.submit(self.group.ask, "POST", "/v1/completions", body) for body in bodies]

    def check_answers(self, answers):
        failed = [(status, answer[-300:]) for status, _, answer in answers if status != 200]
        self.assertEqual(failed, [])
        self.assertEqual([json.loads(answer)["usage"]["completion_tokens"] for _, _, answer in answers], [LONG] * NUM_REQUESTS)

    def check_return(self, backend):
        """A server that is started again gets requests again."""
        backend.__enter__()
        self.group.await_servers(3)
        deadline = time.monotonic() + 30
        while backend.num_finished() == 0:
            self.group.json("POST", "/v1/completions", completion())
            self.assertLess(time.monotonic(), deadline, "the server that came back gets no requests")

    def test_a_killed_server(self):
        waiting = self.load()
        victim = self.group.busiest()
        victim.kill()
        self.check_answers([each.result() for each in waiting])
        self.check_return(victim)

    def test_streams_of_a_killed_server_end_with_an_error(self):
        """No router can take up a stream that has begun: its client must see that it is not whole."""
        waiting = self.load(stream=True)
        victim = self.group.busiest()
        lost = victim.num_running()
        victim.kill()
        answers = [each.result() for each in waiting]
        whole = [answer for status, _, answer in answers if status == 200 and has_ended("/v1/completions", answer)]
        self.assertEqual({answer.count(b'"finish_reason":null') for answer in whole} - {LONG}, set())
        self.assertGreaterEqual(len(whole), NUM_REQUESTS - lost - 1)
        broken = [(status, answer) for status, _, answer in answers if answer not in whole]
        if "cuts broken streams" in kind.ways:
            self.assertEqual({status for status, _ in broken} - {0}, set())
        else:
            self.assertTrue(all(b'"error"' in answer for _, answer in broken))

    def test_a_server_that_hangs(self):
        """Its requests wait until something ends it, as a liveness probe does. Others go elsewhere once the router knows."""
        waiting = self.load()
        victim = self.group.busiest()
        victim.process.send_signal(signal.SIGSTOP)
        self.group.await_servers(2)
        late = [self.pool.submit(self.group.ask, "POST", "/v1/completions", completion(f"{i} crows")) for i in range(12)]
        self.assertEqual({each.result()[0] for each in late}, {200})
        victim.kill()
        self.check_answers([each.result() for each in waiting])

    def test_a_server_that_drains(self):
        waiting = self.load() + self.load(stream=True)
        victim = self.group.busiest()
        victim.process.send_signal(signal.SIGTERM)
        late = [self.pool.submit(self.group.ask, "POST", "/v1/completions", completion(f"{i} crows")) for i in range(NUM_REQUESTS)]
        self.check_answers([each.result() for each in waiting[:NUM_REQUESTS]])
        streams = [each.result() for each in waiting[NUM_REQUESTS:]]
        self.assertTrue(all(status == 200 and has_ended("/v1/completions", answer) for status, _, answer in streams))
        self.assertEqual({each.result()[0] for each in late}, {200})
        self.assertEqual(victim.process.wait(60), 0)
        victim.process.stdout.close()
        self.check_return(victim)

    def test_a_prefix_of_a_server_that_drains(self):
        """The router would rather send it there: it is tried until the router knows better."""
        self.group.__exit__()
        group = self.enterContext(Group(2))
        story = "The fox and the crow went to the meadow to find a little house. " * 6
        for _ in range(3):
            group.json("POST", "/v1/completions", completion(story))
        numbers = group.totals("requests_finished_total")
        victim = group.backends[numbers.index(max(numbers))]
        body = completion("Long", max_tokens=LONG, ignore_eos=True, n=16, temperature=1)
        busy = self.pool.submit(victim.request, "POST", "/v1/completions", body)
        while victim.num_running() == 0:
            pass
        victim.process.send_signal(signal.SIGTERM)
        while victim.process.poll() is None:
            status, _, answer = group.ask("POST", "/v1/completions", completion(story))
            self.assertEqual(status, 200, answer)
        self.assertEqual(busy.result()[0], 200)


class Keys(unittest.TestCase):
    def test_servers_with_keys(self):
        flags = ["--api-key", KEY] if "has one key" in kind.ways else []
        with Group(server_flags=["--api-key", KEY], flags=flags) as group:
            for path, body in (("/v1/chat/completions", chat()), ("/v1/completions", completion())):
                self.assertEqual(group.ask("POST", path, body)[0], 401, path)
                self.assertEqual(group.ask("POST", path, body, {"Authorization": "Bearer wrong"})[0], 401, path)
                group.json("POST", path, body, {"Authorization": "Bearer " + KEY})
            if kind.loads:
                self.assertEqual(group.ask("GET", "/get_loads", None, {"Authorization": "Bearer " + KEY})[0], 200)


class Adapters(unittest.TestCase):
    def test_an_adapter_is_named_as_the_model(self):
        folder = os.path.join(HERE, "..", "..", "examples", "adapters", "dragons")
        with Group(server_flags=["--enable-lora", "--lora-modules", "dragons=" + folder]) as group:
            group.json("POST", "/v1/completions", completion())
            status, _, answer = group.ask("POST", "/v1/completions", completion(model="dragons"))
            if "adapters" in kind.passes:
                self.assertEqual((status, json.loads(answer)["model"]), (200, "dragons"))
            else:
                self.assertEqual((status, json.loads(answer)["error"]["code"]), (404, "model_not_found"))


class Start(unittest.TestCase):
    def test_a_router_that_starts_before_its_servers(self):
        group = Group()
        with tempfile.TemporaryFile() as group.log, contextlib.ExitStack() as stack:
            group.start_router()
            stack.callback(group.end_router)
            time.sleep(2)
            self.assertNotEqual(ask(group.port, "GET", "/readiness")[0], 200)
            for backend in group.backends:
                stack.enter_context(backend)
            group.await_servers(2)
            group.json("POST", "/v1/completions", completion())


def main():
    global pagoda, model_folder, kind, model
    if len(sys.argv) < 4 or sys.argv[3] not in KINDS:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR {'|'.join(KINDS)} [unittest arguments]")
    pagoda, model_folder, name, *arguments = sys.argv[1:]
    kind = KINDS[name]
    if importlib.util.find_spec(kind.module) is None:
        print(f"skipped: this Python has no {name}")
        sys.exit(77)
    model = re.sub(r".*/", "", os.path.normpath(model_folder))
    unittest.main(argv=[sys.argv[0], *arguments])


if __name__ == "__main__":
    main()
