// The numbers at the top of the live view.

import { $, make, number, percent, duration, fitted, color } from "./dom.js";

const NUM_SAMPLES = 150;
const WINDOW = 4; // snapshots that a rate is measured over

const TILES = {
  rate: "Tokens generated per second",
  requests: "Requests running",
  memory: "KV blocks used",
  cache: "Prompts cached",
  steps: "Steps per second",
  step: "A step takes",
  preemptions: "Preemptions",
};

export class Tiles {
  #values = {};
  #chart = make("canvas", { "aria-hidden": "true" });
  #snapshots = [];
  #rates = [];

  constructor() {
    for (const [name, title] of Object.entries(TILES)) {
      this.#values[name] = make("dd", {}, "–");
      const tile = make("div", { class: "tile" }, make("dt", {}, title), this.#values[name]);
      if (name === "rate") tile.append(this.#chart);
      $("tiles").append(tile);
    }
  }

  take({ now_us, stats, spans }) {
    if (this.#snapshots.at(-1)?.now_us >= now_us) this.#snapshots = []; // another engine
    this.#snapshots.push({ now_us, stats, busy: busyTime(spans) });
    if (this.#snapshots.length > WINDOW + 1) this.#snapshots.shift();
    const seconds = (now_us - this.#snapshots[0].now_us) / 1e6;
    if (seconds > 0) this.#rates.push(this.#change("generation_tokens_total") / seconds);
    if (this.#rates.length > NUM_SAMPLES) this.#rates.shift();
  }

  #change(name) {
    return this.#snapshots.at(-1).stats[name] - this.#snapshots[0].stats[name];
  }

  draw() {
    const { now_us, stats } = this.#snapshots.at(-1);
    const seconds = (now_us - this.#snapshots[0].now_us) / 1e6;
    const rate = this.#rates.at(-1);
    this.#say("rate", number(rate, rate < 100 ? 1 : 0));
    const others = [stats.requests_waiting && `${number(stats.requests_waiting)} wait`, stats.requests_swapped && `${number(stats.requests_swapped)} swapped`];
    this.#say("requests", number(stats.requests_running), others.filter(Boolean).map((words) => ` · ${words}`).join(""));
    const used = stats.device_blocks_total - stats.device_blocks_free - stats.device_blocks_cached;
    this.#say("memory", percent(stats.device_blocks_total ? used / stats.device_blocks_total : 0));
    this.#say("cache", percent(stats.prefix_cache_queries_total ? stats.prefix_cache_hits_total / stats.prefix_cache_queries_total : null));
    this.#say("steps", seconds > 0 ? number(this.#change("steps_total") / seconds) : "–");
    const steps = this.#snapshots.reduce((sum, { busy }) => ({ us: sum.us + busy.us, count: sum.count + busy.count }), { us: 0, count: 0 });
    this.#say("step", steps.count ? duration(steps.us / steps.count / 1000) : "–");
    this.#say("preemptions", number(stats.preemptions_recompute_total + stats.preemptions_swap_total));
    this.#drawChart();
  }

  #say(name, text, unit = "") {
    const key = text + unit;
    const element = this.#values[name];
    if (element.dataset.said === key) return;
    element.dataset.said = key;
    element.replaceChildren(text, make("small", {}, unit));
  }

  #drawChart() {
    const { context, width, height } = fitted(this.#chart);
    const most = Math.max(...this.#rates, 1);
    const x = (i) => width - ((this.#rates.length - 1 - i) * width) / (NUM_SAMPLES - 1);
    const y = (rate) => height - 3 - (rate / most) * (height * 0.62);
    if (this.#rates.length < 2) return;
    context.beginPath();
    this.#rates.forEach((rate, i) => context.lineTo(x(i), y(rate)));
    context.strokeStyle = color("compute");
    context.lineWidth = 1.5;
    context.stroke();
    context.lineTo(width, height);
    context.lineTo(x(0), height);
    context.globalAlpha = 0.14;
    context.fillStyle = color("compute");
    context.fill();
    context.globalAlpha = 1;
  }
}

/** Of the steps among spans: how many there are, and what they took. */
function busyTime(spans) {
  const steps = spans.filter(({ row, name }) => row === "device" && name === "step");
  return { count: steps.length, us: steps.reduce((sum, step) => sum + step.duration_us, 0) };
}
