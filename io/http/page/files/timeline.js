// The last steps on a line of time: planning, moves of blocks, the device, outputs, one below the other.

import { $, fitted, color, duration, showTip, hideTip, make, number, percent } from "./dom.js";

const LANES = [
  { name: "plan", rows: ["scheduler", "block manager"], color: "plan" },
  { name: "copy", rows: ["cache engine"], color: "copy" },
  { name: "compute", rows: ["device"], color: "compute" },
  { name: "output", rows: ["output processor", "router"], color: "output" },
];
const LANE_HEIGHT = 26;
const AXIS_HEIGHT = 20;
const LABEL_WIDTH = 62;
const STEPS_SHOWN = 14;
const MOST_SPANS = 3000;
const LEAST_WINDOW_US = 500;

export class Timeline {
  #canvas = $("steps");
  #spans = [];
  #frozen = null; // the spans that are shown while it is paused
  #view = null; // {from, to, width} of what is drawn
  #hovered = null; // the step under the pointer

  constructor() {
    this.#canvas.addEventListener("mousemove", (event) => this.#point(event));
    this.#canvas.addEventListener("mouseleave", () => this.#hover(null));
  }

  take({ spans }) {
    if (spans.length && this.#spans.length && spans.at(-1).started_us < this.#spans[0].started_us) this.#spans = [];
    this.#spans.push(...spans);
    this.#spans.sort((a, b) => a.started_us - b.started_us);
    if (this.#spans.length > MOST_SPANS) this.#spans.splice(0, this.#spans.length - MOST_SPANS);
  }

  freeze(isFrozen) {
    this.#frozen = isFrozen ? [...this.#spans] : null;
  }

  draw() {
    const { context, width } = fitted(this.#canvas, LANES.length * LANE_HEIGHT + AXIS_HEIGHT);
    const spans = this.#frozen ?? this.#spans;
    const computed = spans.filter(({ row }) => row === "device").slice(-STEPS_SHOWN);
    this.#labels(context, width);
    if (computed.length === 0) {
      this.#view = null;
      $("steps-summary").textContent = "No step yet: nothing has been asked of the engine while this page looked.";
      return;
    }
    const to = Math.max(...computed.map(end));
    const from = Math.min(computed[0].started_us, to - LEAST_WINDOW_US);
    this.#view = { from, to, width, spans: spans.filter((span) => end(span) >= from && span.started_us <= to) };
    this.#axis(context);
    for (const span of this.#view.spans) this.#drawSpan(context, span);
    this.#tell(computed);
  }

  #x(us) {
    const { from, to, width } = this.#view;
    return LABEL_WIDTH + ((us - from) / (to - from)) * (width - LABEL_WIDTH);
  }

  #labels(context, width) {
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    LANES.forEach(({ name }, lane) => {
      context.fillStyle = color("sunk");
      context.fillRect(LABEL_WIDTH, lane * LANE_HEIGHT + 1, width - LABEL_WIDTH, LANE_HEIGHT - 2);
      context.fillStyle = color("soft");
      context.fillText(name, 0, lane * LANE_HEIGHT + LANE_HEIGHT / 2);
    });
  }

  #drawSpan(context, span) {
    const lane = LANES.findIndex(({ rows }) => rows.includes(span.row));
    if (lane < 0) return;
    const x = Math.max(this.#x(span.started_us), LABEL_WIDTH);
    const w = Math.max(this.#x(end(span)) - x, 1.5);
    // Who plans memory plans within the scheduler's planning: a thinner bar.
    const inset = span.row === "block manager" || span.row === "router" ? 8 : 4;
    const isOther = this.#hovered !== null && span.step !== this.#hovered;
    context.globalAlpha = isOther ? 0.25 : span.step % 2 ? 1 : 0.72;
    context.fillStyle = span.failed ? color("bad") : color(LANES[lane].color);
    context.fillRect(x, lane * LANE_HEIGHT + inset, w - (w > 4 ? 1 : 0), LANE_HEIGHT - 2 * inset);
    context.globalAlpha = 1;
    if (span.row === "device" && w > 44) {
      context.fillStyle = color("panel");
      context.fillText(String(span.step), x + 5, lane * LANE_HEIGHT + LANE_HEIGHT / 2 + 0.5);
    }
  }

  #axis(context) {
    const { from, to, width } = this.#view;
    const tick = niceTick((to - from) / Math.max(2, Math.floor((width - LABEL_WIDTH) / 90)));
    const y = LANES.length * LANE_HEIGHT;
    for (let us = 0; us <= to - from; us += tick) {
      const x = this.#x(from + us);
      context.fillStyle = color("line");
      context.fillRect(x, 0, 1, y + 4);
      context.fillStyle = color("soft");
      if (x < width - 44) context.fillText(us === 0 ? "0" : duration(us / 1000), x + 3, y + AXIS_HEIGHT / 2 + 2);
    }
  }

  #tell(computed) {
    const busy = union(computed) / (this.#view.to - this.#view.from);
    const plans = this.#view.spans.filter(({ row }) => row === "scheduler" || row === "block manager");
    const hidden = plans.length ? overlap(plans, computed) / Math.max(1, union(plans)) : null;
    const words = [`steps ${number(computed[0].step)} to ${number(computed.at(-1).step)}`, `device busy ${percent(busy)}`];
    if (hidden !== null) words.push(`planning behind computing ${percent(hidden)}`);
    const copies = this.#view.spans.filter(({ row }) => row === "cache engine");
    if (copies.length) words.push(`${number(copies.length)} plans of moves`);
    $("steps-summary").textContent = words.join(" · ");
  }

  #point({ offsetX, offsetY, clientX, clientY }) {
    if (!this.#view) return;
    const lane = LANES[Math.floor(offsetY / LANE_HEIGHT)];
    const hits = this.#view.spans.filter(
      (span) => lane?.rows.includes(span.row) && this.#x(span.started_us) - 2 <= offsetX && offsetX <= this.#x(end(span)) + 2,
    );
    const span = hits.reduce((best, each) => (!best || each.duration_us < best.duration_us ? each : best), null);
    if (!span) return this.#hover(null);
    this.#hover(span.step ?? null);
    const { row, name, started_us: _, duration_us: took, ...facts } = span;
    showTip(
      clientX,
      clientY,
      make("strong", {}, `${row}: ${name}`),
      make("div", {}, duration(took / 1000)),
      ...Object.entries(facts).map(([what, count]) => make("div", {}, `${what.replaceAll("_", " ")} ${number(count)}`)),
    );
  }

  #hover(step) {
    if (step === null) hideTip();
    if (step === this.#hovered) return;
    this.#hovered = step;
    this.draw();
  }
}

const end = (span) => span.started_us + span.duration_us;

/** The time that spans cover together. */
function union(spans) {
  return merged(spans).reduce((sum, [from, to]) => sum + to - from, 0);
}

function merged(spans) {
  const all = [];
  for (const span of [...spans].sort((a, b) => a.started_us - b.started_us)) {
    const last = all.at(-1);
    if (last && span.started_us <= last[1]) last[1] = Math.max(last[1], end(span));
    else all.push([span.started_us, end(span)]);
  }
  return all;
}

/** The time of `spans` in which one of `others` is too. */
function overlap(spans, others) {
  const beside = merged(others);
  return merged(spans).reduce(
    (sum, [from, to]) => sum + beside.reduce((part, [a, b]) => part + Math.max(0, Math.min(b, to) - Math.max(a, from)), 0),
    0,
  );
}

/** 1, 2 or 5 times a power of ten, at least `us`. */
function niceTick(us) {
  const power = 10 ** Math.floor(Math.log10(Math.max(us, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((tick) => tick >= us);
}
