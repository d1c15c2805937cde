#!/usr/bin/env python3
"""Anthropic's own client against the Messages API.

usage: anthropic_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import asyncio
import sys
import unittest

import anthropic

from server import main

MESSAGES = [{"role": "user", "content": "A story, please."}]
SYSTEM = "Tell short stories."
AS_OPENAI = [{"role": "system", "content": SYSTEM}, *MESSAGES]
server = None
model = None


def client():
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def fields_with(**fields):
    return {"model": model, "max_tokens": 16, "system": SYSTEM, "messages": MESSAGES,
            "extra_body": {"temperature": 0}, **fields}


class Messages(unittest.TestCase):
    def setUp(self):
        if not server.has_route("POST", "/v1/messages"):
            self.skipTest("/v1/messages is not served")

    def test_the_text_is_that_of_openai_chat(self):
        answer = client().messages.create(**fields_with())
        chat = server.json("POST", "/v1/chat/completions",
                           {"messages": AS_OPENAI, "max_tokens": 16, "temperature": 0})
        self.assertEqual(answer.content[0].text, chat["choices"][0]["message"]["content"])
        self.assertEqual(answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0),
                         server.count_chat(AS_OPENAI))  # what was cached is counted apart
        self.assertEqual(answer.usage.output_tokens, chat["usage"]["completion_tokens"])
        reasons = {"length": "max_tokens", "stop": "end_turn"}
        self.assertEqual(answer.stop_reason, reasons[chat["choices"][0]["finish_reason"]])

    def test_a_stream_is_the_whole_text_in_pieces(self):
        whole = client().messages.create(**fields_with(max_tokens=40))
        with client().messages.stream(**fields_with(max_tokens=40)) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual("".join(pieces), whole.content[0].text)
        self.assertEqual(final.content[0].text, whole.content[0].text)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        self.assertEqual(final.stop_reason, whole.stop_reason)

    def test_the_events_come_in_their_order(self):
        types = [event.type for event in client().messages.create(**fields_with(stream=True))]
        self.assertEqual(types[0], "message_start")
        self.assertEqual(types[-1], "message_stop")
        middle = [kind for kind in types[1:-1] if kind != "ping"]
        self.assertEqual(middle[0], "content_block_start")
        self.assertEqual(middle[-2:], ["content_block_stop", "message_delta"])
        self.assertEqual(set(middle[1:-2]), {"content_block_delta"})

    def test_a_stop_sequence_is_told(self):
        text = client().messages.create(**fields_with(max_tokens=40)).content[0].text
        stop = text.split()[3]
        answer = client().messages.create(**fields_with(max_tokens=40, stop_sequences=[stop]))
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(answer.content[0].text, text[:text.index(stop)])

    def test_async(self):
        async def run():
            async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as a:
                answers = await asyncio.gather(*[a.messages.create(**fields_with()) for _ in range(4)])
                return {answer.content[0].text for answer in answers}
        self.assertEqual(len(asyncio.run(run())), 1)

    def test_tokens_are_counted_as_they_are_used(self):
        counted = client().messages.count_tokens(model=model, system=SYSTEM, messages=MESSAGES)
        self.assertEqual(counted.input_tokens, server.count_chat(AS_OPENAI))

    def test_errors_have_their_classes(self):
        with self.assertRaises(anthropic.NotFoundError):
            client().messages.create(**fields_with(model="claude-nonesuch"))
        with self.assertRaises(anthropic.BadRequestError):
            client().messages.create(**fields_with(max_tokens=0))
        with self.assertRaises(anthropic.BadRequestError) as raised:
            client().messages.create(**fields_with(extra_body={"temprature": 1}))
        self.assertEqual(raised.exception.body["error"]["type"], "invalid_request_error")


if __name__ == "__main__":
    main(sys.modules["__main__"])
