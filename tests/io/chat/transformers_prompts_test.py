#!/usr/bin/env python3
"""Conversations with earlier calls and thoughts in the chat templates of many models: the prompt is the one that transformers
makes, wherever its rendering shows the call, and has no "None" in it.

usage: transformers_prompts_test.py RENDER PROJECT

RENDER is the program pagoda_jinja_render. The templates are those of examples/templates and of ../shared/templates, where
that folder exists. Without Jinja2 the test is skipped (exit code 77).
"""
import copy
import datetime
import glob
import itertools
import json
import os
import subprocess
import sys
import unittest

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("skipped: no python3-jinja2")
    sys.exit(77)

RENDER, PROJECT = sys.argv[1:3]
PATHS = sorted(glob.glob(os.path.join(PROJECT, "examples", "templates", "*.jinja")) +
               glob.glob(os.path.join(PROJECT, "..", "shared", "templates", "*.jinja")))
PARAMETERS = {"type": "object", "properties": {"room": {"type": "string", "description": "which"},
                                               "id": {"type": "integer", "description": "of it", "default": 2**64}},
              "required": ["room"]}
TOOLS = [{"type": "function", "function": {"name": "open_door", "description": "opens", "parameters": PARAMETERS}}]
ARGUMENTS = {"room": "cellar", "id": 2**70 + 1, "list": [1, 2.5, {"a": None, "ü": True}]}
CALL = {"id": "call00001", "type": "function", "function": {"name": "open_door", "arguments": ARGUMENTS}}
# Variables that some templates fail without.
VARIABLES = {"functions": "[]", "datetime": "2026-01-01"}
# Those whose rendering by transformers loses the call, or the result, in every form.
LOSSY = {"HuggingFaceTB-SmolLM3-3B", "LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct",
         "microsoft-Phi-3.5-mini-instruct", "llama-cpp-rwkv-world", "google-gemma-2-2b-it",
         # list.append, which the sandbox of transformers refuses
         "Kimi-K2-Instruct", "Kimi-K2-Thinking"}

# Those that read thoughts in the content.
THINKING_PARTS = {"mistralai-Ministral-3-14B-Reasoning-2512"}


class Generation(jinja2.ext.Extension):
    """{% generation %}, which transformers has for training."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _text(self, context, caller):
        return caller()


def fail(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = fail
    made.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return made


def conversation(content, arguments, thought, goes_on):
    """The messages as an agent sends them; `content` beside the call may be "absent"."""
    call = copy.deepcopy(CALL)
    call["function"]["arguments"] = arguments
    answer = {"role": "assistant", "content": content, "tool_calls": [call], **thought}
    if content == "absent":
        del answer["content"]
    messages = [{"role": "user", "content": "Where is the key?"}, answer,
                {"role": "tool", "tool_call_id": "call00001", "name": "open_door", "content": "it is open"}]
    if goes_on:
        messages += [{"role": "assistant", "content": "In the attic.", **thought}, {"role": "user", "content": "And then?"}]
    return messages


def with_thinking_parts(messages):
    for message in messages:
        if thought := message.pop("reasoning_content", None):
            parts = [{"type": "thinking", "thinking": thought}]
            if message.get("content"):
                parts.append({"type": "text", "text": message["content"]})
            message["content"] = parts
    return messages


def by_transformers(template, thought, goes_on, has_thinking_parts):
    """What transformers makes of the conversation in the first form whose call and result it shows; None: of none."""
    found = []
    for arguments, content in itertools.product((ARGUMENTS, json.dumps(ARGUMENTS, ensure_ascii=False)), ("", None, "absent")):
        messages = conversation(content, arguments, thought, goes_on)
        if has_thinking_parts:
            messages = with_thinking_parts(messages)
        try:
            prompt = template.render(messages=messages, tools=copy.deepcopy(TOOLS), documents=None, add_generation_prompt=True,
                                     bos_token="<BOS>", eos_token="<EOS>", **VARIABLES)
        except (jinja2.TemplateError, TypeError, ValueError):
            continue
        behind = prompt[prompt.find("Where is the key?"):]
        if all(word in behind for word in ("cellar", str(2**70 + 1), "it is open")) and '\\"room' not in behind:
            found.append(prompt)
        if found and content == "absent":
            break
    # Of what stands for no content, the one that adds nothing: no "None", no second, empty answer.
    return min(found, key=len) if found else None


class Prompts(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.render = subprocess.Popen([RENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.render.stdin.close()
        cls.render.stdout.close()
        cls.render.wait()

    def ours(self, source, messages):
        body = {"messages": messages, "tools": TOOLS, "chat_template_kwargs": VARIABLES}
        self.render.stdin.write(json.dumps({"chat_template": source, "body": body}) + "\n")
        self.render.stdin.flush()
        answer = json.loads(self.render.stdout.readline())
        self.assertNotIn("error", answer)
        return answer["text"]

    def test_prompts_are_those_of_transformers(self):
        self.assertTrue(PATHS)
        for path in PATHS:
            name = os.path.basename(path)[:-len(".jinja")]
            with open(path, encoding="utf-8") as file:
                source = file.read()
            template = environment().from_string(source)
            for has_thought, goes_on in itertools.product((False, True), (True, False)):
                thought = {"reasoning_content": "A thought.", "thinking": "A thought.", "reasoning": "A thought."} if has_thought else {}
                with self.subTest(template=name, has_thought=has_thought, goes_on=goes_on):
                    wanted = by_transformers(template, thought, goes_on, name in THINKING_PARTS)
                    for content, text in itertools.product((None, "", "absent"), (json.dumps(ARGUMENTS), ARGUMENTS)):
                        prompt = self.ours(source, conversation(content, text, thought, goes_on))
                        if wanted is not None:
                            self.assertEqual(prompt, wanted)
                        behind = prompt[prompt.find("Where is the key?"):]
                        for word in ("open_door", "cellar", str(2**70 + 1), "it is open"):
                            self.assertIn(word, behind)
                    self.assertEqual(wanted is None, name in LOSSY)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
