#!/usr/bin/env python3
"""An agent without a library: each API gets its own answers back, as they were, turn by turn, with several chat templates. The
prompts that the APIs make of the same conversation have the same tokens.

usage: histories_test.py PAGODA MODEL_DIR PROJECT [unittest arguments]

Templates of ../shared/templates are skipped where that folder is absent.
"""
import json
import os
import sys
import unittest

from server import Server

PAGODA, MODEL, PROJECT = sys.argv[1:4]
TEMPLATES = ["examples/templates/chatml-tools.jinja",
             # calls in contents, "None" in the prompt
             "../shared/templates/LFM2.5-Instruct.jinja", "../shared/templates/GLM-4.6.jinja"]
SCHEMA = {"type": "object", "properties": {"room": {"enum": ["cellar", "attic"]}, "key": {"enum": [2**53 + 1, -2**63], "default": 2**64}},
          "required": ["room", "key"], "additionalProperties": False}
FUNCTION = {"name": "open_door", "description": "Opens a door.", "parameters": SCHEMA}
QUESTION, RESULT, NEXT = "Where is the key?", "it is open", "And then?"
TURNS = 2


class Agent:
    """Asks, answers the call that comes, and asks on. A subclass knows one API."""

    def __init__(self, server):
        self.server = server
        self.calls = []

    def run(self):
        for turn in range(TURNS):
            self.items += self.question(QUESTION if turn == 0 else NEXT)
            self.items += self.take(self.ask(has_to_call=True))
            call = self.calls[-1]
            if isinstance(call["arguments"], str):
                call["arguments"] = json.loads(call["arguments"])
            assert set(call["arguments"]) == {"room", "key"} and call["name"] == "open_door", call
            self.items += self.result(call["id"])
            self.items += self.take(self.ask(has_to_call=False))
        return self

    def question(self, text):
        return [{"role": "user", "content": text}]


class Chat(Agent):
    path = "/v1/chat/completions"

    def __init__(self, server):
        super().__init__(server)
        self.items = []

    def body(self):
        return {"messages": self.items, "tools": [{"type": "function", "function": FUNCTION}]}

    def ask(self, has_to_call, max_tokens=200):
        choice = "required" if has_to_call else "none"
        return self.server.json("POST", self.path, {**self.body(), "tool_choice": choice, "parallel_tool_calls": False,
                                                    "temperature": 0, "max_tokens": max_tokens if has_to_call else 4})

    def take(self, answer):
        message = answer["choices"][0]["message"]
        for call in message.get("tool_calls", []):
            self.calls.append({"id": call["id"], "name": call["function"]["name"],
                               "arguments": call["function"]["arguments"]})
        return [message]

    def result(self, id):
        return [{"role": "tool", "tool_call_id": id, "content": RESULT}]


class Responses(Chat):
    path = "/v1/responses"

    def body(self):
        return {"input": self.items, "tools": [{"type": "function", **FUNCTION}]}

    def ask(self, has_to_call, max_tokens=200):
        choice = "required" if has_to_call else "none"
        return self.server.json("POST", self.path, {**self.body(), "tool_choice": choice, "parallel_tool_calls": False,
                                                    "temperature": 0, "max_output_tokens": max_tokens if has_to_call else 4})

    def take(self, answer):
        for item in answer["output"]:
            if item["type"] == "function_call":
                self.calls.append({"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]})
        return answer["output"]

    def result(self, id):
        return [{"type": "function_call_output", "call_id": id, "output": RESULT}]


class Messages(Chat):
    path = "/v1/messages"

    def body(self):
        tool = {"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": SCHEMA}
        return {"messages": self.items, "tools": [tool]}

    def ask(self, has_to_call, max_tokens=200):
        choice = {"type": "any", "disable_parallel_tool_use": True} if has_to_call else {"type": "none"}
        return self.server.json("POST", self.path, {**self.body(), "tool_choice": choice, "temperature": 0,
                                                    "max_tokens": max_tokens if has_to_call else 4})

    def take(self, answer):
        for block in answer["content"]:
            if block["type"] == "tool_use":
                self.calls.append({"id": block["id"], "name": block["name"], "arguments": block["input"]})
        return [{"role": "assistant", "content": answer["content"]}]

    def result(self, id):
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": RESULT}]}]


def cut_calls(agent):
    """Asks with so few tokens that the call is cut off anywhere, and goes on behind it."""
    for max_tokens in range(8, 40, 4):
        before = list(agent.items)
        agent.items += agent.question(QUESTION)
        answer = agent.ask(has_to_call=True, max_tokens=max_tokens)
        agent.items += agent.take(answer)
        ids = [call["id"] for item in agent.items[len(before):] for call in item.get("tool_calls", [])]
        ids += [item["call_id"] for item in agent.items[len(before):] if item.get("type") == "function_call"]
        for id in ids:
            agent.items += agent.result(id)
        agent.items += agent.question(NEXT)
        agent.ask(has_to_call=False)
        agent.items = before
        yield bool(ids)


class Histories(unittest.TestCase):
    def test_own_answers_are_accepted_turn_by_turn(self):
        for template in TEMPLATES:
            path = os.path.join(PROJECT, template)
            if not os.path.exists(path):
                continue
            with self.subTest(template), Server(PAGODA, MODEL, "--chat-template", path, "--threads", "1") as server:
                chat = Chat(server).run()
                chat.items += chat.question(NEXT)
                self.assertEqual(len(chat.calls), TURNS)
                self.assertIn(chat.calls[0]["arguments"]["key"], (2**53 + 1, -2**63))
                prompt = server.json("POST", "/apply_template", chat.body())["prompt"]
                ids = server.json("POST", "/tokenize", chat.body())["tokens"]
                self.assertIn(str(2**64), prompt[:prompt.index(QUESTION)])
                behind = prompt[prompt.index(QUESTION):]
                for wanted in (str(chat.calls[0]["arguments"]["key"]), RESULT, NEXT):
                    self.assertIn(wanted, behind)
                self.assertNotIn("None", behind)
                usage = chat.ask(has_to_call=False)["usage"]
                self.assertEqual(usage["prompt_tokens"], len(ids))
                for kind in (Responses, Messages):
                    agent = kind(server).run()
                    # The same ids of calls, so that templates that show them make the same prompt.
                    agent = self.with_ids_of(agent, chat)
                    agent.items += agent.question(NEXT)
                    counted = agent.ask(has_to_call=False)["usage"]
                    tokens = counted["input_tokens"] + counted.get("cache_read_input_tokens", 0)
                    self.assertEqual(tokens, len(ids), kind.__name__)

    def with_ids_of(self, agent, other):
        text = json.dumps(agent.items)
        for mine, theirs in zip(agent.calls, other.calls):
            text = text.replace(mine["id"], theirs["id"])
        agent.items = json.loads(text)
        return agent

    def test_calls_that_were_cut_off_do_not_end_a_conversation(self):
        path = os.path.join(PROJECT, TEMPLATES[0])
        with Server(PAGODA, MODEL, "--chat-template", path, "--threads", "1") as server:
            for kind in (Chat, Responses, Messages):
                self.assertTrue(any(cut_calls(kind(server))) or kind is Messages, kind.__name__)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
