#!/usr/bin/env python3
"""What becomes of an answer that is known word by word, in each API, with and without a stream. Standard library only.

usage: scripted_answers_test.py PAGODA [unittest arguments]
"""
import json
import socket
import sys
import tempfile
import unittest

import scripted_model
from server import Server

THOUGHT = "Question: is it? Note: yes"
THINKS = ["<think>", "\n" + THOUGHT, " \n", "</think>", "\n\n", "Fine. Note: done."]
EMOJI = ["A ", b"\xf0\x9f", b"\x98", b"\x80", " caf", b"\xc3", b"\xa9", "!"]
USER = [{"role": "user", "content": "Hi"}]
pagoda = None


class Scripted(unittest.TestCase):
    """The tests of one model."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        scripted_model.make(cls.folder.name, cls.pieces, cls.template)
        cls.server = Server(pagoda, cls.folder.name, "--served-model-name", "m", "--kv-cache-memory", "0.05", json_lines=True)
        cls.server.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def ask(self, path, body):
        return self.server.json("POST", path, {"model": "m", **body})

    def events(self, path, body):
        """The data of a stream's events, or its lines."""
        status, _, answer = self.server.request("POST", path, {"model": "m", "stream": True, **body})
        self.assertEqual(status, 200, answer)
        lines = [line.removeprefix("data: ") for line in answer.decode().splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def lines(self, request):
        """The events of a request by JSON lines."""
        with socket.create_connection((self.server.host, self.server.json_lines_port)) as connection:
            connection.sendall(json.dumps({"id": "a", "temperature": 0, **request}).encode() + b"\n")
            events = []
            for line in connection.makefile():
                events.append(json.loads(line))
                if events[-1]["event"] in ("done", "error"):
                    return events


class StopStrings(Scripted):
    pieces = THINKS
    template = scripted_model.THINKING

    def chat(self, stop, **more):
        body = {"messages": USER, "temperature": 0, "stop": stop, **more}
        whole = self.ask("/v1/chat/completions", body)["choices"][0]
        message = whole["message"]
        pieces = [event["choices"][0] for event in self.events("/v1/chat/completions", body)]
        for name in ("reasoning", "content"):
            streamed = "".join(piece["delta"].get(name) or "" for piece in pieces)
            self.assertEqual(streamed, message.get(name) or "", name)
        self.assertEqual(pieces[-1]["finish_reason"], whole["finish_reason"])
        self.assertEqual(pieces[-1]["stop_reason"], whole["stop_reason"])
        return message.get("reasoning"), message["content"], whole["finish_reason"], whole["stop_reason"]

    def test_chat(self):
        self.assertEqual(self.chat(["Note:"]), (THOUGHT, "Fine. ", "stop", "Note:"))
        self.assertEqual(self.chat(["Question:", "\n\n", "</think>", ">\n"]), (THOUGHT, "Fine. Note: done.", "stop", None))
        self.assertEqual(self.chat(["Fine"]), (THOUGHT, "", "stop", "Fine"))

    def test_the_stop_string_may_be_kept(self):
        self.assertEqual(self.chat(["Note:"], include_stop_str_in_output=True), (THOUGHT, "Fine. Note:", "stop", "Note:"))

    def test_a_thinking_that_is_cut_ends_before_the_answer(self):
        # Behind the end that is written for it the model goes on as behind its own.
        reasoning, content, finish, reason = self.chat(["Note:"], thinking_token_budget=1)
        self.assertNotIn("Fine", reasoning)
        self.assertEqual((content, finish, reason), ("Fine. ", "stop", "Note:"))

    def test_responses(self):
        body = {"input": "Hi", "temperature": 0, "stop": ["Note:", "\n\n"]}
        answer = self.ask("/v1/responses", body)
        thought, message = answer["output"]
        self.assertEqual(thought["content"][0]["text"], THOUGHT)
        self.assertEqual(message["content"][0]["text"], "Fine. ")
        streamed = self.events("/v1/responses", body)[-1]["response"]
        self.assertEqual([item["content"][0]["text"] for item in streamed["output"]], [THOUGHT, "Fine. "])

    def test_anthropic(self):
        body = {"messages": USER, "max_tokens": 50, "temperature": 0, "stop_sequences": ["Note:", "\n\n"],
                "thinking": {"type": "adaptive"}}
        answer = self.ask("/v1/messages", body)
        self.assertEqual([block.get("thinking") or block.get("text") for block in answer["content"]], [THOUGHT, "Fine. "])
        self.assertEqual((answer["stop_reason"], answer["stop_sequence"]), ("stop_sequence", "Note:"))
        texts = [event["delta"] for event in self.events("/v1/messages", body) if event["type"] == "content_block_delta"]
        self.assertEqual("".join(delta.get("thinking", "") for delta in texts), THOUGHT)
        self.assertEqual("".join(delta.get("text", "") for delta in texts), "Fine. ")

    def test_ollama(self):
        body = {"messages": USER, "options": {"temperature": 0, "stop": ["Note:", "\n\n"]}}
        message = self.ask("/api/chat", {**body, "stream": False})["message"]
        self.assertEqual((message["thinking"], message["content"]), (THOUGHT, "Fine. "))
        streamed = [event["message"] for event in self.events("/api/chat", body)]
        self.assertEqual("".join(each.get("thinking", "") for each in streamed), THOUGHT)
        self.assertEqual("".join(each["content"] for each in streamed), "Fine. ")

    def test_json_lines(self):
        text = "".join(THINKS)
        for stop, wanted in (("Note:", text[:text.rindex("Note:")]), ("Question:", text), ("\n\n", text)):
            events = self.lines({"messages": USER, "max_tokens": 50, "stop": [stop]})
            self.assertEqual(events[-1]["outputs"][0]["text"], wanted, stop)
            self.assertEqual("".join(event["text"] for event in events[:-1]), wanted, stop)

    def test_a_prompt_without_a_conversation_has_no_thinking(self):
        choice = self.ask("/v1/completions", {"prompt": "Hi\n", "max_tokens": 50, "temperature": 0, "stop": "Note:"})["choices"][0]
        self.assertEqual(choice["text"], "<think>\nQuestion: is it? ")


class Logprobs(Scripted):
    pieces = EMOJI
    template = scripted_model.CHATML
    TEXT = "A 😀 café!"
    BYTES = [list(piece if isinstance(piece, bytes) else piece.encode()) for piece in EMOJI]

    def check(self, entries, what):
        self.assertEqual([entry["bytes"] for entry in entries][:len(self.BYTES)], self.BYTES, what)
        joined = bytes(byte for entry in entries[:len(self.BYTES)] for byte in entry["bytes"])
        self.assertEqual(joined.decode(), self.TEXT, what)

    def test_bytes_in_chat(self):
        body = {"messages": USER, "temperature": 0, "logprobs": True, "top_logprobs": 1, "max_tokens": 8}
        entries = self.ask("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
        self.check(entries, "whole")
        self.check([entry["top_logprobs"][0] for entry in entries], "the likeliest")
        streamed = [event["choices"][0]["logprobs"] for event in self.events("/v1/chat/completions", body)]
        self.check([entry for each in streamed if each for entry in each["content"]], "stream")

    def test_bytes_in_responses(self):
        body = {"input": "Hi", "temperature": 0, "include": ["message.output_text.logprobs"], "top_logprobs": 1,
                "max_output_tokens": 16}
        self.check(self.ask("/v1/responses", body)["output"][0]["content"][0]["logprobs"], "whole")
        streamed = self.events("/v1/responses", body)[-1]["response"]
        self.check(streamed["output"][0]["content"][0]["logprobs"], "stream")

    def test_bytes_in_ollama(self):
        body = {"messages": USER, "logprobs": True, "top_logprobs": 1, "options": {"temperature": 0, "num_predict": 8}}
        self.check(self.ask("/api/chat", {**body, "stream": False})["logprobs"], "whole")
        streamed = self.events("/api/chat", body)
        self.check([entry for event in streamed for entry in event.get("logprobs", [])], "stream")

    def test_bytes_in_json_lines(self):
        events = self.lines({"messages": USER, "max_tokens": 8, "logprobs": 1})
        entries = events[-1]["outputs"][0]["logprobs"]
        self.check(entries, "whole")
        self.check([entry["top"][0] for entry in entries], "the likeliest")
        self.check([entry for event in events[:-1] for entry in event["logprobs"]], "stream")

    def test_text_offsets_are_places_in_the_text(self):
        places = [0, 2, 2, 2, 3, 7, 7, 8]
        body = {"prompt": "x\n", "temperature": 0, "logprobs": 1, "max_tokens": 8}
        whole = self.ask("/v1/completions", body)["choices"][0]
        self.assertEqual(whole["text"], self.TEXT)
        self.assertEqual(whole["logprobs"]["text_offset"], places)
        streamed = [event["choices"][0]["logprobs"] for event in self.events("/v1/completions", body)]
        self.assertEqual([place for each in streamed if each for place in each["text_offset"]], places)
        held = [event["choices"][0]["logprobs"]
                for event in self.events("/v1/completions", {**body, "stop": ["A 😀 cafe", "!!"]})]
        self.assertEqual([place for each in held if each for place in each["text_offset"]], places)
        echo = self.ask("/v1/completions", {**body, "prompt": "é\n", "echo": True})["choices"][0]
        self.assertEqual(echo["text"], "é\n" + self.TEXT)
        self.assertEqual(echo["logprobs"]["text_offset"], [0, 0, 1, *[2 + place for place in places]])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    pagoda = sys.argv.pop(1)
    unittest.main()
