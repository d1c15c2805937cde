// The device's last steps, and what they say about the time that a stream's tokens took.

import { duration, number, percent } from "./dom.js";

const MOST_STEPS = 4000;
const LEAST_STEPS = 6; // that something is said of
const NOTABLE_RATIO = 2; // of a step to one that computes a single token
const NOTABLE_ROWS = 8; // where no such step was seen
const NOTABLE_PAUSE_US = 250_000;
const PAUSE_RATIO = 5; // of a pause to what there is between steps as a rule
const PROMPT_TOKENS = 16; // a step with so many more tokens than rows computes prompts
const NOTABLE_SHARE = 0.3; // of the time, in steps with prompts

export class StepLog {
  #steps = []; // by their ends: {step, us, end, rows, tokens}
  #aloneUs = null; // what a step of a single token takes

  take({ spans }) {
    const steps = spans.filter(({ row, name }) => row === "device" && name === "step");
    if (steps.length && steps.at(-1).started_us < (this.#steps[0]?.end ?? 0)) this.#begin(); // another engine
    for (const { step, started_us: start, duration_us: us, rows, tokens, failed } of steps) {
      if (failed) continue;
      this.#steps.push({ step, us, end: start + us, rows, tokens });
      if (tokens === 1) this.#aloneUs = this.#aloneUs === null ? us : this.#aloneUs + (us - this.#aloneUs) / 8;
    }
    if (this.#steps.length > MOST_STEPS) this.#steps.splice(0, this.#steps.length - MOST_STEPS);
  }

  #begin() {
    this.#steps = [];
    this.#aloneUs = null;
  }

  /** Why tokens were slow between two times of the engine's clock, the worst first; empty when nothing made them so. */
  reasons(from, to) {
    const steps = this.#steps.filter(({ end }) => from < end && end <= to);
    if (steps.length < LEAST_STEPS) return [];
    return [pause(steps), this.#largeSteps(steps)].filter((words) => words !== null);
  }

  #largeSteps(steps) {
    const each = total(steps, ({ us }) => us) / steps.length;
    const alone = this.#aloneUs;
    if (alone !== null && each < NOTABLE_RATIO * alone) return null;
    const than = alone === null ? "" : `, one of a single token ${duration(alone / 1000)}`;
    const prompts = steps.filter(hasPrompts);
    const share = total(prompts, ({ us }) => us) / total(steps, ({ us }) => us);
    if (share >= NOTABLE_SHARE) return `${percent(share)} of the time went to steps with prompts of others: a step takes ${duration(each / 1000)}${than}`;
    const rows = total(steps, ({ rows: count }) => count) / steps.length;
    if (rows < (alone === null ? NOTABLE_ROWS : 1.5)) return null;
    return `steps of ${number(rows, 0)} rows take ${duration(each / 1000)}${than}`;
  }
}

/** The longest time between two steps that follow each other. */
function pause(steps) {
  const gaps = [];
  for (let i = 1; i < steps.length; ++i) {
    // Steps between them may not have been told, or were lost with a worker.
    if (steps[i].step - steps[i - 1].step <= 3) gaps.push({ us: steps[i].end - steps[i - 1].end, by: steps[i] });
  }
  if (gaps.length === 0) return null;
  gaps.sort((a, b) => a.us - b.us);
  const { us, by } = gaps.at(-1);
  if (us < Math.max(NOTABLE_PAUSE_US, PAUSE_RATIO * gaps[gaps.length >> 1].us)) return null;
  if (hasPrompts(by) && by.us > us / 2) return `a step with ${number(by.tokens - by.rows)} prompt tokens of others took ${duration(by.us / 1000)}`;
  return `the device gave nothing for ${duration(us / 1000)}`;
}

const hasPrompts = ({ rows, tokens }) => tokens - rows >= PROMPT_TOKENS;
const total = (steps, value) => steps.reduce((sum, step) => sum + value(step), 0);
