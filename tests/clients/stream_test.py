#!/usr/bin/env python3
"""What streams look like byte by byte. Standard library only.

usage: stream_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import sys
import unittest

from raw_stream import RawStream
from server import main

PROMPT = "Once upon a time there was a little"
MESSAGES = [{"role": "user", "content": "A story, please."}]
server = None
model = None


class Streams(unittest.TestCase):
    def read(self, path, body, content_type):
        """The chunks of a stream; each of them must be text on its own."""
        stream = RawStream(server, path, {"temperature": 0, "stream": True, **body} if "/v1" in path else body)
        self.assertEqual(stream.status, 200)
        self.assertEqual(stream.headers["content-type"].split(";")[0], content_type)
        self.assertEqual(stream.headers["transfer-encoding"], "chunked")
        chunks = list(stream.chunks())
        stream.close()
        for chunk in chunks:
            chunk.decode("utf-8", "strict")
        return chunks

    def events(self, path, body):
        """The JSON of the events of an SSE stream. No event is cut by a chunk's end."""
        chunks = self.read(path, body, "text/event-stream")
        events = []
        for chunk in chunks:
            self.assertTrue(chunk.endswith(b"\n\n"), chunk)
            for event in chunk[:-2].split(b"\n\n"):
                self.assertTrue(event.startswith(b"data: "), event)
                self.assertEqual(event.count(b"\n"), 0, event)
                events.append(event[len(b"data: "):])
        self.assertEqual(events[-1], b"[DONE]")
        self.assertNotIn(b"[DONE]", events[:-1])
        return [json.loads(event) for event in events[:-1]]

    def test_every_completion_event_is_whole_json(self):
        body = {"prompt": PROMPT, "max_tokens": 60}
        whole = server.json("POST", "/v1/completions", {**body, "temperature": 0})
        events = self.events("/v1/completions", body)
        self.assertEqual("".join(e["choices"][0]["text"] for e in events), whole["choices"][0]["text"])

    def test_every_chat_event_is_whole_json(self):
        body = {"messages": MESSAGES, "max_tokens": 60}
        whole = server.json("POST", "/v1/chat/completions", {**body, "temperature": 0})
        events = self.events("/v1/chat/completions", body)
        self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events),
                         whole["choices"][0]["message"]["content"])

    def test_what_is_chosen_at_the_end_is_told_once(self):
        for fields in ({"use_beam_search": True, "n": 2}, {"best_of": 3, "n": 2, "temperature": 1, "seed": 4}):
            body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 0, **fields}
            whole = server.json("POST", "/v1/completions", body)
            texts, num_tokens = ["", ""], [0, 0]
            for event in self.events("/v1/completions", body):
                choice = event["choices"][0]
                texts[choice["index"]] += choice["text"]
                num_tokens[choice["index"]] += len((choice["logprobs"] or {"tokens": []})["tokens"])
            self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
            self.assertEqual(num_tokens, [12, 12])

    def test_characters_of_several_bytes_are_never_cut(self):
        """A hot temperature and every token allowed: pieces of characters come, which must be held until whole."""
        ids = []
        for seed in range(6):
            body = {"prompt": "é 日本 🙂", "max_tokens": 120, "temperature": 2, "seed": seed, "ignore_eos": True,
                    "return_token_ids": True}
            whole = server.json("POST", "/v1/completions", {**body, "stream": False})["choices"][0]
            events = self.events("/v1/completions", body)
            self.assertEqual("".join(e["choices"][0]["text"] for e in events), whole["text"])
            ids += [i for e in events for i in e["choices"][0].get("token_ids", [])]
        self.assertTrue(ids)

    def test_every_line_of_an_ollama_stream_is_whole_json(self):
        for path, ask in (("/api/generate", {"prompt": PROMPT, "raw": True}), ("/api/chat", {"messages": MESSAGES})):
            body = {"model": model, "options": {"temperature": 0, "num_predict": 40}, **ask}
            chunks = self.read(path, body, "application/x-ndjson")
            lines = []
            for chunk in chunks:
                self.assertTrue(chunk.endswith(b"\n"), chunk)
                lines += [json.loads(line) for line in chunk.splitlines()]
            whole = server.json("POST", path, {**body, "stream": False})
            def text(answer):
                return answer["response"] if "response" in answer else answer["message"]["content"]
            self.assertEqual("".join(map(text, lines)), text(whole))
            self.assertEqual([line["done"] for line in lines], [False] * (len(lines) - 1) + [True])

    def test_the_first_token_comes_while_the_last_is_far(self):
        stream = RawStream(server, "/v1/completions",
                           {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True})
        next(iter(stream.chunks()))
        self.assertEqual(server.stats()["requests_running"], 1)
        stream.close()
        server.wait_until_idle(5)

    def test_the_connection_is_kept_for_the_next_request(self):
        stream = RawStream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "stream": True})
        list(stream.chunks())
        stream.connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b"200", stream.file.readline())
        stream.close()


if __name__ == "__main__":
    main(sys.modules["__main__"])
