#!/usr/bin/env python3
"""Structured output as every interface spells it, over sockets. Standard library only.

usage: structured_output_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import re
import signal
import socket
import subprocess
import sys
import unittest

from raw_stream import RawStream, send
from server import Server, main

PROMPT = "Once upon a time"
PET = {"type": "object",
       "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"}, "kind": {"enum": ["cat", "dog"]},
                      "age": {"type": "integer", "minimum": 0, "maximum": 30}},
       "required": ["name", "kind", "age"], "additionalProperties": False}
MESSAGES = [{"role": "user", "content": "A pet, please."}]
server = None
model = None


class Structured(unittest.TestCase):
    def assert_pet(self, text):
        pet = json.loads(text)
        self.assertEqual(list(pet), ["name", "kind", "age"])
        self.assertRegex(pet["name"], "^[A-Z][a-z]{1,8}$")
        self.assertIn(pet["kind"], ("cat", "dog"))
        self.assertTrue(0 <= pet["age"] <= 30)

    def refused(self, path, param, **body):
        status, _, answer = server.request("POST", path, {"model": model, **body})
        error = json.loads(answer)["error"]
        self.assertEqual(status, 400, error)
        if param is not None:
            self.assertEqual(error["param"], param, error)
        return error["message"] if isinstance(error, dict) else error

    def refused_chat(self, param, **fields):
        return self.refused("/v1/chat/completions", param, messages=MESSAGES, **fields)

    def chat(self, **fields):
        return server.json("POST", "/v1/chat/completions",
                           {"model": model, "messages": MESSAGES, "max_tokens": 200, "temperature": 1.3, **fields})


class OpenAi(Structured):
    def test_a_chat_answers_by_its_schema(self):
        answer = self.chat(n=4, response_format={"type": "json_schema", "json_schema": {"name": "pet", "strict": True,
                                                                                       "schema": PET}})
        self.assertEqual(len(answer["choices"]), 4)
        for choice in answer["choices"]:
            self.assert_pet(choice["message"]["content"])
            self.assertEqual(choice["finish_reason"], "stop")

    def test_a_stream_is_the_whole(self):
        body = {"model": model, "messages": MESSAGES, "max_tokens": 200, "temperature": 1.3, "seed": 11,
                "response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": PET}}}
        whole = server.json("POST", "/v1/chat/completions", body)["choices"][0]["message"]["content"]
        text = ""
        for event in RawStream(server, "/v1/chat/completions", {**body, "stream": True}).chunks():
            for line in event.decode().splitlines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content", "")
        self.assertEqual(text, whole)
        self.assert_pet(text)

    def test_a_json_object_is_one(self):
        for seed in range(5):
            choice = self.chat(seed=seed, max_tokens=300, response_format={"type": "json_object"})["choices"][0]
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
            else:
                self.assertRegex(choice["message"]["content"], r"^\{")

    def test_the_kinds_of_structured_outputs(self):
        def complete(**constraint):
            answer = server.json("POST", "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 100, "n": 3,
                                                             "temperature": 1.5, "structured_outputs": constraint})
            self.assertEqual({choice["finish_reason"] for choice in answer["choices"]}, {"stop"})
            return [choice["text"] for choice in answer["choices"]]

        for text in complete(json=PET) + complete(json=json.dumps(PET)):
            self.assert_pet(text)
        for text in complete(regex=r"\d{3}-[a-f]+x"):
            self.assertRegex(text, r"^\d{3}-[a-f]+x$")
        for text in complete(choice=["left", "right", "straight on"]):
            self.assertIn(text, ("left", "right", "straight on"))
        for text in complete(grammar='root ::= "<" [a-c]{2,5} ">"'):
            self.assertRegex(text, "^<[a-c]{2,5}>$")

    def test_vllms_older_names(self):
        def complete(**fields):
            return server.json("POST", "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 200,
                                                           "temperature": 1.5, **fields})["choices"][0]["text"]

        self.assert_pet(complete(guided_json=PET))
        self.assert_pet(self.chat(guided_json=json.dumps(PET))["choices"][0]["message"]["content"])
        self.assertRegex(complete(guided_regex=r"[a-c]{3}\d"), r"^[a-c]{3}\d$")
        self.assertIn(complete(guided_choice=["left", "right"]), ("left", "right"))
        self.assertRegex(complete(guided_grammar='root ::= "<" [a-c]{2,5} ">"'), "^<[a-c]{2,5}>$")
        self.refused_chat("guided_regex", guided_regex="(")
        self.refused_chat("guided_choice", guided_choice=["a"], guided_regex="a")
        self.assertRegex(complete(regex=r"[a-c]{3}\d", guided_decoding_backend="outlines"), r"^[a-c]{3}\d$")
        self.assertRegex(complete(ebnf='root ::= "<" [a-c]{2,5} ">"'), "^<[a-c]{2,5}>$")
        self.assert_pet(complete(json_schema=json.dumps(PET)))

    def test_a_response_answers_by_its_format(self):
        text_format = {"type": "json_schema", "name": "pet", "schema": PET, "strict": True}
        answer = server.json("POST", "/v1/responses", {"model": model, "input": "A pet, please.",
                                                       "max_output_tokens": 200, "text": {"format": text_format}})
        self.assert_pet(answer["output"][0]["content"][0]["text"])
        self.assertEqual(answer["text"]["format"], text_format)

    def test_what_is_wrong_is_named(self):
        schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
        message = self.refused_chat("response_format", response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
        self.assertIn("uniqueItems", message)
        self.assertIn("/properties/a", message)
        self.refused_chat("response_format.type", response_format={"type": "yaml"})
        self.refused_chat("structured_outputs", structured_outputs={"regex": "("})
        self.refused_chat("structured_outputs", structured_outputs={"regex": "a", "choice": ["b"]})
        self.refused_chat("structured_outputs.structural_tag", structured_outputs={"structural_tag": 3})
        self.refused_chat("structured_outputs", structured_outputs={"structural_tag": {}})
        self.refused_chat("ignore_eos", structured_outputs={"regex": "a"}, ignore_eos=True)
        self.refused_chat("min_tokens", structured_outputs={"regex": "a"}, min_tokens=2)
        self.refused("/v1/responses", "text.format", input="a",
                     text={"format": {"type": "json_schema", "name": "n", "schema": {"$ref": "#"}}})

    def test_others_go_on_while_a_grammar_is_compiled(self):
        slow = send(server, "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 4,
                                                "structured_outputs": {"regex": "([a-z]{1,900} ){1,9}"}})
        server.json("POST", "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 4})
        slow.close()
        server.wait_until_idle(30)

    def test_a_cut_answer_says_so(self):
        choice = self.chat(max_tokens=5, structured_outputs={"regex": "[a-z]{100}"})["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertRegex(choice["message"]["content"], "^[a-z]+$")


class Others(Structured):
    def test_a_message_of_anthropics_api(self):
        answer = server.json("POST", "/v1/messages", {"model": model, "messages": MESSAGES, "max_tokens": 200,
                                                      "structured_outputs": {"json": PET}})
        self.assert_pet(answer["content"][0]["text"])
        schema_format = {"type": "json_schema", "schema": PET}
        for fields in ({"output_config": {"format": schema_format}}, {"output_format": schema_format}):
            answer = server.json("POST", "/v1/messages", {"model": model, "messages": MESSAGES, "max_tokens": 200, **fields})
            self.assert_pet(answer["content"][0]["text"])
        status, _, answer = server.request("POST", "/v1/messages", {
            "model": model, "messages": MESSAGES, "max_tokens": 9,
            "output_config": {"format": {"type": "json_schema", "schema": {"$dynamicRef": "#a"}}}})
        self.assertEqual(status, 400)
        self.assertIn("$dynamicRef", json.loads(answer)["error"]["message"])

    def test_ollamas_format(self):
        body = {"model": model, "prompt": PROMPT, "stream": False, "options": {"num_predict": 200}}
        self.assert_pet(server.json("POST", "/api/generate", {**body, "format": PET})["response"])
        self.assert_pet(server.json("POST", "/api/chat", {"model": model, "messages": MESSAGES, "stream": False,
                                                          "format": PET})["message"]["content"])
        status, _, answer = server.request("POST", "/api/generate", {**body, "format": {"type": "array", "uniqueItems": True}})
        self.assertEqual(status, 400)
        self.assertIn("uniqueItems", json.loads(answer)["error"])

    def test_json_lines(self):
        pagoda = server.command[0]
        process = subprocess.Popen([pagoda, "serve", "--model", model_dir(), "--listen", "127.0.0.1:0", "--log-level",
                                    "warn"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.send_signal, signal.SIGTERM)
        port = int(re.search(r":(\d+)$", process.stdout.readline().strip())[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            lines = connection.makefile("rw", encoding="utf-8", newline="\n")

            def ask(request_id, constraint):
                lines.write(json.dumps({"id": request_id, "prompt": PROMPT, "stream": False, "max_tokens": 200, "n": 2,
                                        "structured_outputs": constraint}) + "\n")
                lines.flush()
                return json.loads(lines.readline())

            done = ask("a", {"json": PET})
            for output in done["outputs"]:
                self.assert_pet(output["text"])
            error = ask("b", {"json": {"type": "array", "uniqueItems": True}})
            self.assertEqual((error["event"], error["id"]), ("error", "b"))
            self.assertEqual((error["error"]["code"], error["error"]["param"]), ("invalid_request", "structured_outputs"))
            self.assertEqual(ask("c", {"choice": ["x"]})["outputs"][0]["text"], "x")


def model_dir():
    return server.command[server.command.index("--model") + 1]


if __name__ == "__main__":
    main(sys.modules["__main__"])
