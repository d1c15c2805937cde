#!/usr/bin/env python3
"""Measures what speculation gains and costs a server: the same greedy requests with and without it, in turns.

    python3 tools/bench_speculation.py --model build/models/smollm2.gguf --model "$(scripts/fetch-model qwen2.5-coder)"

For each model the tool starts two servers, of which only one is under load at a time, and runs these cases in turn, in
each round in the opposite order:

    plain   a server without --speculative-config
    off     a server with it, and requests with "speculation": false
    on      the same server and requests, with speculation

The workloads, with one stream: `code` (return a file with a function renamed), `json` (repeat records, or rename a
field), `quote` (sum up a text by quotations) and `free` (stories and explanations). With --streams at a time: `mixed`
(code and free by turns) and `free`. Prompts are in the prefix cache before anything is measured, so tokens/s are those
of decoding (`cache_miss` in --json: prompt tokens that were not). The tool exits with 1 if a text differs from that of
another case or round.

With --llama-server a server of llama.cpp with the same model file runs the same requests without speculation (`llama`)
and with each --llama-spec, in the same turns. With one stream its tokens/s are those that it measures of decoding; those
of Pagoda are always measured by the client, with the time of requests and answers. Its texts are not compared: its
arithmetic is another one.

Prints a table: tokens/s as medians over the rounds, ratios as medians of the ratios in each round, draft tokens, the
share of them that was right, and the tokens of a stream for each step that computed it. --json prints all numbers.

Needs only the standard library. Run it on a quiet machine.
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time

from bench_lora import Target
from compare_llama_server import LlamaServer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))
from server import Server  # noqa: E402

CASES = ["plain", "off", "on"]
RATIOS = [("on", "off"), ("on", "plain"), ("off", "plain")]
CONFIG = {"method": "ngram", "num_speculative_tokens": 16, "prompt_lookup_min": 3}

# ---- workloads ----

CODE = '''\
"""Reads the log of a weather station and sums it up by day."""
import csv
import datetime
import pathlib


class Reading:
    """One line of the log."""

    def __init__(self, time, temperature, humidity):
        self.time = time
        self.temperature = temperature
        self.humidity = humidity

    def is_valid(self):
        return -60 <= self.temperature <= 60 and 0 <= self.humidity <= 100


def parse_line(fields):
    time = datetime.datetime.fromisoformat(fields[0])
    return Reading(time, float(fields[1]), float(fields[2]))


def read_log(path):
    readings = []
    with open(path, newline="") as file:
        for fields in csv.reader(file):
            if not fields or fields[0].startswith("#"):
                continue
            reading = parse_line(fields)
            if reading.is_valid():
                readings.append(reading)
    return readings


def group_by_day(readings):
    days = {}
    for reading in readings:
        days.setdefault(reading.time.date(), []).append(reading)
    return days


def mean(values):
    return sum(values) / len(values)


def print_report(days):
    for day, readings in sorted(days.items()):
        temperature = mean([reading.temperature for reading in readings])
        humidity = mean([reading.humidity for reading in readings])
        print(f"{day}: {temperature:.1f} degrees, {humidity:.0f} % humidity, {len(readings)} readings")


def main():
    for path in sorted(pathlib.Path("logs").glob("*.csv")):
        print(path.name)
        print_report(group_by_day(read_log(path)))


if __name__ == "__main__":
    main()
'''
RENAMED = {"parse_line": ("reading_of", "to_reading"), "group_by_day": ("split_into_days", "by_date"),
           "mean": ("average", "arithmetic_mean"), "read_log": ("load_readings", "readings_in"),
           "print_report": ("show_summary", "write_table"), "is_valid": ("is_plausible", "can_be_true"),
           "Reading": ("Measurement", "Observation"), "main": ("run", "report_all")}
RECORDS = [{"id": 4100 + 7 * i, "name": name, "qty": 3 * i + 2, "price": price, "tags": tags, "in_stock": i % 3 != 1}
           for i, (name, price, tags) in enumerate([
               ("garden hose", 24.9, ["garden", "water"]), ("claw hammer", 17.5, ["tools", "steel"]),
               ("paint brush", 4.25, ["paint"]), ("step ladder", 89.0, ["tools", "aluminium"]),
               ("work gloves", 7.8, ["clothes", "garden"]), ("extension cord", 14.4, ["electric"]),
               ("wood screws", 6.1, ["steel", "small parts"]), ("tape measure", 9.95, ["tools"])])]
ARTICLE = """\
The harbour of Lindsund froze over on the second of January, three weeks earlier than in any year since records \
began. Two ferries, the Astrid and the Sigrun, were caught at their berths and could not leave until an icebreaker \
arrived from the mainland five days later. The fish market stayed closed for the whole time, and its traders put \
their losses at four million crowns. The town council met on the fourth of January and decided to buy a small \
icebreaker of its own. Critics of the plan said that such a ship would lie idle in nine winters out of ten. The \
mayor, Karin Holm, answered that one closed week costs more than the ship does in five years. A survey by the \
university found that the bay has lost a third of its salt since a dam was built across the northern strait, and \
that less salty water freezes sooner. The operator of the dam denied that there is a connection. Fishermen had asked \
for an opening in the dam as early as 1998, without success. In spring the council will hear experts on both \
questions, the ship and the dam, and will vote in June."""
FREE = [form.format(topic) for topic in (
            "a lighthouse keeper", "a used bicycle", "the first day at a new school", "thunderstorms", "an old bakery",
            "moving to another country", "bees", "a night train") for form in (
            "Write a short story about {}.", "Explain to a twelve-year-old what is interesting about {}.",
            "Write a letter to a friend about {}.", "Write a dialogue between a cat and a dog about {}.")]


def user(text):
    return [{"role": "user", "content": text}]


def rename(old, new):
    return user(f"Here is a file:\n\n```python\n{CODE}```\n\nRename `{old}` to `{new}` everywhere in it. Answer with "
                f"the whole file, and change nothing else.")


def workloads(args):
    """{(name, streams): conversations}"""
    records = json.dumps(RECORDS)
    code = [rename(old, RENAMED[old][i]) for i in (0, 1) for old in RENAMED]
    echo = [user(f"Repeat this text:\n\n{records}"),
            user(f"Repeat this text, but with quantity instead of qty:\n\n{records}"),
            user(f"Repeat this JSON, with each record on several lines:\n\n{records}")]
    quote = [user(f"{asked}\n\n{ARTICLE}") for asked in (
        "Quote the most important sentences of this article, word for word.",
        "Sum up this article with four sentences that you quote from it word for word.",
        "Which sentences of this article are about the ships? Quote them word for word.")]
    free = [user(text) for text in FREE]
    single = {"code": code, "json": echo, "quote": quote, "free": free}
    found = {(name, 1): conversations[:args.requests] for name, conversations in single.items()}
    if args.streams > 1:
        both = [one for pair in zip(code, free) for one in pair]
        for name, conversations in (("mixed", both), ("free", free)):
            count = args.streams * args.waves
            found[name, args.streams] = (conversations * (count // len(conversations) + 1))[:count]
    return {workload: conversations for workload, conversations in found.items() if workload[0] in args.workloads}


# ---- servers ----


def flags_of(args, speculation):
    flags = ["--threads", str(args.threads), "--kv-cache-memory", str(args.kv_gib), *args.pagoda_args.split()]
    return flags + (["--speculative-config", args.config] if speculation else [])


def start(args, model, stack):
    """{case: (target, fields of its requests)}"""
    targets = {}
    if "plain" in args.cases:
        server = stack.enter_context(Server(args.pagoda, model, *flags_of(args, False)))
        targets["plain"] = (Target(server.url, ""), {})
    if {"off", "on"} & set(args.cases):
        server = stack.enter_context(Server(args.pagoda, model, *flags_of(args, True)))
        target = Target(server.url, "")
        targets |= {case: (target, {"speculation": case == "on"}) for case in ("off", "on") if case in args.cases}
    for name, flags in llama_cases(args).items():
        server = LlamaServer(argparse.Namespace(
            llama_server=args.llama_server, gguf=model, threads=args.threads, clients=args.streams, input_len=1024,
            output_len=max(args.max_tokens, args.stream_tokens), llama_args=flags))
        stack.callback(server.process.wait)
        stack.callback(server.process.kill)
        targets[name] = (Target(f"http://127.0.0.1:{server.port}", ""), {})
    return targets


def llama_cases(args):
    """{case: flags of llama-server}"""
    if not args.llama_server:
        return {}
    named = dict(spec.split("=", 1) for spec in args.llama_spec)
    return {"llama": args.llama_args} | {f"llama {name}": f"{args.llama_args} {flags}" for name, flags in named.items()}


# ---- clients ----


def body_of(answer):
    """The JSON of an answer, which may come in chunks."""
    return json.loads(answer[answer.index(b"{"):answer.rindex(b"}") + 1])


async def ask(target, messages, max_tokens, fields):
    body = {"model": target.model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "timing": True}
    answer = body_of(await target.call("POST", "/v1/chat/completions", {**body, **fields}))
    choice = answer["choices"][0]
    outcome = {"text": choice["message"]["content"], "finish_reason": choice["finish_reason"],
               "tokens": answer["usage"]["completion_tokens"]}
    if "timings" in answer:  # of llama-server
        timing = answer["timings"]
        return {**outcome, "cache_miss": timing["prompt_n"], "draft_tokens": timing.get("draft_n", 0),
                "drafts_accepted": timing.get("draft_n_accepted", 0), "decode_s": timing["predicted_ms"] / 1000}
    timing = answer["timing"]
    return {**outcome, "cache_miss": timing["cache_miss"], "draft_tokens": timing.get("draft_tokens", 0),
            "drafts_accepted": timing["drafts_accepted"]}


async def load(target, conversations, streams, max_tokens, fields):
    """The answers, of which so many are under way at a time, and the seconds that they took together."""
    answers, waiting = [None] * len(conversations), iter(enumerate(conversations))

    async def stream():
        for number, messages in waiting:
            answers[number] = await ask(target, messages, max_tokens, fields)

    began = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(streams)))
    return answers, time.perf_counter() - began


def facts(answers, seconds):
    sums = {name: sum(answer[name] for answer in answers)
            for name in ("tokens", "draft_tokens", "drafts_accepted", "cache_miss")}
    return {"tokens_per_s": sums["tokens"] / seconds, **sums,
            "tokens_per_step": sums["tokens"] / max(1, sums["tokens"] - sums["drafts_accepted"])}


class Texts:
    """The text of each request in the first case that ran it; others must have the same."""

    def __init__(self):
        self.known, self.different = {}, []

    def compare(self, workload, case, answers):
        for number, answer in enumerate(answers):
            text = (answer["text"], answer["finish_reason"], answer["tokens"])
            first_case, known = self.known.setdefault((*workload, number), (case, text))
            if text != known:
                at = len(os.path.commonprefix([text[0], known[0]]))
                self.different.append(
                    f"{workload[0]}, {workload[1]} streams, request {number}: the text of {case} differs from that of "
                    f"{first_case} at character {at}: {text[0][at:at + 40]!r} instead of {known[0][at:at + 40]!r}; "
                    f"{text[2]} and {known[2]} tokens")


# ---- rounds ----


async def measure(args, targets, loads, texts):
    """{workload: [{case: facts} of each round]}"""
    for target in {id(target): target for target, _ in targets.values()}.values():
        await target.find_model()
        for (_, streams), conversations in loads.items():  # caches prompts, and each server runs steps of that size
            await load(target, conversations, streams, 16, {})
    rounds = {workload: [] for workload in loads}
    for number in range(-1 if args.asked_again else 0, args.rounds):
        for workload, conversations in loads.items():
            results = {}
            for case in targets if number % 2 == 0 else reversed(targets):
                target, fields = targets[case]
                max_tokens = args.max_tokens if workload[1] == 1 else args.stream_tokens
                # Drafts of the method suffix come from the answers of earlier rounds if these had the same user.
                user = case if args.asked_again else f"{case} {number}"
                answers, seconds = await load(target, conversations, workload[1], max_tokens, {**fields, "user": user})
                if not case.startswith("llama"):
                    texts.compare(workload, case, answers)
                elif workload[1] == 1:
                    seconds = sum(answer["decode_s"] for answer in answers)
                results[case] = facts(answers, seconds)
                if sys.stderr.isatty():
                    print(f"round {number + 1} of {args.rounds}, {workload[0]}, {workload[1]} streams, {case}: "
                          f"{results[case]['tokens_per_s']:.1f} tokens/s", file=sys.stderr)
            if number >= 0:
                rounds[workload].append(results)
    return rounds


def row_of(workload, results):
    """Medians over the rounds of a workload."""
    names = {"tokens_per_s": 2, "tokens": 0, "draft_tokens": 1, "drafts_accepted": 1, "cache_miss": 1,
             "tokens_per_step": 3}
    cases = {case: {name: round(statistics.median(one[case][name] for one in results), digits or None)
                    for name, digits in names.items()} for case in results[0]}
    ratio = lambda a, b: statistics.median(one[a]["tokens_per_s"] / one[b]["tokens_per_s"] for one in results)
    pairs = RATIOS + [(case, "llama") for case in cases if case.startswith("llama ")] + [("on", "llama")]
    ratios = {f"{a} / {b}": round(ratio(a, b), 3) for a, b in pairs if a in cases and b in cases}
    return {"workload": workload[0], "streams": workload[1], "cases": cases, "ratios": ratios,
            "rounds": [{case: round(one[case]["tokens_per_s"], 2) for case in one} for one in results]}


def print_table(model, rows):
    cases, ratios = list(rows[0]["cases"]), list(rows[0]["ratios"])
    columns = ["workload", "streams", *cases, *ratios]
    columns += ["draft tokens", "right %", "tokens a step"] if "on" in cases else []
    print(f"\n{pathlib.Path(model).name}\n\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = [row["workload"], row["streams"], *(f"{row['cases'][case]['tokens_per_s']:.1f}" for case in cases),
                 *(f"{row['ratios'][ratio]:.2f}" for ratio in ratios)]
        if on := row["cases"].get("on"):
            share = f"{100 * on['drafts_accepted'] / on['draft_tokens']:.0f}" if on["draft_tokens"] else ""
            cells += [f"{on['draft_tokens']:.0f}", share, f"{on['tokens_per_step']:.2f}"]
        print("| " + " | ".join(map(str, cells)) + " |")


def main():
    names = lambda allowed: lambda text: [n for n in text.split(",") if n in allowed or sys.exit(f"there is no {n!r}")]
    every = ["code", "json", "quote", "free", "mixed"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pagoda", default=str(ROOT / "build" / "release" / "bin" / "pagoda"))
    parser.add_argument("--model", action="append", required=True, help="GGUF file or folder; may be repeated")
    parser.add_argument("--config", default=json.dumps(CONFIG), help="of --speculative-config (default %(default)s)")
    parser.add_argument("--cases", type=names(CASES), default=CASES, help="(default plain,off,on)")
    parser.add_argument("--workloads", type=names(every), default=every, help="(default " + ",".join(every) + ")")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=3, help="of each workload with one stream, one after the other")
    parser.add_argument("--streams", type=int, default=16, help="of mixed and free at a time; 1: leave them out")
    parser.add_argument("--waves", type=int, default=2, help="requests of each of these streams")
    parser.add_argument("--max-tokens", type=int, default=512, help="of a request with one stream")
    parser.add_argument("--stream-tokens", type=int, default=128, help="maximum tokens of a request with --streams")
    parser.add_argument("--kv-gib", type=float, default=1, help="KV cache of each server")
    parser.add_argument("--pagoda-args", default="", help="more flags of both servers")
    parser.add_argument("--llama-server", metavar="FILE", help="the program of llama.cpp, to be measured as well")
    parser.add_argument("--llama-args", default="", help="more flags of all its servers")
    parser.add_argument("--llama-spec", action="append", default=[], metavar="NAME=FLAGS",
                        help="flags of a way to speculate, such as 'simple=--spec-type ngram-simple'; may be repeated")
    parser.add_argument("--asked-again", action="store_true",
                        help="the user has asked for the same answers before, so the method suffix finds them")
    parser.add_argument("--quick", action="store_true", help="a round of a request of 64 tokens, and of a wave of 32")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.requests, args.waves, args.max_tokens, args.stream_tokens = 1, 1, 1, 64, 32
    if min(args.rounds, args.requests, args.streams, args.waves, args.max_tokens, args.stream_tokens) < 1:
        parser.error("--rounds, --requests, --streams, --waves, --max-tokens and --stream-tokens must be at least 1")
    loads = workloads(args)
    if not loads:
        parser.error("--workloads mixed needs --streams above 1")
    results, different = [], []
    for model in args.model:
        texts = Texts()
        with contextlib.ExitStack() as stack:
            rounds = asyncio.run(measure(args, start(args, model, stack), loads, texts))
        rows = [row_of(workload, of) for workload, of in rounds.items()]
        results.append({"model": pathlib.Path(model).name, "rows": rows, "different_texts": texts.different})
        different += texts.different
        if not args.json:
            print_table(model, rows)
    if args.json:
        print(json.dumps({"config": json.loads(args.config), "threads": args.threads, "rounds": args.rounds,
                          "models": results}))
    for one in different:
        print(one, file=sys.stderr)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
