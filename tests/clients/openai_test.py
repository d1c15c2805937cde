#!/usr/bin/env python3
"""OpenAI's own client against the OpenAI API.

usage: openai_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import asyncio
import os
import sys
import tempfile
import typing
import unittest

import openai
import pydantic

from server import Server, main

PROMPT = "Once upon a time there was a little"
MESSAGES = [{"role": "system", "content": "Tell short stories."}, {"role": "user", "content": "A story, please."}]
server = None
model = None


def client(**options):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, **options)


def complete(**fields):
    return client().completions.create(**{"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, **fields})


def chat(**fields):
    return client().chat.completions.create(
        **{"model": model, "messages": MESSAGES, "max_tokens": 12, "temperature": 0, **fields})


class Friend(pydantic.BaseModel):
    name: str = pydantic.Field(pattern="^[A-Z][a-z]{1,8}$")


class Pet(pydantic.BaseModel):  # bounded, so that every text comes to its end
    name: str = pydantic.Field(pattern="^[A-Z][a-z]{1,8}$")
    kind: typing.Literal["cat", "dog"]
    age: int = pydantic.Field(ge=0, le=30)
    friend: typing.Optional[Friend]


class StructuredOutputs(unittest.TestCase):
    def assert_pet(self, pet):
        self.assertIsInstance(pet, Pet)
        self.assertIn(pet.kind, ("cat", "dog"))

    def test_a_chat_is_parsed(self):
        answer = client().chat.completions.parse(model=model, messages=MESSAGES, max_tokens=400, temperature=1.2,
                                                 seed=3, n=3, response_format=Pet)
        for choice in answer.choices:
            self.assertEqual(choice.finish_reason, "stop")
            self.assert_pet(choice.message.parsed)

    def test_a_response_is_parsed(self):
        answer = client().responses.parse(model=model, input="A pet, please.", max_output_tokens=400, text_format=Pet)
        self.assert_pet(answer.output_parsed)

    def test_a_stream_is_parsed(self):
        with client().chat.completions.stream(model=model, messages=MESSAGES, max_tokens=400, seed=3,
                                              response_format=Pet) as stream:
            answer = stream.get_final_completion()
        self.assert_pet(answer.choices[0].message.parsed)


class Completions(unittest.TestCase):
    def test_usage_is_exact(self):
        answer = complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.model, model)
        self.assertEqual(answer.usage.prompt_tokens, server.count(PROMPT))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        if answer.choices[0].finish_reason == "length":
            self.assertEqual(answer.usage.completion_tokens, 12)

    def test_the_default_is_sixteen_tokens(self):
        answer = client().completions.create(model=model, prompt=PROMPT, temperature=0, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 16)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_a_stream_is_the_whole_text_in_pieces(self):
        whole = complete(max_tokens=40)
        chunks = list(complete(max_tokens=40, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-1].usage.prompt_tokens, whole.usage.prompt_tokens)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        self.assertEqual([reason for reason in reasons if reason], [whole.choices[0].finish_reason])
        self.assertGreater(len(chunks), 5)

    def test_without_being_asked_a_stream_tells_no_usage(self):
        self.assertTrue(all(chunk.usage is None for chunk in complete(stream=True)))

    def test_several_prompts_are_answered_in_order(self):
        prompts = [PROMPT, "The dog", "A red ball"]
        together = complete(prompt=prompts)
        self.assertEqual([choice.index for choice in together.choices], [0, 1, 2])
        for prompt, choice in zip(prompts, together.choices):
            self.assertEqual(choice.text, complete(prompt=prompt).choices[0].text)
        self.assertEqual(together.usage.prompt_tokens, sum(server.count(prompt) for prompt in prompts))

    def test_prompts_may_be_token_ids(self):
        ids = server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"]
        for prompt in (ids, [ids]):
            self.assertEqual(complete(prompt=prompt).choices[0].text, complete().choices[0].text)

    def test_n_gives_n_choices_that_a_seed_repeats(self):
        texts = [[choice.text for choice in complete(n=3, temperature=1, seed=7).choices] for _ in range(2)]
        self.assertEqual(len(texts[0]), 3)
        self.assertEqual(texts[0], texts[1])
        self.assertGreater(len(set(texts[0])), 1)

    def test_n_streams_each_choice_under_its_index(self):
        whole = complete(n=3, temperature=1, seed=7)
        texts = ["", "", ""]
        for chunk in complete(n=3, temperature=1, seed=7, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        self.assertEqual(texts, [choice.text for choice in whole.choices])

    def test_best_of_is_among_what_its_seed_gives(self):
        best = complete(best_of=4, n=1, temperature=1, seed=3)
        self.assertEqual(len(best.choices), 1)
        candidates = [choice.text for choice in complete(n=4, temperature=1, seed=3).choices]
        self.assertIn(best.choices[0].text, candidates)

    def test_stop_strings_end_the_text_before_them(self):
        whole = complete(max_tokens=40).choices[0].text
        stop = whole.split()[4]
        answer = complete(max_tokens=40, stop=[stop]).choices[0]
        self.assertEqual(answer.text, whole[:whole.index(stop)])
        self.assertEqual(answer.finish_reason, "stop")
        streamed = "".join(c.choices[0].text for c in complete(max_tokens=40, stop=[stop], stream=True))
        self.assertEqual(streamed, answer.text)

    def test_echo_says_the_prompt_first(self):
        self.assertEqual(complete(echo=True).choices[0].text, PROMPT + complete().choices[0].text)
        self.assertEqual(complete(echo=True, max_tokens=0).choices[0].text, PROMPT)
        streamed = "".join(c.choices[0].text for c in complete(echo=True, stream=True))
        self.assertEqual(streamed, PROMPT + complete().choices[0].text)

    def test_logprobs_stand_beside_each_token(self):
        answer = complete(logprobs=2)
        logprobs = answer.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)
        self.assertEqual(len(logprobs.token_logprobs), answer.usage.completion_tokens)
        for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
            self.assertLessEqual(logprob, 0)
            self.assertEqual(logprob, max(top.values()))  # greedy takes the likeliest
            self.assertIn(token, top)

    def test_echo_says_the_part_of_the_prompt_that_is_left(self):
        whole = complete(echo=True, logprobs=1, max_tokens=1).choices[0]
        cut = complete(echo=True, logprobs=1, max_tokens=1, extra_body={"truncate_prompt_tokens": 3}).choices[0]
        self.assertEqual(len(cut.logprobs.tokens), 4)
        self.assertEqual(cut.logprobs.tokens[:3], whole.logprobs.tokens[-4:-1])
        self.assertTrue(cut.text.strip().startswith("".join(cut.logprobs.tokens[:3]).strip()), cut.text)
        self.assertEqual(cut.logprobs.text_offset[0], 0)
        self.assertLess(cut.logprobs.text_offset[2], len(cut.text))

    def test_echo_with_logprobs_covers_the_prompt(self):
        answer = complete(echo=True, logprobs=1, max_tokens=1)
        logprobs = answer.choices[0].logprobs
        text = answer.choices[0].text
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertEqual(len(logprobs.tokens), answer.usage.total_tokens)
        ids = server.json("POST", "/tokenize", {"prompt": PROMPT})["tokens"]
        plain = server.json("POST", "/tokenize", {"prompt": PROMPT, "add_special_tokens": False})["tokens"]
        added = len(ids) - len(plain)  # tokens that stand before the text but not in it
        self.assertEqual("".join(logprobs.tokens[added:]), text)
        self.assertEqual(logprobs.text_offset[0], 0)
        for token, offset in zip(logprobs.tokens[added:], logprobs.text_offset[added:]):
            self.assertEqual(text[offset:offset + len(token)], token)

    def test_the_library_reads_headers(self):
        raw = client().completions.with_raw_response.create(model=model, prompt=PROMPT, max_tokens=2,
                                                            extra_headers={"X-Request-Id": "my-request"})
        self.assertEqual(raw.headers["x-request-id"], "my-request")
        self.assertIn("my-request", raw.parse().id)


class Chat(unittest.TestCase):
    def test_usage_is_exact(self):
        answer = chat()
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.usage.prompt_tokens, server.count_chat(MESSAGES))

    def test_a_stream_is_the_whole_text_in_pieces(self):
        whole = chat(max_tokens=40)
        chunks = list(chat(max_tokens=40, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.total_tokens, whole.usage.total_tokens)
        self.assertEqual(chunks[-2].choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_it_is_a_completion_of_its_own_prompt(self):
        prompt = server.json("POST", "/apply_template", {"messages": MESSAGES})["prompt"]
        ids = server.json("POST", "/tokenize", {"messages": MESSAGES})["tokens"]
        text = chat().choices[0].message.content
        self.assertEqual(complete(prompt=ids).choices[0].text, text)
        self.assertTrue(prompt)

    def test_either_name_limits_the_tokens(self):
        for name in ("max_tokens", "max_completion_tokens"):
            fields = {"max_tokens": openai.omit, name: 5, "extra_body": {"ignore_eos": True}}
            answer = chat(**fields)
            self.assertEqual(answer.usage.completion_tokens, 5)
            self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_content_may_come_in_parts(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": "A story, "}, {"type": "text", "text": "please."}]}]
        self.assertTrue(chat(messages=parts).choices)

    def test_logprobs_say_the_text(self):
        answer = chat(logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.logprob, entry.top_logprobs[0].logprob)
            self.assertEqual(bytes(entry.bytes).decode(), entry.token)
        streamed = [entry for chunk in chat(logprobs=True, top_logprobs=3, stream=True) if chunk.choices
                    and chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
        self.assertEqual([entry.token for entry in streamed], [entry.token for entry in content])

    def test_n_and_seed(self):
        first, again = (chat(n=2, temperature=1, seed=11) for _ in range(2))
        self.assertEqual([c.message.content for c in first.choices], [c.message.content for c in again.choices])

    def test_the_stream_helper_collects_the_same(self):
        with client().chat.completions.stream(model=model, messages=MESSAGES, max_tokens=12, temperature=0) as stream:
            for _ in stream:
                pass
            collected = stream.current_completion_snapshot
        self.assertEqual(collected.choices[0].message.content, chat().choices[0].message.content)


class Async(unittest.TestCase):
    def test_many_at_once_get_what_each_gets_alone(self):
        prompts = [f"{PROMPT} {word}" for word in ("dog", "cat", "girl", "boy", "bird", "fish", "tree", "car")]

        async def run():
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as a:
                async def one(prompt):
                    stream = await a.completions.create(model=model, prompt=prompt, max_tokens=20, temperature=0,
                                                        stream=True)
                    return "".join([chunk.choices[0].text async for chunk in stream])
                return await asyncio.gather(*[one(prompt) for prompt in prompts])

        alone = [complete(prompt=prompt, max_tokens=20).choices[0].text for prompt in prompts]
        self.assertEqual(asyncio.run(run()), alone)

    def test_a_stream_that_is_left_early_ends_in_the_engine(self):
        with complete(max_tokens=900, stream=True, extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        server.wait_until_idle(5)


class Errors(unittest.TestCase):
    def refused(self, kind, call, **fields):
        with self.assertRaises(kind) as raised:
            call(**fields)
        return raised.exception

    def test_a_bad_value_is_named(self):
        self.assertEqual(self.refused(openai.BadRequestError, complete, temperature=-1).param, "temperature")
        self.assertEqual(self.refused(openai.BadRequestError, complete, max_tokens=-5).param, "max_tokens")
        self.assertEqual(self.refused(openai.BadRequestError, chat, top_p=7).param, "top_p")
        self.assertEqual(self.refused(openai.BadRequestError, chat, top_logprobs=2).param, "top_logprobs")
        self.assertEqual(self.refused(openai.BadRequestError, complete, suffix="x").param, "suffix")
        misspelt = self.refused(openai.BadRequestError, complete, extra_body={"temprature": 1})
        self.assertEqual((misspelt.param, misspelt.type), ("temprature", "invalid_request_error"))

    def test_an_unknown_field_is_ignored_by_name(self):
        answer = client().completions.with_raw_response.create(model=model, prompt="Hi", max_tokens=1,
                                                               extra_body={"colour": 1})
        self.assertEqual(answer.headers["x-pagoda-ignored"], "colour")

    def test_a_prompt_that_is_too_long_is_refused_also_in_a_stream(self):
        for stream in (False, True):
            error = self.refused(openai.BadRequestError, complete, prompt="word " * 50_000, stream=stream)
            self.assertEqual(error.code, "context_length_exceeded")

    def test_another_model_is_not_found(self):
        error = self.refused(openai.NotFoundError, complete, model="gpt-nonesuch")
        self.assertEqual(error.code, "model_not_found")
        self.refused(openai.NotFoundError, chat, model="gpt-nonesuch")
        self.refused(openai.NotFoundError, client().models.retrieve, model="gpt-nonesuch")

    def test_keys_are_asked_for_where_there_are_any(self):
        with tempfile.NamedTemporaryFile("w") as file:
            os.chmod(file.name, 0o600)
            file.write("a-key-that-is-good-enough\n")
            file.flush()
            with Server(*sys.argv[1:3], "--api-key-file", file.name) as closed:
                def models(key):
                    return openai.OpenAI(base_url=closed.url + "/v1", api_key=key, max_retries=0).models.list()
                self.refused(openai.AuthenticationError, models, key="wrong")
                self.assertEqual([m.id for m in models("a-key-that-is-good-enough")], [model])


class Models(unittest.TestCase):
    def test_the_model_is_listed_and_found(self):
        listed = client().models.list().data
        self.assertEqual(listed[0].id, model)
        self.assertEqual(client().models.retrieve(model).id, model)


class Responses(unittest.TestCase):
    def setUp(self):
        if not server.has_route("POST", "/v1/responses"):
            self.skipTest("/v1/responses is not served")

    def create(self, **fields):
        return client().responses.create(**{"model": model, "input": "A story, please.", "max_output_tokens": 16,
                                            "temperature": 0, "store": False, **fields})

    def test_the_text_is_that_of_chat(self):
        answer = self.create(instructions="Tell short stories.")
        self.assertEqual(answer.output_text, chat(max_tokens=16).choices[0].message.content)
        self.assertEqual(answer.usage.input_tokens, server.count_chat(MESSAGES))

    def test_a_stream_is_the_whole_text_in_pieces(self):
        whole = self.create()
        events = list(self.create(stream=True))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        self.assertEqual(events[0].type, "response.created")
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))


if __name__ == "__main__":
    main(sys.modules["__main__"])
