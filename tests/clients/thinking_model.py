"""A model that thinks before it answers, made of the files of any model. Standard library only."""
import json
import os
import shutil

MARKS = "<think>", "</think>"

TEMPLATE = r"""
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool['function'] | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['reasoning_content'] %}BEGIN
{{ message['reasoning_content'] }}
END

{% endif %}{{ message['content'] or '' }}
{%- for call in message['tool_calls'] or [] %}
<tool_call>
{"name": "{{ call['function']['name'] }}", "arguments": {{ call['function']['arguments'] | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}BEGIN

END

{% else %}BEGIN
{% endif %}{% endif %}"""


def write_template(path, marks=MARKS):
    """Writes a chat template whose thinking stands between the marks."""
    with open(path, "w") as file:
        file.write(TEMPLATE.replace("BEGIN", marks[0]).replace("END", marks[1]))


def thinking_model(given, folder):
    """A copy of a model's folder with <think> and </think> as tokens of their own and, for these have no weights, random
    ones. Returns the flags that a server needs besides."""
    for name in os.listdir(given):
        if not name.endswith(".safetensors"):
            shutil.copy(os.path.join(given, name), folder)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    with open(os.path.join(folder, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    for mark in MARKS:
        tokenizer["added_tokens"].append({"id": config["vocab_size"], "content": mark, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False, "special": False})
        config["vocab_size"] += 1
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file)
    return "--load-format", "dummy"
