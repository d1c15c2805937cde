#!/usr/bin/env python3
"""Tool calls as agents make them, with the libraries of OpenAI, Anthropic and LangChain. What the model wants is no matter:
its calls are valid all the same, also those of a model with random weights (-- --load-format dummy).

usage: tool_calls_test.py PAGODA MODEL_DIR [unittest arguments] [-- flags of serve]
"""
import json
import os
import socket
import sys
import typing
import unittest

import anthropic
import openai
import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from server import HERE, Server, main

TEMPLATE = os.path.join(HERE, "..", "..", "examples", "templates", "chatml-tools.jinja")

MESSAGES = [{"role": "user", "content": "How is the weather in Rome?"}]
server = None
model = None


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""
    city: typing.Literal["Rome", "Paris", "Oslo"]
    days: typing.Literal[1, 2, 3]
    hourly: bool


class Now(pydantic.BaseModel):
    """The time."""


class Pet(pydantic.BaseModel):
    kind: typing.Literal["cat", "dog"]
    legs: typing.Literal[3, 4]


class Guest(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=120)


class BookTable(pydantic.BaseModel, extra="forbid"):
    """Books a table."""
    guests: list[Guest] = pydantic.Field(min_length=1, max_length=2)
    code: str = pydantic.Field(pattern="^[A-Z]{2}-[0-9]{3}$")
    smokes: bool | None
    tip: typing.Literal[0, 5, 10] = 5


MODELS = {"get_weather": GetWeather, "now": Now}


def run_tool(name, arguments):
    """What a program does with a call: it fails where the call is not as the tool says."""
    MODELS[name].model_validate(arguments, strict=True)
    return "sunny" if name == "get_weather" else "noon"


def openai_tools():
    return [{"type": "function", "function": {"name": name, "description": kind.__doc__,
                                              "parameters": kind.model_json_schema()}} for name, kind in MODELS.items()]


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

    def ask(self, **fields):
        return self.client.chat.completions.create(**{
            "model": model, "messages": MESSAGES, "tools": openai_tools(), "temperature": 1, "max_tokens": 300, **fields})

    def test_an_agent_calls_and_gets_its_answer(self):
        messages = list(MESSAGES)
        for seed in range(3):
            choice = self.ask(messages=messages, tool_choice="required", seed=seed, parallel_tool_calls=False).choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertIsNone(choice.message.content)
            [call] = choice.message.tool_calls
            messages.append(choice.message.model_dump(exclude_none=True))
            result = run_tool(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        last = self.ask(messages=messages, tool_choice="none", max_tokens=16).choices[0]
        self.assertIsNone(last.message.tool_calls)
        self.assertTrue(last.message.content)

    def test_a_named_tool_is_the_one(self):
        for name in MODELS:
            choice = self.ask(tool_choice={"type": "function", "function": {"name": name}}, seed=1,
                              parallel_tool_calls=False).choices[0]
            self.assertEqual([call.function.name for call in choice.message.tool_calls], [name])

    def test_several_answers_call_each_for_itself(self):
        choices = self.ask(tool_choice="required", n=4, seed=2, parallel_tool_calls=False).choices
        self.assertEqual(len(choices), 4)
        for choice in choices:
            for call in choice.message.tool_calls:
                run_tool(call.function.name, json.loads(call.function.arguments))
        self.assertEqual(len({call.id for choice in choices for call in choice.message.tool_calls}), 4)

    def test_whatever_is_sampled_is_what_the_schema_says(self):
        tools = [{"type": "function", "function": {"name": "book_table", "parameters": BookTable.model_json_schema()}}]
        tables = []
        for seed in range(3):
            for choice in self.ask(tools=tools, tool_choice="required", n=4, seed=seed, parallel_tool_calls=False,
                                   temperature=1.5).choices:
                self.assertEqual(choice.finish_reason, "tool_calls")
                [call] = choice.message.tool_calls
                tables.append(BookTable.model_validate_json(call.function.arguments, strict=True))
        self.assertGreater(len({table.model_dump_json() for table in tables}), 6)

    def test_a_stream_says_the_same(self):
        fields = {"tool_choice": "required", "seed": 3, "parallel_tool_calls": False}
        whole = self.ask(**fields).choices[0].message
        with self.client.chat.completions.stream(model=model, messages=MESSAGES, tools=openai_tools(), temperature=1,
                                                 max_tokens=300, **fields) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion().choices[0]
        self.assertEqual(final.finish_reason, "tool_calls")
        self.assertEqual([(call.function.name, call.function.arguments) for call in final.message.tool_calls],
                         [(call.function.name, call.function.arguments) for call in whole.tool_calls])

    def test_parse_gives_objects(self):
        completion = self.client.chat.completions.parse(
            model=model, messages=MESSAGES, max_tokens=300, tools=[openai.pydantic_function_tool(GetWeather)],
            tool_choice="required", parallel_tool_calls=False, seed=4)
        [call] = completion.choices[0].message.tool_calls
        self.assertIsInstance(call.function.parsed_arguments, GetWeather)
        completion = self.client.chat.completions.parse(model=model, messages=MESSAGES, max_tokens=300,
                                                        response_format=Pet, seed=4)
        self.assertIsInstance(completion.choices[0].message.parsed, Pet)

    def test_responses_have_calls_as_items(self):
        tools = [{"type": "function", "name": name, "parameters": kind.model_json_schema(), "strict": True}
                 for name, kind in MODELS.items()]
        first = self.client.responses.create(model=model, input="Weather?", tools=tools, tool_choice="required",
                                             store=True, max_output_tokens=300, parallel_tool_calls=False,
                                             extra_body={"seed": 5})
        [call] = first.output
        self.assertEqual((call.type, first.status), ("function_call", "completed"))
        result = run_tool(call.name, json.loads(call.arguments))
        second = self.client.responses.create(
            model=model, previous_response_id=first.id, tools=tools, tool_choice="none", max_output_tokens=16,
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": result}])
        self.assertEqual(second.output[0].type, "message")
        names = []
        with self.client.responses.stream(model=model, input="Weather?", tools=tools, tool_choice="required",
                                          max_output_tokens=300, parallel_tool_calls=False,
                                          extra_body={"seed": 5}) as stream:
            for event in stream:
                names.append(event.type)
            final = stream.get_final_response()
        self.assertEqual(final.output[0].arguments, call.arguments)
        self.assertIn("response.function_call_arguments.delta", names)

    def test_what_cannot_be_is_refused(self):
        for fields, param in (({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"tool_choice": "all"}, "tool_choice"),
                              ({"tools": [], "tool_choice": "required"}, "tool_choice")):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.ask(**fields)
            self.assertEqual(refused.exception.param, param)
        limited = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)"}}}
        with self.assertRaises(openai.BadRequestError) as refused:
            self.ask(tools=[{"type": "function", "function": {"name": "f", "parameters": limited}}])
        self.assertEqual(refused.exception.param, "tools")
        self.assertIn("pattern", refused.exception.message)


class Anthropic(unittest.TestCase):
    def test_a_tool_loop(self):
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        tools = [{"name": name, "description": kind.__doc__, "input_schema": kind.model_json_schema()}
                 for name, kind in MODELS.items()]
        fields = {"model": model, "max_tokens": 300, "tools": tools}
        choice = {"type": "any", "disable_parallel_tool_use": True}
        messages = list(MESSAGES)
        for seed in range(3):
            answer = client.messages.create(messages=messages, tool_choice=choice, extra_body={"seed": seed}, **fields)
            self.assertEqual(answer.stop_reason, "tool_use")
            [block] = answer.content
            with client.messages.stream(messages=messages, tool_choice=choice, extra_body={"seed": seed},
                                        **fields) as stream:
                streamed = stream.get_final_message()
            self.assertEqual((streamed.content[0].name, streamed.content[0].input), (block.name, block.input))
            messages.append({"role": "assistant", "content": [block.model_dump(include={"type", "id", "name", "input"})]})
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id,
                                                          "content": run_tool(block.name, block.input)}]})
        last = client.messages.create(messages=messages, tool_choice={"type": "none"}, **{**fields, "max_tokens": 16})
        self.assertEqual([block.type for block in last.content], ["text"])


    def test_parse_gives_objects(self):
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        answer = client.messages.parse(model=model, max_tokens=300, messages=MESSAGES, output_format=Pet)
        self.assertIsInstance(answer.parsed_output, Pet)


class JsonLines(unittest.TestCase):
    def test_calls_come_as_events_and_in_done(self):
        with Server(server.command[0], server.command[3], *server.flags, json_lines=True) as other:
            with socket.create_connection(("127.0.0.1", other.json_lines_port), timeout=60) as connection:
                lines = connection.makefile("rw", encoding="utf-8", newline="\n")
                events = []

                def ask(**fields):
                    lines.write(json.dumps({"id": "a", "messages": MESSAGES, "tools": openai_tools(), "max_tokens": 300,
                                            "parallel_tool_calls": False, **fields}) + "\n")
                    lines.flush()
                    events.clear()
                    while not events or events[-1]["event"] not in ("done", "error"):
                        events.append(json.loads(lines.readline()))
                    return events[-1]

                for seed in range(3):
                    [output] = ask(tool_choice="required", seed=seed)["outputs"]
                    [call] = output["message"]["tool_calls"]
                    run_tool(call["function"]["name"], json.loads(call["function"]["arguments"]))
                    self.assertEqual([event["tool_call"] for event in events if event["event"] == "tool_call"], [call])
                    self.assertEqual("".join(event["text"] for event in events if event["event"] == "delta"),
                                     output["text"])
                    self.assertIn("<tool_call>", output["text"])
                [output] = ask(tool_choice="required", stream=False)["outputs"]
                self.assertEqual(len(output["message"]["tool_calls"]), 1)
                self.assertEqual(len(events), 1)
                [output] = ask(tool_choice="none", max_tokens=5)["outputs"]
                self.assertNotIn("message", output)
                bad = {"type": "object", "properties": {"a": {"$dynamicRef": "#a"}}}
                error = ask(tools=[{"type": "function", "function": {"name": "f", "parameters": bad}}])["error"]
                self.assertEqual(error["param"], "tools")
                self.assertIn("tool f: ", error["message"])
                self.assertIn("/properties/a", error["message"])


class LangChain(unittest.TestCase):
    def test_an_agent_calls_and_gets_its_answer(self):
        @tool
        def get_weather(city: typing.Literal["Rome", "Paris"]) -> str:
            """The weather of a city."""
            return f"sunny in {city}"

        chat = ChatOpenAI(base_url=server.url + "/v1", api_key="none", model=model, max_tokens=300, max_retries=0)
        calling = chat.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False)
        question = HumanMessage("How is the weather?")
        answer = calling.invoke([question])
        [call] = answer.tool_calls
        self.assertFalse(answer.invalid_tool_calls)
        result = get_weather.invoke(call)
        self.assertIsInstance(result, ToolMessage)
        self.assertTrue(result.content.startswith("sunny in "))
        last = chat.invoke([question, answer, result])
        self.assertFalse(last.tool_calls)
        pet = chat.with_structured_output(Pet, method="function_calling").invoke("A pet, please.")
        self.assertIsInstance(pet, Pet)


if __name__ == "__main__":
    main(sys.modules["__main__"], "--chat-template", TEMPLATE)
