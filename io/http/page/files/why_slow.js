// What a request's times say about why it took as long as it did.

import { duration, number } from "./dom.js";

const NOTABLE_MS = 50;
const NOTABLE_TOKENS = 256;

/**
 * Words for what cost a request time, the worst first; empty when nothing did. Of a request: prompt_tokens,
 * cached_tokens, queue_ms, ttft_ms (null: not yet), preemptions, restarts; age_ms and state of a live one; grammar_ms,
 * where it waited for one. `decoding`: what made its tokens slow.
 */
export function whySlow(request, decoding = []) {
  const reasons = [];
  const { queue_ms: queue, ttft_ms: ttft, age_ms: age, prompt_tokens: prompt = 0, cached_tokens: cached = 0 } = request;
  const computed = Math.max(0, prompt - cached);
  if (request.restarts > 0) reasons.push(`computed again ${times(request.restarts)} (a device or a step failed)`);
  if (request.preemptions > 0) reasons.push(`gave its memory to others ${times(request.preemptions)}`);
  if (request.state === "swapped") reasons.push("waits in host memory for blocks");
  const grammar = request.grammar_ms ?? 0;
  if (request.state === "waiting_for_grammar") reasons.push(`waits for its grammar since ${duration(age)}`);
  else if (queue == null && age > NOTABLE_MS) reasons.push(`waits for its turn since ${duration(age)}`);
  if (grammar > NOTABLE_MS && queue != null) reasons.push(`waited at least ${duration(grammar)} for its grammar`);
  if (queue - grammar > NOTABLE_MS) reasons.push(`waited ${duration(queue - grammar)} for its turn`);
  const prefill = ttft == null ? null : ttft - queue;
  if (prefill > NOTABLE_MS && computed >= NOTABLE_TOKENS) {
    reasons.push(`${number(computed)} prompt tokens not cached: ${duration(prefill)} to compute`);
  } else if (prefill > 4 * NOTABLE_MS) {
    reasons.push(`${duration(prefill)} to compute ${number(computed)} prompt tokens`);
  }
  return [...reasons, ...decoding].join("; ");
}

const times = (count) => (count === 1 ? "once" : `${number(count)} times`);
