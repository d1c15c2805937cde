#!/usr/bin/env python3
"""Ollama's own client against the Ollama API.

usage: ollama_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import asyncio
import sys
import unittest

import ollama

from server import main

PROMPT = "Once upon a time there was a little"
MESSAGES = [{"role": "system", "content": "Tell short stories."}, {"role": "user", "content": "A story, please."}]
GREEDY = {"temperature": 0, "num_predict": 16}
server = None
model = None


def client():
    return ollama.Client(host=server.url)


def generate(**fields):
    return client().generate(**{"model": model, "prompt": PROMPT, "raw": True, "options": GREEDY, **fields})


def chat(**fields):
    return client().chat(**{"model": model, "messages": MESSAGES, "options": GREEDY, **fields})


class Generate(unittest.TestCase):
    def test_a_raw_prompt_gets_what_a_completion_gets(self):
        answer = generate()
        completion = server.json("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 16, "temperature": 0})
        self.assertEqual(answer.response, completion["choices"][0]["text"])
        self.assertEqual(answer.prompt_eval_count, server.count(PROMPT))
        self.assertEqual(answer.eval_count, completion["usage"]["completion_tokens"])
        self.assertEqual(answer.done_reason, completion["choices"][0]["finish_reason"])
        self.assertTrue(answer.done)
        self.assertGreaterEqual(answer.total_duration,
                                answer.load_duration + answer.prompt_eval_duration + answer.eval_duration)

    def test_a_prompt_is_a_chat_of_one_message(self):
        answer = generate(raw=False, system=MESSAGES[0]["content"], prompt=MESSAGES[1]["content"])
        self.assertEqual(answer.response, chat().message.content)
        self.assertEqual(answer.prompt_eval_count, server.count_chat(MESSAGES))

    def test_a_stream_is_the_whole_text_in_pieces(self):
        whole = generate()
        parts = list(generate(stream=True))
        self.assertEqual("".join(part.response for part in parts), whole.response)
        self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(parts[-1].eval_count, whole.eval_count)
        self.assertEqual(parts[-1].done_reason, whole.done_reason)

    def test_options_shape_the_answer(self):
        whole = generate(options={**GREEDY, "num_predict": 40}).response
        stop = whole.split()[3]
        stopped = generate(options={**GREEDY, "num_predict": 40, "stop": [stop]})
        self.assertEqual((stopped.response, stopped.done_reason), (whole[:whole.index(stop)], "stop"))
        drawn = [generate(options={"temperature": 1, "seed": 5, "num_predict": 16}).response for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])

    def test_logprobs_say_the_text(self):
        answer = generate(logprobs=True, top_logprobs=2)
        self.assertEqual(len(answer.logprobs), answer.eval_count)
        self.assertEqual([len(entry.top_logprobs) for entry in answer.logprobs], [2] * answer.eval_count)
        streamed = [entry.token for part in generate(logprobs=True, stream=True) for entry in part.logprobs or []]
        self.assertEqual(streamed, [entry.token for entry in answer.logprobs])

    def test_no_prompt_loads(self):
        self.assertEqual(client().generate(model=model).done_reason, "load")

    def test_the_name_may_have_the_tag_latest(self):
        answer = generate(model=model + ":latest")
        self.assertEqual(answer.model, model + ":latest")
        self.assertEqual(answer.response, generate().response)


class Chat(unittest.TestCase):
    def test_the_text_is_that_of_openai_chat(self):
        answer = chat()
        other = server.json("POST", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 16, "temperature": 0})
        self.assertEqual(answer.message.role, "assistant")
        self.assertEqual(answer.message.content, other["choices"][0]["message"]["content"])
        self.assertEqual(answer.prompt_eval_count, other["usage"]["prompt_tokens"])

    def test_a_stream_is_the_whole_text_in_pieces(self):
        self.assertEqual("".join(part.message.content for part in chat(stream=True)), chat().message.content)

    def test_what_tools_said_may_stand_among_the_messages(self):
        answer = chat(messages=[
            MESSAGES[1],
            ollama.Message(role="assistant", content="I look.", tool_calls=[ollama.Message.ToolCall(
                function=ollama.Message.ToolCall.Function(name="look", arguments={"at": 1}))]),
            ollama.Message(role="tool", content="a dog", tool_name="look")])
        self.assertTrue(answer.done)

    def test_async(self):
        async def run():
            a = ollama.AsyncClient(host=server.url)
            async def one():
                stream = await a.chat(model=model, messages=MESSAGES, options=GREEDY, stream=True)
                return "".join([part.message.content async for part in stream])
            return set(await asyncio.gather(*[one() for _ in range(4)]))
        self.assertEqual(asyncio.run(run()), {chat().message.content})


class Models(unittest.TestCase):
    def test_list_show_and_ps_agree_on_the_model(self):
        listed = client().list().models
        self.assertEqual(listed[0].model, model + ":latest")
        self.assertEqual(client().ps().models[0].model, model + ":latest")
        shown = client().show(listed[0].model)
        self.assertIn("completion", shown.capabilities)
        self.assertTrue(shown.template)
        self.assertIn(shown.details.format, ("safetensors", "gguf"))
        self.assertRegex(shown.details.parameter_size, r"^\d+\.\d+[KMB]$")
        self.assertEqual(listed[0].details, shown.details)
        self.assertGreater(listed[0].size, 0)
        info = shown.modelinfo
        length = server.json("GET", "/v1/models")["data"][0]["max_model_len"]
        self.assertEqual(info[info["general.architecture"] + ".context_length"], length)

    def test_there_is_a_server(self):
        self.assertEqual(server.request("HEAD", "/")[0], 200)


class Errors(unittest.TestCase):
    def refused(self, call, **fields):
        with self.assertRaises(ollama.ResponseError) as raised:
            call(**fields)
        return raised.exception

    def test_they_have_a_status_and_say_the_field(self):
        error = self.refused(generate, model="nonesuch")
        self.assertEqual(error.status_code, 404)
        self.assertIn("not found", error.error)
        self.assertIn("uniqueItems", self.refused(generate, format={"type": "array", "uniqueItems": True}).error)
        self.assertIn("tools", self.refused(chat, tools=[{"type": "function", "function": {"name": "f"}}]).error)
        self.assertIn("temperature", self.refused(generate, options={"temperature": -1}).error)
        self.assertEqual(self.refused(generate, prompt="word " * 50_000).status_code, 400)


if __name__ == "__main__":
    main(sys.modules["__main__"])
