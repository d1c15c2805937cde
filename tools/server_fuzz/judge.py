"""Compares the answers to disturbed clients with those of an undisturbed server."""
import json

CULPRIT = "the request crashes workers"


def first_difference(got, want, path=""):
    """Returns where two values first differ, and how."""
    if isinstance(got, dict) and isinstance(want, dict) and got.keys() == want.keys():
        pairs = [(f"{path}.{name}", got[name], want[name]) for name in want]
    elif isinstance(got, (list, tuple)) and isinstance(want, (list, tuple)) and len(got) == len(want):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(got, want))]
    else:
        return None if got == want else f"{path or 'the answer'}: got {shown(got)}, expected {shown(want)}"
    return next((found for found in (first_difference(a, b, where) for where, a, b in pairs) if found), None)


def shown(value):
    text = json.dumps(value)
    return text if len(text) < 400 else f"{text[:250]} ... {text[-100:]}"


class Judge:
    """Finds faults in answers. `may_fail`: whether workers crash, so that requests may fail for it."""

    def __init__(self, pool, stream_interval, may_fail):
        self.pool, self.stream_interval, self.may_fail = pool, stream_interval, may_fail
        self.num_cut = self.num_refused = self.num_blamed = self.num_cancelled = self.num_errors = 0

    def problems_of(self, request, answer, expected, was_cancelled):
        problems = list(answer.problems)
        if not answer.has_ended:
            return problems  # its client has reported the reason
        problems += self.problems_of_deltas(request, answer)
        if answer.error:
            problems += self.problems_of_error(request, answer, expected)
        elif expected.error:
            if not was_cancelled:
                problems.append(f"an answer, where {expected.error} is expected")
        elif was_cancelled:
            self.num_cancelled += 1
            problems += self.problems_of_part(request, answer, expected)
        else:
            problems += self.problems_of_outputs(request, answer, expected)
        return problems

    def problems_of_error(self, request, answer, expected):
        if expected.error:
            self.num_errors += 1
            difference = first_difference(answer.content(), expected.content())
            return [difference] if difference and not self.is_rightly_refused(answer, expected) else []
        problems = self.problems_of_tokens(request, answer, expected)
        if self.may_fail and CULPRIT in answer.error.get("message", ""):
            self.num_blamed += 1
        elif self.is_rightly_refused(answer, expected):
            self.num_refused += 1
        else:
            problems.append(f"an error: {shown(answer.error)}")
        return problems

    def is_rightly_refused(self, answer, expected):
        """Returns whether the prompt does not fit the small pool. Of several mistakes any may be named."""
        if answer.error.get("code") not in ("context_too_long", "context_length_exceeded"):
            return False
        return bool(expected.error) or not self.pool.holds(expected.usage["prompt_tokens"] + 1)

    def problems_of_part(self, request, answer, expected):
        """Checks a cancelled request: it must have the beginning of each sequence."""
        problems = self.problems_of_tokens(request, answer, expected)
        for output in answer.outputs:
            want = expected.output(output["index"])
            reasons = ("abort", "length", want and want["finish_reason"])
            if output["finish_reason"] not in reasons:
                problems.append(f"a cancelled sequence ends with {output['finish_reason']}")
        return problems

    def problems_of_tokens(self, request, answer, expected):
        """Checks the tokens of a request that did not end. Which sequences are selected is known only at the end."""
        if request.is_search or request.selects or expected.outputs is None:
            return []
        problems = []
        for want in expected.outputs:
            tokens = answer.token_ids(want["index"])
            if tokens != want["token_ids"][:len(tokens)]:
                problems.append(first_difference(tokens, want["token_ids"][:len(tokens)],
                                                 f"a part of sequence {want['index']}"))
        return problems

    def problems_of_outputs(self, request, answer, expected):
        cut = [output for output in answer.outputs if self.is_cut(request, output, expected)]
        unjustified = [output for output in cut if not self.may_cut(request, output, expected)]
        if unjustified:
            lengths = [len(output["token_ids"]) for output in unjustified]
            return [f"CUT: after {lengths} tokens, though prompt and output fit {self.pool}"]
        if cut:
            self.num_cut += 1
            return self.problems_of_tokens(request, answer, expected)
        difference = first_difference(answer.content(), expected.content())
        if difference and request.selects and self.may_cut_others(request, expected):
            return []
        return [difference] if difference else []

    def is_cut(self, request, output, expected):
        """Returns whether a sequence ends by its length before that of the undisturbed server."""
        if output["finish_reason"] != "length":
            return False
        if request.is_search or request.selects:
            return len(output["token_ids"]) < min(len(other["token_ids"]) for other in expected.outputs
                                                  if other["finish_reason"] == "length") \
                if any(other["finish_reason"] == "length" for other in expected.outputs) else True
        want = expected.output(output["index"])
        return want is not None and len(output["token_ids"]) < len(want["token_ids"])

    def may_cut(self, request, output, expected):
        """Returns whether the pool has no room for the next token of the sequence, even if it is alone there."""
        prompt_len = expected.usage["prompt_tokens"]
        num_tokens = len(output["token_ids"])
        if request.is_search:
            return not self.pool.holds_beams(prompt_len, num_tokens + 1, request.num_sequences)
        return not self.pool.holds(prompt_len + num_tokens)

    def may_cut_others(self, request, expected):
        """Returns whether sequences that were not selected may have been cut."""
        return not self.pool.holds(expected.usage["prompt_tokens"] + request.body["max_tokens"])

    def problems_of_deltas(self, request, answer):
        if request.path or not request.streams or answer.outputs is None:
            return []
        problems = []
        for output in answer.outputs:
            name = f"deltas of sequence {output['index']}"
            delta = answer.deltas.get(output["index"])
            joined = {"token_ids": delta.token_ids if delta else [], "text": delta.text if delta else ""}
            if output.get("logprobs") is not None:
                joined["logprobs"] = delta.logprobs if delta else []
            problems.append(first_difference(joined, {key: output[key] for key in joined}, name))
            problems.append(self.problem_of_sizes(request, delta, name) if delta else None)
            if "message" in output and answer.calls:
                problems.append(first_difference(answer.calls.get(output["index"], []),
                                                 output["message"]["tool_calls"], "tool_call events"))
        return [problem for problem in problems if problem]

    def problem_of_sizes(self, request, delta, name):
        """Checks that all deltas except the first and the last have the requested number of tokens."""
        interval = max(request.body.get("stream_interval", 1), self.stream_interval)
        if any(size < interval for size in delta.sizes[1:-1]):
            return f"{name}: numbers of tokens are {shown(delta.sizes)}, where {interval} are asked for"
        return None
