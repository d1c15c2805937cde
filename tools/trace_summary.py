#!/usr/bin/env python3
"""Summarises the times between steps in a step trace (pagoda ... --trace FILE). Prints one JSON object. Times are means
in microseconds.

  steps               steps that ran on the device
  step_us             device time of a step
  plan_us             work of scheduler and block manager for a step: planning, applying the grant, taking the result
  plan_latency_us     from the start of planning until the step's ExecuteStep is sent
  message_us          part of it in which no actor worked: messages are under way, actors wake up
  device_idle_us      between the end of a step and the start of the next, while requests were ready to run
  device_idle_percent share of device_idle_us in the time from the start of a step to the start of the next
  cache_plans, swap_bytes, swap_bytes_per_s   work of the copy stream

usage: trace_summary.py FILE
"""
import json
import sys
from collections import defaultdict


def mean(values):
    return round(sum(values) / len(values), 2) if values else None


def summary(trace):
    rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    spans = defaultdict(dict)  # (row, name) -> step -> span
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and "step" in event["args"]:
            spans[rows[event["tid"]], event["name"]][event["args"]["step"]] = event
    end = lambda span: span["ts"] + span["dur"]
    planned = spans["scheduler", "plan step"]
    memory = spans["block manager", "plan memory"]
    applied = spans["scheduler", "apply plan"]
    results = spans["scheduler", "step result"]
    device = spans["device", "step"]

    plan_us, latency_us, message_us = [], [], []
    for step in device:
        if not all(step in part for part in (planned, memory, applied)):
            continue
        planning = sum(part[step]["dur"] for part in (planned, memory, applied))
        latency = end(applied[step]) - planned[step]["ts"]
        plan_us.append(planning + (results[step]["dur"] if step in results else 0))
        latency_us.append(latency)
        message_us.append(max(latency - planning, 0))

    idle_us, period_us = [], []
    order = sorted(device)
    for before, after in zip(order, order[1:]):
        if before not in results or results[before]["args"]["requests_left"] == 0:
            continue  # nothing was ready to run: the engine was idle, not late
        idle_us.append(max(device[after]["ts"] - end(device[before]), 0))
        period_us.append(device[after]["ts"] - device[before]["ts"])

    swaps = [s for s in spans["cache engine", "cache plan"].values() if s["args"]["swap_bytes"] > 0]
    swap_bytes = sum(s["args"]["swap_bytes"] for s in swaps)
    swap_us = sum(s["dur"] for s in swaps)
    return {
        "steps": len(device),
        "step_us": mean([s["dur"] for s in device.values()]),
        "plan_us": mean(plan_us),
        "plan_latency_us": mean(latency_us),
        "message_us": mean(message_us),
        "device_idle_us": mean(idle_us),
        "device_idle_percent": round(100 * sum(idle_us) / sum(period_us), 2) if sum(period_us) else None,
        "cache_plans": len(spans["cache engine", "cache plan"]),
        "swap_bytes": swap_bytes,
        "swap_bytes_per_s": round(swap_bytes / swap_us * 1e6) if swap_us else None,
        "dropped_events": trace["otherData"]["dropped_events"],
    }


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        print(json.dumps(summary(json.load(file))))


if __name__ == "__main__":
    main()
