"""Draws requests of all kinds, as objects of the JSON lines or as bodies of the HTTP API."""
from dataclasses import dataclass

from . import texts


@dataclass
class Limits:
    """Limits of the servers of a round."""
    vocab_size: int
    max_beams: int
    thinks: bool = False
    resumes: bool = False  # whether requests are resumable if possible


@dataclass
class Request:
    id: str
    body: dict  # fields of the request; without id
    path: str = ""  # the HTTP route; none: a JSON line
    cancel_after: int = -1  # number of events after which its client cancels the request; -1: never

    @property
    def is_search(self):
        return bool(self.body.get("use_beam_search"))

    @property
    def num_sequences(self):
        return self.body.get("best_of") or self.body.get("n", 1)

    @property
    def selects(self):
        """Returns whether the answer has only some of the sequences."""
        return self.num_sequences > self.body.get("n", 1)

    @property
    def streams(self):
        return self.body.get("stream", not self.path)

    @property
    def is_resumable(self):
        return bool(self.body.get("resumable"))


class Draft:
    """The fields of a request while it is drawn."""

    def __init__(self, rng, limits):
        self.rng = rng
        self.limits = limits
        self.body = {}

    def chance(self, share):
        return self.rng.random() < share

    def maybe(self, share, name, *values):
        if self.chance(share):
            self.body[name] = self.rng.choice(values)

    def has(self, *names):
        return any(name in self.body for name in names)

    def tokens(self, count):
        return [self.rng.randrange(2, self.limits.vocab_size) for _ in range(count)]


def draw_request(rng, number, limits):
    draft = Draft(rng, limits)
    add_prompt(draft)
    draft.body["max_tokens"] = rng.choice([1, 2, 8, 8, 30, 80, 80, 200, 300])
    if draft.chance(0.12):
        add_beam_search(draft)
    else:
        add_sampling(draft)
        add_sequences(draft)
    add_penalties(draft)
    add_end(draft)
    add_form(draft)
    add_token_choice(draft)
    add_logprobs(draft)
    add_text_options(draft)
    add_scheduling(draft)
    request = Request(f"q{number}", draft.body)
    if draft.chance(0.15):
        turn_to_http(draft, request)
    else:
        add_delivery(draft)
    if draft.chance(0.1) and not request.path:
        request.cancel_after = rng.choice([0, 0, 1, 5, 20])
    return request


def add_prompt(draft):
    rng = draft.rng
    max_words = rng.choice([3, 40, 180])
    draw = rng.random()
    if draw < 0.15 or (draft.limits.thinks and draw < 0.5):
        draft.body["messages"] = texts.conversation(rng, max_words)
        add_tools(draft)
    elif draw < 0.3:
        draft.body["prompt_token_ids"] = draft.tokens(rng.choice([1, 7, 32, 100, 250]))
    else:
        draft.body["prompt"] = texts.prompt(rng, max_words)
        draft.maybe(0.1, "add_special_tokens", False)
        draft.maybe(0.1, "truncate_prompt_tokens", 3, 20, 60)
    if draft.limits.thinks:
        draft.maybe(0.6, "thinking_token_budget", 0, 1, 4, 20)


def add_tools(draft):
    if not draft.chance(0.4):
        return
    draft.body["tools"] = texts.TOOLS
    draft.maybe(0.8, "tool_choice", "none", "auto", "required", {"type": "function", "function": {"name": "look"}})
    draft.maybe(0.5, "parallel_tool_calls", False)


def add_sampling(draft):
    if draft.chance(0.4):
        draft.body["temperature"] = 0
        return
    draft.body["temperature"] = draft.rng.choice([0.5, 1.0, 1.5])
    draft.body["seed"] = draft.rng.getrandbits(40)
    draft.maybe(0.4, "top_p", 0.3, 0.8, 0.95)
    draft.maybe(0.4, "top_k", 1, 5, 50)
    draft.maybe(0.2, "min_p", 0.05, 0.3)


def add_beam_search(draft):
    width = draft.rng.randint(1, draft.limits.max_beams)
    draft.body |= {"use_beam_search": True, "temperature": 0, "best_of": width, "n": draft.rng.randint(1, width)}
    draft.body["max_tokens"] = min(draft.body["max_tokens"], 40)
    draft.maybe(0.6, "early_stopping", True, "never")
    draft.maybe(0.6, "length_penalty", 0.0, 2.0, -1.0)


def add_sequences(draft):
    draft.maybe(0.3, "n", 2, 3, 5)
    if draft.chance(0.12):
        draft.body["best_of"] = draft.body.get("n", 1) + draft.rng.choice([0, 1, 2])
    if draft.chance(0.02) and not draft.has("best_of"):
        draft.body |= {"n": 24, "max_tokens": 8}


def add_penalties(draft):
    if not draft.chance(0.35):
        return
    draft.maybe(0.5, "repetition_penalty", 0.8, 1.2)
    draft.maybe(0.5, "presence_penalty", -1.0, 1.5)
    draft.maybe(0.5, "frequency_penalty", -1.0, 1.5)
    draft.maybe(0.3, "repeat_last_n", 0, 1, 20)


def add_end(draft):
    draft.maybe(0.7, "ignore_eos", True)
    draft.maybe(0.15, "min_tokens", *(min(draft.body["max_tokens"], least) for least in (1, 5, 30)))
    if draft.chance(0.15):
        draft.body["stop_token_ids"] = draft.tokens(draft.rng.choice([1, 20]))
    if draft.chance(0.3) and not draft.has("use_beam_search"):
        draft.body["stop"] = draft.rng.sample(texts.STOPS, draft.rng.choice([1, 2]))
        draft.maybe(0.5, "include_stop_str_in_output", True)


def add_form(draft):
    """Constrains the answer. A constraint, or a call, replaces other rules for its end."""
    if draft.chance(0.22) and not draft.has("tools"):
        draft.body["structured_outputs"] = draft.rng.choice(texts.FORMS)
    if draft.has("structured_outputs", "tools"):
        for name in ("ignore_eos", "min_tokens"):
            draft.body.pop(name, None)


def add_token_choice(draft):
    if draft.chance(0.1):
        draft.body["logit_bias"] = {str(token): draft.rng.choice([-100, -2, 3]) for token in draft.tokens(4)}
    if draft.chance(0.12):
        draft.body["bad_words"] = draft.rng.sample(texts.BAD_WORDS, draft.rng.choice([1, 3]))
    if draft.chance(0.1) and not draft.has("structured_outputs", "tools"):
        draft.body["allowed_token_ids"] = draft.tokens(draft.rng.choice([3, 40, 400]))


def add_logprobs(draft):
    draw = draft.rng.random()
    if draw < 0.2:
        draft.body["logprobs"] = draft.rng.choice([0, 1, 5, 20])
    elif draw < 0.24:
        list_vocabulary(draft, "logprobs")
    elif draw < 0.3 and not draft.has("use_beam_search"):
        draft.body["logprob_token_ids"] = draft.tokens(draft.rng.choice([1, 10]))
    draw = draft.rng.random()
    if draw < 0.12:
        draft.body["prompt_logprobs"] = draft.rng.choice([0, 2, 20])
    elif draw < 0.14 and draft.has("prompt"):
        list_vocabulary(draft, "prompt_logprobs")
        draft.body["truncate_prompt_tokens"] = 12


def list_vocabulary(draft, name):
    """Asks for all log-probabilities, of a short answer."""
    draft.body[name] = -1
    most = 6 if draft.body.get("best_of", draft.body.get("n", 1)) <= 2 else 2
    draft.body["max_tokens"] = min(draft.body["max_tokens"], most)
    if draft.has("min_tokens"):
        draft.body["min_tokens"] = min(draft.body["min_tokens"], most)


def add_text_options(draft):
    if draft.chance(0.07) and not draft.has("stop", "tools", "messages"):
        draft.body["detokenize"] = False
    draft.maybe(0.15, "skip_special_tokens", False)
    draft.maybe(0.1, "spaces_between_special_tokens", False)


def add_scheduling(draft):
    draft.maybe(0.3, "priority", -1, 0, 3)
    draft.maybe(0.5, "user", "a", "b", "c")
    draft.maybe(0.1, "cache_salt", "s")


def add_delivery(draft):
    draft.maybe(0.2, "speculation", False)
    draft.maybe(0.4, "stream", False)
    draft.maybe(0.12, "stream_interval", 2, 5, 1000)
    may_resume = not draft.has("tools") and not (draft.limits.thinks and draft.has("messages", "structured_outputs"))
    if draft.limits.resumes and may_resume and draft.chance(0.85):
        draft.body["resumable"] = True


def turn_to_http(draft, request):
    """Turns the fields into a body of /v1/chat/completions or /v1/completions."""
    body = draft.body
    is_chat = "messages" in body
    request.path = "/v1/chat/completions" if is_chat else "/v1/completions"
    if "prompt_token_ids" in body:
        body["prompt"] = body.pop("prompt_token_ids")
    if "logprob_token_ids" in body:
        body["logprobs"] = 0
    if is_chat and "logprobs" in body:
        body["top_logprobs"] = body["logprobs"]
        body["logprobs"] = True
    body.pop("detokenize", None)
    body["return_token_ids"] = True
    if not draft.has("prompt_logprobs", "use_beam_search", "best_of"):
        draft.maybe(0.5, "stream", True)
    if "stream" in body:
        body["stream_options"] = {"include_usage": True}
        if draft.limits.resumes:
            draft.maybe(0.7, "resumable", True)
