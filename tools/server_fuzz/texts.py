"""Texts of requests: prompts that share beginnings, and all kinds of constraints of an answer."""
import json

from worker_load import PROMPTS

WORDS = ("the a little old bear sat in his house and looked at it was raining Lily wanted to play with her dog one day "
         "boy named Tom found big red ball mom said be careful happy sad tree bird they went home").split()
STOPS = ["the", " a", ".", "\n", "Lily", "er", "was happy", "o"]
BAD_WORDS = ["the", " and", "Lily was", ".", "wanted to", "s"]
TOOLS = [{"type": "function", "function": {
    "name": name, "description": "A tool.", "parameters": {
        "type": "object", "properties": {"place": {"enum": ["north", "south", "here"]}, "days": {"type": "integer"}},
        "required": ["place"], "additionalProperties": False}}} for name in ("look", "walk_on")]

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 200},
                                           "kind": {"enum": ["animal", "person", "thing"]}},
          "required": ["name", "kind"], "additionalProperties": False}
LIST_SCHEMA = {"type": "array", "minItems": 1, "maxItems": 4,
               "items": {"anyOf": [{"type": "boolean"}, {"type": "null"},
                                   {"type": "string", "pattern": "^[a-z]{1,8}$"}]}}
TREE_SCHEMA = {"$ref": "#/$defs/tree", "$defs": {"tree": {
    "type": "object", "properties": {"value": {"type": "number"},
                                     "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
    "required": ["value", "next"], "additionalProperties": False}}}
EBNF = 'root ::= "once" (" and " word){1,6} "."\nword ::= [a-z]{2,9} | "Lily"'
LARK = 'start: sum\nsum: NUMBER ("+" NUMBER)*\n%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE\n'
CALCULATION = {"begin": "<calc>", "content": {"type": "regex", "pattern": "[0-9+*() -]+"}, "end": "</calc>"}
TAGS = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<calc>"], "tags": [CALCULATION],
                                             "at_least_one": True, "stop_after_first": True}}
SEQUENCE = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
    {"type": "const_string", "value": "Name: "}, {"type": "regex", "pattern": "[A-Z][a-z]{1,8}"},
    {"type": "const_string", "value": "\nData: "}, {"type": "json_schema", "json_schema": SCHEMA}]}}
FORMS = [{"json": SCHEMA}, {"json": LIST_SCHEMA}, {"json": json.dumps(TREE_SCHEMA)},
         {"regex": "(yes|no|maybe)( because [a-z ]{3,30})?\\."}, {"regex": "[0-9]{4}-[01][0-9]( and [a-z]+)*"},
         {"choice": ["alpha beta", "alpha gamma", "delta", "once upon a time"]}, {"grammar": EBNF}, {"grammar": LARK},
         {"json_object": True}, {"structural_tag": TAGS}, {"structural_tag": SEQUENCE}]


def shared_words(rng):
    """Returns the beginning that prompts of a family share."""
    step = rng.choice([3, 3, 7])
    return " ".join(WORDS[i * step % len(WORDS)] for i in range(rng.choice([0, 0, 12, 40, 90])))


def prompt(rng, max_words):
    own = " ".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 4, 15, 60, 120])))
    words = f"{rng.choice(PROMPTS)} {shared_words(rng)} {own}".split()
    if rng.random() < 0.7:
        words = words[8:] or words
    return " ".join(words[:max_words])


def conversation(rng, max_words):
    messages = [{"role": "user", "content": prompt(rng, max_words)}]
    if rng.random() < 0.3:
        messages.insert(0, {"role": "system", "content": "You tell stories."})
    if rng.random() < 0.2:
        messages += [{"role": "assistant", "content": "They went home."}, {"role": "user", "content": "And then?"}]
    return messages
