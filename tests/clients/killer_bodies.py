"""Bodies that have killed, hung or starved servers of language models, or are made to. Standard library only.

Killers named after an advisory or an issue are what it describes, in the words of the APIs here. `CONTEXT` stands for the
model's context in tokens, `VOCAB` for a token id behind the last; `killers(model, context)` puts them in.
"""
import base64
import dataclasses
import json
import sys
import typing

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
MESSAGES, GENERATE, OLLAMA_CHAT = "/v1/messages", "/api/generate", "/api/chat"
TOKENIZE, DETOKENIZE, TEMPLATE = "/tokenize", "/detokenize", "/apply_template"
USER = [{"role": "user", "content": "Hi"}]
BIG = 2**63
DEEP = 60_000
sys.setrecursionlimit(50_000)  # of Python, which writes what is nested


@dataclasses.dataclass
class Killer:
    name: str
    path: str
    body: typing.Any  # an object, or bytes as they are
    statuses: tuple = (400,)
    headers: dict = dataclasses.field(default_factory=dict)

    @property
    def payload(self):
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(name, *statuses, **fields):
    return Killer(name, COMPLETIONS, {"prompt": "Hi", "max_tokens": 4, **fields}, statuses or (400,))


def chat(name, *statuses, **fields):
    return Killer(name, CHAT, {"messages": USER, "max_tokens": 4, **fields}, statuses or (400,))


def raw(name, path, text, *statuses):
    return Killer(name, path, text if isinstance(text, bytes) else text.encode(), statuses or (400,))


def schema(value):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}


def nested(depth, inner, wrap):
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def tool(parameters, **fields):
    return [{"type": "function", "function": {"name": "f", "parameters": parameters, **fields}}]


def counts():
    """Numbers that become loops, allocations or indices."""
    yield completion("vLLM CVE-2026-34756: n without a bound", n=1_000_000)
    yield chat("vLLM CVE-2026-34756: n without a bound, in a chat", n=1_000_000)
    yield completion("vLLM CVE-2024-8939: best_of without a bound", best_of=1_000_000)
    yield completion("n of 2^31", n=2**31)
    yield completion("n of 2^63", n=BIG)
    yield completion("n of 0", n=0)
    yield completion("n below 0", n=-1)
    yield completion("as many sequences as there may be", 200, n=64, max_tokens=2, temperature=1)
    yield completion("best_of below n", n=8, best_of=2)
    yield completion("max_tokens of 2^63", max_tokens=BIG)
    yield completion("max_tokens of 2^31 - 1", 200, max_tokens=2**31 - 1, stop=["e"], temperature=0)
    yield completion("max_tokens below 0", max_tokens=-1)
    yield completion("min_tokens above max_tokens", min_tokens=100)
    yield completion("min_tokens of 2^62", min_tokens=2**62, max_tokens=2**62 + 1)
    yield completion("seed of 2^64", 400, seed=2**64)
    yield completion("seed below 0", 200, 400, seed=-(2**63))
    yield completion("priority of 2^63", priority=BIG)
    yield completion("temperature of 1e308", 200, temperature=1e308)
    yield completion("temperature below 0", temperature=-1)
    yield completion("a temperature so small that logits overflow", 200, temperature=1e-300)
    yield completion("top_k of 2^63", top_k=BIG)
    yield completion("top_k of -2", top_k=-2)
    yield completion("top_p of 0", 200, 400, top_p=0)
    yield completion("top_p of 1e-300", 200, top_p=1e-300, temperature=1)
    yield completion("min_p of 2", min_p=2)
    yield completion("penalties of 1e300", presence_penalty=1e300, frequency_penalty=-1e300)
    yield completion("a repetition_penalty of 0", repetition_penalty=0)
    yield completion("a repetition_penalty of 1e-300", 200, 400, repetition_penalty=1e-300)
    yield completion("a length_penalty of 1e308 with beams", 200, 400, use_beam_search=True, n=4, best_of=4,
                     length_penalty=1e308)
    yield completion("beams as wide as there may be", 200, 400, use_beam_search=True, n=64, best_of=64, temperature=0)
    yield completion("beams of a width of 2^31", use_beam_search=True, n=2, best_of=2**31)
    yield completion("vLLM #47312: every prompt token's logprobs", 200, prompt="a b c d e f " * 60, prompt_logprobs=20)
    yield completion("prompt_logprobs of 2^31", prompt_logprobs=2**31)
    yield completion("prompt_logprobs of -1", prompt_logprobs=-1)
    yield completion("logprobs of 2^31", logprobs=2**31)
    yield completion("logprobs at its bound with many sequences", 200, logprobs=20, n=64, temperature=1)
    yield completion("echo with logprobs", 200, prompt="word " * 200, echo=True, logprobs=20)
    yield completion("echo of nothing more", 200, echo=True, max_tokens=0, logprobs=1)
    yield chat("top_logprobs of 2^31", logprobs=True, top_logprobs=2**31)
    yield chat("top_logprobs at its bound with many sequences", 200, logprobs=True, top_logprobs=20, n=64)
    yield chat("top_logprobs without logprobs", top_logprobs=5)
    yield completion("thinking_token_budget of 2^63", thinking_token_budget=BIG)
    yield raw("NaN", COMPLETIONS, '{"prompt": "Hi", "temperature": NaN}')
    yield raw("Infinity", COMPLETIONS, '{"prompt": "Hi", "temperature": Infinity}')
    yield raw("a number of a million digits", COMPLETIONS, '{"prompt": "Hi", "n": ' + "9" * 1_000_000 + "}")
    yield raw("a number of a million digits behind its point", COMPLETIONS,
              '{"prompt": "Hi", "max_tokens": 2, "temperature": 0.' + "1" * 1_000_000 + "}", 200)
    yield raw("1e999999999", COMPLETIONS, '{"prompt": "Hi", "temperature": 1e999999999}')


def prompts(context):
    """What the tokenizer and the context make of them."""
    yield completion("vLLM CVE-2024-8768: an empty prompt", 200, 400, prompt="")
    yield completion("an empty list of prompts", prompt=[])
    yield completion("an empty list of tokens", prompt=[[]])
    yield completion("no prompt", prompt=None)
    yield completion("a token out of the vocabulary", prompt=[10**6])
    yield completion("a token of 2^31", prompt=[2**31])
    yield completion("a token of 2^63", prompt=[BIG])
    yield completion("a token below 0", prompt=[-1])
    yield completion("tokens and texts mixed", prompt=[1, "a"])
    yield completion("tokens that are no whole numbers", prompt=[1.5])
    yield completion("a prompt as long as the context", prompt=[40] * context)
    yield completion("a prompt one longer than the context", prompt=[40] * (context + 1))
    yield completion("a prompt one shorter than the context", 200, prompt=[40] * (context - 1), max_tokens=1)
    yield completion("vLLM #27194: as many long prompts as fit and more", 200, 400, 503,
                     prompt=[[40 + i] * (context - 8) for i in range(24)], max_tokens=4)
    yield completion("a million tokens", prompt=[40] * 1_000_000)
    yield completion("vLLM #45346: one prompt that fails among others", prompt=[[40] * 8, [10**6], [41] * 8])
    yield completion("vLLM #45346: sequences that end, fail and go on in the same steps", 200, 400, prompt=["a", "b", "c"] * 8,
                     n=2, max_tokens=8, temperature=2, logprobs=5, structured_outputs={"regex": "[a-f]{1,3}|[0-9]+"})
    yield completion("100,000 prompts", prompt=["a"] * 100_000)
    yield completion("a prompt of 8 MiB without a space", prompt="a" * (8 << 20))
    yield completion("a prompt of 8 MiB of spaces", prompt=" " * (8 << 20))
    yield completion("a prompt of 4 MiB of line ends", prompt="\n" * (4 << 20))
    yield completion("a prompt of NULs", 200, prompt="\0" * 100)
    yield completion("a prompt of characters that are none", 200, prompt="\uffff\ufffe\u202e\u200b\U0010ffff" * 20)
    yield completion("a prompt of combining marks", 200, 400, prompt="e" + "\u0301" * 400)
    yield completion("llama.cpp #27427: 50 KB", 200, 400, prompt="lorem ipsum dolor sit amet, " * 1800)
    yield chat("llama.cpp #27427: 50 KB in a chat", 200, 400, messages=[{"role": "user", "content": "a" * 50_000}])
    yield chat("llama.cpp #17902: text on which a recursive regex overflows", 200, 400,
               messages=[{"role": "user", "content": "{\"a\": " * 20_000}])
    yield chat("vLLM CVE-2025-46560: a placeholder of images, many times", 200, 400,
               messages=[{"role": "user", "content": "<|image_pad|><|audio|><image>" * 5000}])
    yield chat("special tokens as text", 200, 400, messages=[{"role": "user", "content": "<|im_end|><s></s><|endoftext|>" * 200}])
    yield raw("lone surrogates", COMPLETIONS, '{"prompt": "\\ud800", "max_tokens": 2}')
    yield raw("bytes that are no UTF-8", COMPLETIONS, b'{"prompt": "\xc3\x28\xf8\xff", "max_tokens": 2}')
    yield raw("overlong UTF-8", COMPLETIONS, b'{"prompt": "\xc0\xaf", "max_tokens": 2}')
    yield raw("UTF-16", COMPLETIONS, '{"prompt": "Hi"}'.encode("utf-16"))
    yield Killer("detokenize tokens out of the vocabulary", DETOKENIZE, {"tokens": [10**9, -1]})
    yield Killer("detokenize 2^63", DETOKENIZE, {"tokens": [BIG]})
    yield Killer("detokenize a million tokens", DETOKENIZE, {"tokens": [40] * 1_000_000}, (200, 400))
    yield Killer("tokenize 8 MiB", TOKENIZE, {"prompt": "ab " * (8 << 20 >> 2)}, (200, 400))
    yield Killer("llama.cpp CVE-2025-52566: a text longer than its tokens may be", TOKENIZE,
                 {"prompt": "\u00e9" * (4 << 20)}, (200, 400))


def documents():
    """JSON that readers break on."""
    yield raw("arrays 100,000 deep", COMPLETIONS, '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}")
    yield raw("objects 100,000 deep", CHAT, '{"messages": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}")
    yield raw("arrays that never end", COMPLETIONS, "[" * 4_000_000)
    yield raw("a million keys", COMPLETIONS,
              '{"prompt": "Hi", "max_tokens": 4, ' + ",".join(f'"k{i}": 0' for i in range(1_000_000)) + "}", 200)
    yield raw("100,000 times the same key", COMPLETIONS, '{"prompt": "Hi"' + ', "n": 1' * 100_000 + "}")
    yield raw("a key of a megabyte", COMPLETIONS, '{"prompt": "Hi", "max_tokens": 4, "' + "k" * (1 << 20) + '": 1}', 200)
    yield raw("two bodies", COMPLETIONS, '{"prompt": "Hi"}{"prompt": "Hi"}')
    yield raw("prototype pollution", COMPLETIONS, '{"prompt": "Hi", "__proto__": {"n": 9}, "constructor": 1}', 200)
    yield raw("a mark of byte order", COMPLETIONS, b'\xef\xbb\xbf{"prompt": "Hi", "max_tokens": 1}', 200, 400)
    yield completion("vLLM CVE-2025-62164: a tensor for a prompt", prompt=None,
                     prompt_embeds=base64.b64encode(b"PK\x03\x04" + b"\0" * 4096).decode())
    yield completion("llama.cpp CVE-2026-21869: n_discard below 0", 200, n_discard=-100)
    yield completion("llama.cpp #25959: a parser of the client's that refers to itself", 200,
                     chat_parser='{"type":"sequence","children":[0]}')
    yield completion("a path for a model", 404, model="../../../../etc/passwd")
    yield completion("a model's name of a megabyte", 404, model="m" * (1 << 20))
    yield completion("an id with line ends", 200, 400, request_id="a\r\nX-Evil: 1")
    yield completion("a cache_salt of a megabyte", cache_salt="s" * (1 << 20))
    yield completion("a user of a megabyte", user="u" * (1 << 20))


def lists():
    """Stop strings, biases and the like without end."""
    yield completion("100,000 stop strings", stop=[f"s{i}" for i in range(100_000)])
    yield completion("a stop string of a megabyte", stop="s" * (1 << 20))
    yield completion("an empty stop string", stop=[""])
    yield completion("stop strings that are prefixes of each other", 200, stop=["a" * i for i in range(1, 65)],
                     max_tokens=8)
    yield completion("a stop string of a lone surrogate's bytes", 200, stop=["\ufffd"])
    yield completion("stop tokens out of the vocabulary", stop_token_ids=[10**9])
    yield completion("100,000 stop tokens", stop_token_ids=list(range(100_000)))
    yield completion("vLLM: a bias of a token out of the vocabulary", logit_bias={"1000000": 1})
    yield completion("a bias of a token below 0", logit_bias={"-1": 1})
    yield completion("a bias of a token that is no number", logit_bias={"a": 1})
    yield completion("a bias of 1e308", 200, 400, logit_bias={"40": 1e308, "41": 1e308})
    yield completion("a bias that forbids everything that is likely", 200, 400, logit_bias={str(i): -100 for i in range(400)})
    yield completion("100,000 biases", logit_bias={str(i): 1 for i in range(100_000)})
    yield completion("bad_words without end", 400, bad_words=["w"] * 100_000)


def grammars():
    """Structured outputs: what is compiled before anything is generated."""
    yield completion("vLLM CVE-2025-48942: a schema that is none", structured_outputs={"json": {"type": "objekt"}})
    yield completion("vLLM CVE-2025-48942: a schema that is a list", structured_outputs={"json": [1]})
    yield completion("vLLM CVE-2025-48943: a regex that is none", structured_outputs={"regex": "(unclosed["})
    yield completion("vLLM #43920: a grammar that is good", 200, structured_outputs={"grammar": 'root ::= "a" | "b"'})
    yield completion("vLLM #43920: behind it, one with two roots",
                     structured_outputs={"grammar": 'root ::= "a"\nroot ::= "b"'})
    yield completion("vLLM #43920: a regex that is good", 200, structured_outputs={"regex": "^(.*)$"})
    yield completion("vLLM #43920: behind it, one with an empty alternative", 200, 400,
                     structured_outputs={"regex": "^(|.*)$"})
    yield completion("a regex that matches nothing", 200, 400, structured_outputs={"regex": "a{0}b{0}"})
    yield completion("a regex of 60,000 groups", structured_outputs={"regex": "(" * DEEP + "a" + ")" * DEEP})
    yield completion("repetitions of repetitions", 200, structured_outputs={"regex": "((((a{1,1000}){1,1000}){1,1000}){1,1000})"})
    yield completion("a repetition of 2^31", 200, structured_outputs={"regex": f"a{{1,{2**31}}}"})
    yield completion("a regex on which others backtrack for ever", 200, 400, structured_outputs={"regex": "(a+)+(a+)+$"})
    yield completion("a regex of alternatives without end", 200, 400,
                     structured_outputs={"regex": "|".join("w%d" % i for i in range(5000))})
    yield completion("llama.cpp #25308: a quantifier with nothing before it", structured_outputs={"regex": "(?<=x)*"})
    yield completion("a look-ahead", structured_outputs={"regex": "(?=a)b"})
    yield completion("a back reference", structured_outputs={"regex": "(a)\\1"})
    yield completion("llama.cpp #26600: a grammar of 60,000 groups",
                     structured_outputs={"grammar": "root ::= " + "(" * DEEP + '"a"' + ")" * DEEP})
    yield completion("llama.cpp #6492: a grammar that begins with itself", 200, 400,
                     structured_outputs={"grammar": 'root ::= root "a" | "b"'})
    yield completion("a grammar of rules that only refer to each other", 200, 400,
                     structured_outputs={"grammar": "root ::= a\na ::= b\nb ::= a"})
    yield completion("a chain of 20,000 rules", 200, 400, structured_outputs={
        "grammar": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(20_000)) + '\nr20000 ::= "a"'})
    yield completion("llama.cpp #4492: a grammar that is none", structured_outputs={"grammar": "rout::=\\\"route\\\""})
    yield completion("llama.cpp #3878: a grammar without root", structured_outputs={"grammar": 'Root ::= [^\\n]+ "#"'})
    yield completion("a grammar of NULs", structured_outputs={"grammar": "\0" * 100})
    yield completion("a grammar that can say nothing", 200, 400, structured_outputs={"grammar": 'root ::= ""'})
    yield completion("choices without end", 200, 400, structured_outputs={"choice": [f"c{i}" for i in range(20_000)]})
    yield completion("no choice", structured_outputs={"choice": []})
    yield completion("two constraints at once", structured_outputs={"regex": "a", "choice": ["b"]})
    yield completion("llama.cpp #3702: a constraint with every way to sample", 200, temperature=2, top_k=1, top_p=0.01,
                     min_p=0.99, structured_outputs={"regex": "[ab]{1,4}"})
    yield chat("vLLM #4070: json_object that never ends", 200, response_format={"type": "json_object"}, max_tokens=64,
               temperature=2)
    yield chat("a schema nested 2,000 deep", response_format=schema(
        nested(2000, {"type": "string"}, lambda inner: {"type": "array", "items": inner})))
    yield chat("a schema that refers to itself", 200, 400, response_format=schema(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}))
    yield chat("a schema of a tree without an end", 200, 400, max_tokens=32, response_format=schema(
        {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}},
                                              "required": ["t"]}}}))
    yield chat("a reference to a file", response_format=schema({"$ref": "file:///etc/passwd"}))
    yield chat("a reference to a host", response_format=schema({"$ref": "http://169.254.169.254/latest"}))
    yield chat("a reference to nowhere", response_format=schema({"$ref": "#/$defs/none"}))
    yield chat("an enum of 20,000", 200, 400, response_format=schema({"enum": [f"e{i}" for i in range(20_000)]}))
    yield chat("5,000 properties", 200, 400, response_format=schema(
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}}))
    yield chat("bounds of 2^63", 200, 400, response_format=schema({"type": "string", "minLength": BIG}))
    yield chat("an array of a billion items", 200, 400, response_format=schema(
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}))
    yield chat("bounds that exclude each other", 200, 400, response_format=schema(
        {"type": "integer", "minimum": 10, "maximum": 5}))
    yield chat("a pattern with a look-behind", response_format=schema({"type": "string", "pattern": "(?<=x)*"}))
    yield chat("a schema that nothing fits", 200, 400, response_format=schema(False))
    yield chat("a format of no known type", response_format={"type": "xml"})
    yield chat("vLLM #24107: a structural tag without an end", response_format={"type": "structural_tag", "structures": [
        {"begin": "<a>", "schema": {}, "end": ""}], "triggers": [""]})


def conversations():
    """Templates, tools and images."""
    for number in (1, 2):
        yield chat(f"llama.cpp #17071: a schema behind a prompt that is cached, time {number}", 200, 400, max_tokens=24,
                   messages=[{"role": "user", "content": "Tell of a bear. " * 20}], temperature=0.8, top_k=40, min_p=0.05,
                   response_format=schema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}))
    yield chat("llama.cpp #17071: fields that only llama.cpp knows", 200, cache_prompt=True, samplers="edkypmxt",
               reasoning_format="none", json_schema={"type": "object"}, dynatemp_range=0)
    yield chat("no messages", messages=[])
    yield chat("messages that are none", messages=[None, 1, "x"])
    yield chat("a role that is none", messages=[{"role": "r\0", "content": "a"}])
    yield chat("a content of no known type", messages=[{"role": "user", "content": 7}])
    yield chat("10,000 messages", 200, 400, messages=[{"role": ("user", "assistant")[i % 2], "content": "a"}
                                                      for i in range(9_999)])
    yield chat("100,000 parts", 200, 400, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 100_000}])
    yield chat("vLLM CVE-2025-6242: an image inside the network", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}]}])
    yield chat("an image that is a file", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "file:///dev/zero"}}]}])
    yield chat("vLLM CVE-2026-22773: an image of one pixel", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}])
    yield chat("vLLM CVE-2025-61620: a template of the client's", chat_template="{% for i in range(10**12) %}x{% endfor %}")
    yield chat("vLLM CVE-2025-61620: a template in the template's variables", 200, 400,
               chat_template_kwargs={"chat_template": "{{ ''.__class__.__mro__ }}"})
    yield chat("vLLM CVE-2025-62426: variables that are arguments elsewhere", 200, 400,
               chat_template_kwargs={"tokenize": True, "messages": [], "tools": 7, "documents": "x"})
    yield chat("a variable nested 2,000 deep", 200, 400,
               chat_template_kwargs={"x": nested(2000, 1, lambda inner: [inner])})
    yield chat("20,000 variables", 200, 400, chat_template_kwargs={f"v{i}": i for i in range(20_000)})
    yield chat("variables that are no object", chat_template_kwargs=[1])
    yield chat("vLLM CVE-2025-48944: a tool's pattern that is no regex",
               tools=tool({"type": "object", "properties": {"a": {"type": "string", "pattern": "(["}}}), tool_choice="required")
    yield chat("vLLM CVE-2025-48944: a tool's type that is none",
               tools=tool({"type": "object", "properties": {"a": {"type": "strnig"}}}), tool_choice="required")
    yield chat("llama.cpp #15640: a tool with a strict regex", 200, 400, tools=tool(
        {"type": "object", "properties": {"d": {"type": "string", "pattern": "^\\d{4}-(0[1-9]|1[0-2])-\\d{2}T.*Z$"}}},
        strict=True), tool_choice="required")
    yield chat("a tool whose parameters refer to themselves", 200, 400, tools=tool(
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}),
        tool_choice="required")
    yield chat("a tool nested 2,000 deep", tools=tool(
        nested(2000, {"type": "string"}, lambda inner: {"type": "object", "properties": {"a": inner}})),
        tool_choice="required")
    yield chat("a tool's name of a megabyte", tools=[{"type": "function", "function": {"name": "f" * (1 << 20)}}])
    yield chat("a tool's name with code", 200, 400, tools=[{"type": "function", "function": {"name": "__import__('os')"}}])
    yield chat("2,000 tools", 200, 400, tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(2000)])
    yield chat("a choice of a tool that is not there", tools=tool({}), tool_choice={"type": "function", "function": {"name": "g"}})
    yield chat("tools of no type", tools=[{}])
    yield chat("arguments of an earlier call that are no JSON", 200, 400, messages=[
        *USER, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "f", "arguments": "{" * 5000}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"}])
    yield chat("an answer of a tool that was not called", 200, 400, messages=[{"role": "tool", "tool_call_id": "z", "content": "x"}])
    yield chat("a message to continue that is not there", 200, 400, continue_final_message=True, add_generation_prompt=True)
    yield Killer("Responses: an earlier answer that is not there", RESPONSES, {"input": "Hi", "previous_response_id": "x" * 5000},
                 (400, 404))
    yield Killer("Responses: 100,000 items", RESPONSES, {"input": [{"role": "user", "content": "a"}] * 100_000}, (200, 400))
    yield Killer("Responses: an item of no type", RESPONSES, {"input": [{"type": "x"}]})
    yield Killer("Anthropic: max_tokens of 2^63", MESSAGES, {"messages": USER, "max_tokens": BIG})
    yield Killer("Anthropic: blocks of no type", MESSAGES, {"messages": [{"role": "user", "content": [{"type": "x"}]}], "max_tokens": 1})
    yield Killer("Anthropic: a tool nested 2,000 deep", MESSAGES, {
        "messages": USER, "max_tokens": 1, "tool_choice": {"type": "any"}, "tools": [{"name": "f", "input_schema": nested(
            2000, {"type": "string"}, lambda inner: {"type": "object", "properties": {"a": inner}})}]})
    yield Killer("Ollama: num_predict of 2^63", GENERATE, {"model": "MODEL", "prompt": "Hi", "options": {"num_predict": BIG}})
    yield Killer("Ollama: num_ctx of 2^40", GENERATE, {"model": "MODEL", "prompt": "Hi", "stream": False,
                                                       "options": {"num_ctx": 2**40, "num_predict": 2}}, (200, 400))
    yield Killer("Ollama: a template of the client's", GENERATE, {"model": "MODEL", "prompt": "Hi", "template": "{{ .Prompt }}"})
    yield Killer("Ollama: images", OLLAMA_CHAT, {"model": "MODEL", "messages": [{"role": "user", "content": "a",
                                                                                "images": ["AAAA"]}]})
    yield Killer("Ollama: a format that is no schema", OLLAMA_CHAT, {"model": "MODEL", "messages": USER, "format": {"type": 7}})
    yield Killer("a template of 10,000 messages", TEMPLATE, {"messages": USER * 10_000}, (200, 400))


LINE_FIELDS = {
    "prompt", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "n", "best_of", "seed", "stop",
    "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "repeat_last_n", "logit_bias", "logprobs", "prompt_logprobs", "skip_special_tokens", "use_beam_search",
    "length_penalty", "early_stopping", "thinking_token_budget", "structured_outputs", "priority", "user", "cache_salt",
    "speculation",
}


def as_line(killer):
    """(a request of JSON lines, the events that may answer it) that says the same; None where there is none."""
    body = killer.body
    if killer.path != COMPLETIONS or not isinstance(body, dict) or not set(body) <= LINE_FIELDS:
        return None
    line = {"id": "k", **body}
    if isinstance(body["prompt"], list):
        if not body["prompt"] or not all(isinstance(token, int) for token in body["prompt"]):
            return None  # several prompts are several requests
        line["prompt_token_ids"] = line.pop("prompt")
    return line, tuple(event for event, is_right in (("done", 200 in killer.statuses), ("error", killer.statuses != (200,)))
                       if is_right)


def killers(model, context):
    """All of them for a model of that name and context."""
    found = [*counts(), *prompts(context), *documents(), *lists(), *grammars(), *conversations()]
    for killer in found:
        if isinstance(killer.body, dict) and killer.body.get("model") == "MODEL":
            killer.body["model"] = model
    return found
