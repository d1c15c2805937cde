#!/usr/bin/env python3
"""LangChain's OpenAI chat model against the OpenAI API.

usage: langchain_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import sys
import unittest

from langchain_openai import ChatOpenAI

from server import main

MESSAGES = [("system", "Tell short stories."), ("human", "A story, please.")]
AS_OPENAI = [{"role": "system", "content": MESSAGES[0][1]}, {"role": "user", "content": MESSAGES[1][1]}]
server = None
model = None


def chat_model(**fields):
    return ChatOpenAI(**{"base_url": server.url + "/v1", "api_key": "none", "model": model, "temperature": 0,
                         "max_tokens": 16, "max_retries": 0, **fields})


class Langchain(unittest.TestCase):
    def test_invoke_gives_what_chat_gives(self):
        answer = chat_model().invoke(MESSAGES)
        chat = server.json("POST", "/v1/chat/completions",
                           {"messages": AS_OPENAI, "max_tokens": 16, "temperature": 0})
        self.assertEqual(answer.content, chat["choices"][0]["message"]["content"])
        self.assertEqual(answer.usage_metadata["input_tokens"], server.count_chat(AS_OPENAI))
        self.assertEqual(answer.usage_metadata["output_tokens"], chat["usage"]["completion_tokens"])
        self.assertEqual(answer.response_metadata["finish_reason"], chat["choices"][0]["finish_reason"])

    def test_stream_gives_the_same_in_pieces(self):
        chunks = list(chat_model(stream_usage=True).stream(MESSAGES))
        self.assertGreater(len(chunks), 2)
        self.assertEqual("".join(chunk.content for chunk in chunks), chat_model().invoke(MESSAGES).content)
        usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
        self.assertEqual(usage[-1]["input_tokens"], server.count_chat(AS_OPENAI))

    def test_batch_answers_each_as_if_alone(self):
        prompts = [f"A story of a {word}." for word in ("dog", "cat", "bird", "fish", "girl", "boy")]
        together = [answer.content for answer in chat_model().batch(prompts)]
        self.assertEqual(together, [chat_model().invoke(prompt).content for prompt in prompts])

    def test_stop_and_seed_reach_the_engine(self):
        whole = chat_model(max_tokens=40).invoke(MESSAGES).content
        stop = whole.split()[3]
        self.assertEqual(chat_model(max_tokens=40).invoke(MESSAGES, stop=[stop]).content, whole[:whole.index(stop)])
        drawn = [chat_model(temperature=1, seed=5).invoke(MESSAGES).content for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])


if __name__ == "__main__":
    main(sys.modules["__main__"])
