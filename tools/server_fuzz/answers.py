"""The answer to a request, in one form for both protocols."""


class Delta:
    """The deltas of one sequence, joined."""

    def __init__(self):
        self.token_ids = []
        self.text = ""
        self.logprobs = []
        self.sizes = []  # number of tokens of each

    def take(self, event):
        self.sizes.append(len(event["token_ids"]))
        self.token_ids += event["token_ids"]
        self.text += event["text"]
        self.logprobs += event.get("logprobs", [])


class Answer:
    def __init__(self):
        self.deltas = {}  # Delta by the index of the sequence
        self.calls = {}  # [(name, arguments)] of the tool_call events by the index of the sequence
        self.num_events = 0
        self.outputs = None  # the outputs at the end, by index
        self.prompt_logprobs = None
        self.usage = {}
        self.error = None  # {"code", "message", ...}
        self.problems = []

    @property
    def has_ended(self):
        return self.outputs is not None or self.error is not None

    def output(self, index):
        return next((output for output in self.outputs or [] if output["index"] == index), None)

    def token_ids(self, index):
        """Returns the tokens of a sequence that have come so far."""
        output = self.output(index)
        if output:
            return output["token_ids"]
        return self.deltas[index].token_ids if index in self.deltas else []

    def content(self):
        """Returns the parts that may not depend on how the request was scheduled."""
        if self.error:
            return {"error": {name: self.error.get(name) for name in ("code", "message", "param")}}
        return {"outputs": self.outputs, "prompt_logprobs": self.prompt_logprobs, "usage": self.usage}

    def take(self, event):
        """Takes an event of JSON lines."""
        if self.has_ended:
            self.problems.append(f"an event behind the end: {event}")
        if "number" in event and event["number"] != self.num_events:
            self.problems.append(f"event {event['number']} comes where {self.num_events} is due")
        self.num_events += 1
        if event["event"] == "delta":
            self.deltas.setdefault(event["index"], Delta()).take(event)
        elif event["event"] == "tool_call":
            self.calls.setdefault(event["index"], []).append(call_of(event["tool_call"]))
        elif event["event"] == "done":
            self.end(event["outputs"], event.get("prompt_logprobs"), event["usage"])
        elif event["event"] == "error":
            self.error = event["error"]

    def end(self, outputs, prompt_logprobs, usage):
        self.outputs = sorted((readable(output) for output in outputs), key=lambda output: output["index"])
        self.prompt_logprobs = prompt_logprobs
        self.usage = {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}


def call_of(call):
    return call["function"]["name"], call["function"]["arguments"]


def readable(output):
    """Returns the common form of an output of `done`, or of a choice of an HTTP answer, streamed or not."""
    output = dict(output)
    if message := output.get("message"):
        output["message"] = {"content": message.get("content") or "", "reasoning": message.get("reasoning") or "",
                             "tool_calls": [call_of(call) for call in message.get("tool_calls") or []]}
    return output


class ChoiceStream:
    """Joins the chunks of an HTTP stream to the choices of an answer that is not streamed."""

    def __init__(self):
        self.choices = {}
        self.usage = {"prompt_tokens": None, "completion_tokens": None}
        self.next_number = 0  # the number after that of the last event of a resumable stream that was read
        self.num_events = 0  # number of its events that have come completely
        self.problems = []

    def number(self, number):
        """Notes the number of the next event."""
        if number != self.num_events:
            self.problems.append(f"event {number} comes where {self.num_events} is due")
        self.next_number = number + 1

    def take(self, chunk):
        self.num_events = self.next_number
        self.usage = chunk.get("usage") or self.usage
        for piece in chunk["choices"]:
            choice = self.choices.setdefault(piece["index"], {"index": piece["index"], "token_ids": []})
            choice["token_ids"] += piece.get("token_ids") or []
            choice["finish_reason"] = piece.get("finish_reason") or choice.get("finish_reason")
            choice["stop_reason"] = piece.get("stop_reason")
            choice["logprobs"] = joined_logprobs(choice.get("logprobs"), piece.get("logprobs"))
            if "delta" in piece:
                join_message(choice.setdefault("message", {"content": "", "reasoning": "", "tool_calls": []}),
                             piece["delta"])
            else:
                choice["text"] = choice.get("text", "") + piece["text"]


def joined_logprobs(first, second):
    """Joins two objects of lists, one for each token."""
    if first is None or second is None:
        return first or second
    return {name: first[name] + second[name] if isinstance(values, list) else values for name, values in second.items()}


def join_message(message, delta):
    for name in ("content", "reasoning"):
        message[name] += delta.get(name) or ""
    for piece in delta.get("tool_calls") or []:
        if piece["index"] == len(message["tool_calls"]):
            message["tool_calls"].append({"function": {"name": "", "arguments": ""}})
        function = message["tool_calls"][piece["index"]]["function"]
        for name in ("name", "arguments"):
            function[name] += piece.get("function", {}).get(name) or ""
