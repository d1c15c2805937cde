#!/usr/bin/env python3
"""Thinking, end to end: how long it is, where it goes in each API, that a stream's pieces make the whole, and that what is
asked of the answer holds behind it. A model whose weights are random thinks of anything; when it ends is drawn as well,
more often than chance has it (logit_bias), or is the budget's.

usage: reasoning_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import contextlib
import json
import os
import sys
import tempfile
import unittest

import anthropic
import openai

from server import Server
from thinking_model import MARKS, thinking_model, write_template

MESSAGES = [{"role": "user", "content": "How warm is it?"}]
SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer", "minimum": -40, "maximum": 50}},
          "required": ["degrees"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "degrees", "schema": SCHEMA}}
TOOL = {"name": "degrees", "description": "Tells the degrees.", "parameters": SCHEMA}
MAX_TOKENS = 80
server = None
model = None
marks = None  # what the model writes around its thinking: one token each


def is_report(text):
    value = json.loads(text)
    return set(value) == {"degrees"} and type(value["degrees"]) is int and -40 <= value["degrees"] <= 50


def limit(has_form):
    """JSON may have much white space where weights are random."""
    return 2 * MAX_TOKENS if has_form else MAX_TOKENS


def bias():
    """So that the thinking ends by itself, sooner or later, and neither the answer nor the turn does so within it."""
    others = ["<|end_of_text|>"] if marks[0] == "<think>" else ["<|im_end|>", "<|im_start|>"]
    end, *others = server.json("POST", "/tokenize", {"prompt": marks[1] + "".join(others),
                                                     "add_special_tokens": False})["tokens"]
    return {str(end): 3.5} | {str(other): -100 for other in others}


def is_fast():
    """Not of a real model: less is asked of that."""
    return marks[0] == "<think>"


def seeds(count):
    return range(count if is_fast() else 1)


class Thinking:
    """One API: ask(thinks, stream, **fields) gives (thinking, content, thinking tokens, output tokens, how it ended)."""

    def ask(self, thinks=True, stream=False, budget=None, holds=False, calls=False, seed=1):
        raise NotImplementedError

    def test_a_streams_pieces_are_the_whole(self):
        cases = ({"budget": 20, "holds": True}, {"thinks": False}, {}, {"budget": 5}, {"holds": True, "seed": 2})
        for fields in cases[:len(cases) if is_fast() else 2]:
            with self.subTest(fields):
                self.assertEqual(self.ask(stream=True, **fields), self.ask(**fields))

    def test_it_thinks_when_it_is_to(self):
        num_both = 0
        for seed in seeds(6):
            thinking, content, thinking_tokens, output_tokens, end = self.ask(seed=seed)
            self.assertNotIn(marks[1], thinking)
            if thinking:
                self.assertGreater(thinking_tokens, 0)
            if content:
                num_both += 1 if thinking else 0
                self.assertLess(thinking_tokens + 1, output_tokens)  # and the mark of the end
            else:
                self.assertEqual(end, "length")
                self.assertGreaterEqual(thinking_tokens, output_tokens - 1)
        if marks[0] == "<think>":  # SmolLM2 mostly thinks on, or not at all
            self.assertGreater(num_both, 0)

    def test_it_does_not_think_when_it_is_not_to(self):
        thinking, content, thinking_tokens, _, _ = self.ask(thinks=False)
        self.assertEqual((thinking, thinking_tokens), ("", 0))
        self.assertTrue(content)

    def test_a_budget_holds(self):
        for budget in (1, 3, 17):
            for seed in seeds(2):
                thinking, content, thinking_tokens, output_tokens, _ = self.ask(budget=budget, seed=seed)
                # What the model writes in front of the end, a line end, is written for it.
                self.assertLessEqual(thinking_tokens, budget + 1)
                self.assertGreater(output_tokens, thinking_tokens)

    def test_what_is_behind_the_thinking_is_held_to_its_schema(self):
        thoughts = set()
        for seed in range(2):
            thinking, content, _, _, end = self.ask(holds=True, budget=30, seed=seed)
            thoughts.add(thinking)
            self.assertEqual(end, "stop")
            self.assertTrue(is_report(content), content)
        self.assertGreater(len(thoughts), 1)
        thinking, content, _, _, _ = self.ask(holds=True, thinks=False)
        self.assertEqual(thinking, "")
        self.assertTrue(is_report(content), content)

    def test_calls_come_behind_the_thinking(self):
        for stream in (False, True):
            thoughts = ""
            for seed in seeds(3):
                thinking, content, thinking_tokens, _, end = self.ask(calls=True, budget=12, seed=seed, stream=stream)
                thoughts += thinking
                self.assertEqual(end, "calls")
                self.assertTrue(is_report(content), content)
                self.assertLessEqual(thinking_tokens, 13)
            if is_fast():
                self.assertTrue(thoughts)


class OpenAiChat(Thinking, unittest.TestCase):
    def ask(self, thinks=True, stream=False, budget=None, holds=False, calls=False, seed=1):
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        fields = {"model": model, "messages": MESSAGES, "max_tokens": limit(holds or calls), "temperature": 1,
                  "seed": seed,
                  "logit_bias": bias(),
                  "extra_body": {"chat_template_kwargs": {"enable_thinking": thinks}, "thinking_token_budget": budget}}
        if holds:
            fields["response_format"] = FORMAT
        if calls:
            fields |= {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required",
                       "parallel_tool_calls": False}
        if not stream:
            answer = client.chat.completions.create(**fields)
            [choice] = answer.choices
            thinking = getattr(choice.message, "reasoning", None) or ""
            content = choice.message.content or ""
            if choice.message.tool_calls:
                content = choice.message.tool_calls[0].function.arguments
            end, usage = choice.finish_reason, answer.usage
        else:
            thinking, content, end = "", "", None
            for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields):
                usage = chunk.usage
                for choice in chunk.choices:
                    thought = getattr(choice.delta, "reasoning", None) or ""
                    self.assertFalse(content and thought)
                    thinking += thought
                    content += choice.delta.content or ""
                    for call in choice.delta.tool_calls or []:
                        content += call.function.arguments
                    end = choice.finish_reason or end
        return (thinking, content, usage.completion_tokens_details.reasoning_tokens, usage.completion_tokens,
                "calls" if end == "tool_calls" else end)

    def test_it_may_be_left_out(self):
        whole = server.json("POST", "/v1/chat/completions", {
            "messages": MESSAGES, "max_tokens": MAX_TOKENS, "seed": 1, "include_reasoning": False,
            "thinking_token_budget": 5, "logit_bias": bias()})
        self.assertNotIn("reasoning", whole["choices"][0]["message"])
        self.assertGreater(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_several_answers_are_counted_together(self):
        whole = server.json("POST", "/v1/chat/completions", {
            "messages": MESSAGES, "max_tokens": 30, "seed": 1, "n": 3, "thinking_token_budget": 4, "temperature": 1})
        counted = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
        self.assertGreater(counted, 5)
        self.assertLessEqual(counted, 15)  # of three


class OpenAiResponses(Thinking, unittest.TestCase):
    def ask(self, thinks=True, stream=False, budget=None, holds=False, calls=False, seed=1):
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        fields = {"model": model, "input": MESSAGES, "max_output_tokens": limit(holds or calls), "temperature": 1,
                  "extra_body": {"chat_template_kwargs": {"enable_thinking": thinks}, "thinking_token_budget": budget,
                                 "seed": seed, "logit_bias": bias()}}
        if holds:
            fields["text"] = {"format": {"type": "json_schema", "name": "degrees", "schema": SCHEMA}}
        if calls:
            fields |= {"tools": [{"type": "function", **TOOL}], "tool_choice": "required", "parallel_tool_calls": False}
        thought, said = "", ""
        if stream:
            with client.responses.stream(**fields) as events:
                for event in events:
                    if event.type == "response.reasoning_text.delta":
                        thought += event.delta
                    elif event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                        said += event.delta
                    elif event.type in ("response.completed", "response.incomplete"):
                        answer = event.response
        else:
            answer = client.responses.create(**fields)
        thinking = "".join(part.text for item in answer.output if item.type == "reasoning" for part in item.content)
        content = "".join(part.text for item in answer.output if item.type == "message" for part in item.content)
        end = {"completed": "stop", "incomplete": "length"}[answer.status]
        if answer.output[-1].type == "function_call":
            content, end = answer.output[-1].arguments, "calls"
        if stream:
            self.assertEqual((thought, said), (thinking, content))
        usage = answer.usage
        return thinking, content, usage.output_tokens_details.reasoning_tokens, usage.output_tokens, end


class Anthropic(Thinking, unittest.TestCase):
    def ask(self, thinks=True, stream=False, budget=None, holds=False, calls=False, seed=1):
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        thinking = {"type": "enabled", "budget_tokens": budget or 100_000} if thinks else {"type": "disabled"}
        fields = {"model": model, "max_tokens": limit(holds or calls), "messages": MESSAGES, "thinking": thinking,
                  "extra_body": {"seed": seed, "temperature": 1, "logit_bias": bias()}}
        if holds:
            fields["extra_body"]["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        if calls:
            fields |= {"tools": [{"name": TOOL["name"], "input_schema": SCHEMA}],
                       "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
        thought, said = "", ""
        if stream:
            with client.messages.stream(**fields) as events:
                for event in events:
                    if event.type == "thinking":
                        self.assertFalse(said)
                        thought += event.thinking
                    elif event.type == "text":
                        said += event.text
                    elif event.type == "input_json":
                        said += event.partial_json
                answer = events.get_final_message()
        else:
            answer = client.messages.create(**fields)
        thinking = "".join(block.thinking for block in answer.content if block.type == "thinking")
        content = "".join(block.text for block in answer.content if block.type == "text")
        end = {"end_turn": "stop", "max_tokens": "length", "tool_use": "calls"}[answer.stop_reason]
        if end == "calls":
            content = json.dumps(answer.content[-1].input)
        if stream:
            self.assertEqual(thought, thinking)
            self.assertEqual(json.loads(said) if end == "calls" else said, json.loads(content) if end == "calls" else content)
        usage = answer.usage
        return thinking, content, usage.output_tokens_details.thinking_tokens, usage.output_tokens, end


class Refusals(unittest.TestCase):
    def test_a_negative_budget_is_refused(self):
        status, _, answer = server.request("POST", "/v1/chat/completions", {
            "messages": MESSAGES, "thinking_token_budget": -1})
        self.assertEqual((status, json.loads(answer)["error"]["param"]), (400, "thinking_token_budget"))


def main():
    global server, model, marks, MAX_TOKENS
    pagoda, path, *arguments = sys.argv[1:]
    with contextlib.ExitStack() as kept:
        folder = kept.enter_context(tempfile.TemporaryDirectory())
        flags = ()
        if path.endswith(".gguf"):
            marks = "<issue_start>", "<issue_closed>"  # tokens of SmolLM2's that it has no use for
            MAX_TOKENS = 40
        else:
            marks = MARKS
            flags = thinking_model(path, folder)
            path = folder
        template = os.path.join(folder, "thinking.jinja")
        write_template(template, marks)
        server = kept.enter_context(Server(pagoda, path, "--chat-template", template, *flags))
        model = server.json("GET", "/v1/models")["data"][0]["id"]
        ok = unittest.main(argv=[sys.argv[0], *arguments], exit=False).result.wasSuccessful()
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
