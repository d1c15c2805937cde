#!/usr/bin/env python3
"""Agents that libraries run: an agent of LangChain's, the tool runner of `anthropic`, and a loop of parse() helpers of
`openai`. Each calls a tool, gets its result and goes on to an answer. When to call is said by the tests, what to call
with by the model.

usage: agents_test.py PAGODA MODEL_DIR [unittest arguments] [-- flags of serve]
"""
import json
import os
import sys
import typing
import unittest

import anthropic
import openai
import pydantic
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from server import HERE, main

TEMPLATE = os.path.join(HERE, "..", "..", "examples", "templates", "chatml-tools.jinja")

City = typing.Literal["Rome", "Paris", "Oslo"]
QUESTION = "How is the weather in Rome?"
server = None
model = None


class Report(pydantic.BaseModel, extra="forbid"):
    """What is told in the end."""
    weather: typing.Literal["sunny", "rainy"]
    degrees: int = pydantic.Field(ge=-40, le=50)


def weather_of(city, days):
    """A program's own function, which fails with arguments that it does not know."""
    if city not in typing.get_args(City) or days not in (1, 2, 3):
        raise ValueError(f"no weather of {city!r} for {days!r} days")
    return f"sunny in {city} for {days} days"


@wrap_model_call
def call_first(request, handler):
    """The first answer is a call, the one behind its result none."""
    choice = "none" if isinstance(request.messages[-1], ToolMessage) else "any"
    settings = {"parallel_tool_calls": False}
    if request.response_format:
        settings["tool_choice"] = choice  # LangChain forgets its own beside a form
    return handler(request.override(tool_choice=choice, model_settings=settings))


class LangChain(unittest.TestCase):
    def agent(self, seed=1, **fields):
        @tool
        def get_weather(city: City, days: typing.Literal[1, 2, 3]) -> str:
            """The weather of a city."""
            return weather_of(city, days)

        chat = ChatOpenAI(base_url=server.url + "/v1", api_key="none", model=model, max_tokens=200, max_retries=0,
                          temperature=1, seed=seed)
        return create_agent(chat, [get_weather], system_prompt="You tell the weather.", middleware=[call_first], **fields)

    def assert_called_and_answered(self, messages):
        self.assertEqual([type(message) for message in messages], [HumanMessage, AIMessage, ToolMessage, AIMessage])
        _, calling, result, answer = messages
        [call] = calling.tool_calls
        self.assertEqual(calling.invalid_tool_calls, [])
        self.assertEqual(calling.response_metadata["finish_reason"], "tool_calls")
        self.assertEqual(result.tool_call_id, call["id"])
        self.assertEqual(result.status, "success")
        self.assertEqual(result.content, weather_of(**call["args"]))
        self.assertEqual(answer.tool_calls, [])
        self.assertTrue(answer.content)
        return call["args"]

    def test_an_agent_calls_its_tool_and_answers(self):
        for seed in range(3):
            state = self.agent(seed).invoke({"messages": [("user", QUESTION)]})
            self.assert_called_and_answered(state["messages"])

    def test_a_streamed_agent_says_the_same(self):
        messages = {"messages": [("user", QUESTION)]}
        whole = self.agent().invoke(messages)["messages"]
        answer, arguments, chunks = "", "", 0
        for message, _ in self.agent().stream(messages, stream_mode="messages"):
            if not isinstance(message, AIMessageChunk):
                continue
            chunks += 1
            answer += message.content
            arguments += "".join(call["args"] or "" for call in message.tool_call_chunks)
        self.assertGreater(chunks, 10)
        self.assertEqual(json.loads(arguments), whole[1].tool_calls[0]["args"])
        self.assertEqual(answer, whole[3].content)

    def test_an_agent_reports_in_a_form(self):
        agent = self.agent(response_format=ProviderStrategy(Report))
        state = agent.invoke({"messages": [("user", QUESTION)]})
        self.assert_called_and_answered(state["messages"])
        self.assertIsInstance(state["structured_response"], Report)


class Anthropic(unittest.TestCase):
    def test_the_tool_runner_comes_to_an_answer(self):
        calls = []

        @anthropic.beta_tool
        def get_weather(city: City, days: typing.Literal[1, 2, 3]) -> str:
            """The weather of a city."""
            calls.append((city, days))
            return weather_of(city, days)

        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        for stream in (False, True):
            calls.clear()
            runner = client.beta.messages.tool_runner(
                model=model, max_tokens=200, tools=[get_weather], messages=[{"role": "user", "content": QUESTION}],
                tool_choice={"type": "any", "disable_parallel_tool_use": True}, extra_body={"seed": 1}, stream=stream)
            answers = []
            for answer in runner:
                answers.append(answer.get_final_message() if stream else answer)
                if answers[-1].stop_reason == "tool_use":
                    runner.set_messages_params(lambda params: {**params, "tool_choice": {"type": "none"}})
            self.assertEqual([answer.stop_reason == "tool_use" for answer in answers], [True, False])
            self.assertEqual(len(calls), 1)
            [block] = answers[0].content
            self.assertEqual((block.input["city"], block.input["days"]), calls[0])
            self.assertEqual([block.type for block in answers[1].content], ["text"])


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

    def test_parsed_calls_lead_to_a_parsed_answer(self):
        class GetWeather(pydantic.BaseModel, extra="forbid"):
            """The weather of a city."""
            city: City
            days: typing.Literal[1, 2, 3]

        messages = [{"role": "user", "content": QUESTION}]
        fields = {"model": model, "max_tokens": 200, "seed": 3, "temperature": 1, "response_format": Report,
                  "tools": [openai.pydantic_function_tool(GetWeather)], "parallel_tool_calls": False}
        calling = self.client.chat.completions.parse(messages=messages, tool_choice="required", **fields)
        message = calling.choices[0].message
        [call] = message.tool_calls
        constraint = call.function.parsed_arguments
        self.assertIsInstance(constraint, GetWeather)
        self.assertIsNone(message.parsed)
        messages += [{"role": "assistant", "tool_calls": [call.model_dump(include={"id", "type", "function"}, exclude={
                          "function": {"parsed_arguments"}})]},
                     {"role": "tool", "tool_call_id": call.id, "content": weather_of(constraint.city, constraint.days)}]
        answer = self.client.chat.completions.parse(messages=messages, tool_choice="none", **fields)
        self.assertIsInstance(answer.choices[0].message.parsed, Report)

    def test_parsed_responses_lead_to_a_parsed_answer(self):
        class GetWeather(pydantic.BaseModel, extra="forbid"):
            """The weather of a city."""
            city: City
            days: typing.Literal[1, 2, 3]

        fields = {"model": model, "max_output_tokens": 200, "text_format": Report, "parallel_tool_calls": False,
                  "tools": [openai.pydantic_function_tool(GetWeather)["function"] | {"type": "function"}],
                  "extra_body": {"seed": 3}}
        calling = self.client.responses.parse(input=QUESTION, tool_choice="required", store=True, **fields)
        [call] = calling.output
        constraint = GetWeather.model_validate_json(call.arguments)
        answer = self.client.responses.parse(
            previous_response_id=calling.id, tool_choice="none",
            input=[{"type": "function_call_output", "call_id": call.call_id,
                    "output": weather_of(constraint.city, constraint.days)}], **fields)
        self.assertIsInstance(answer.output_parsed, Report)


if __name__ == "__main__":
    main(sys.modules["__main__"], "--chat-template", TEMPLATE)
