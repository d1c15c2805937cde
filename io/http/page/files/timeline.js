// The last steps on a line of time: planning, moves of blocks, the device, outputs, one below the other.

import { $, fitted, color, duration, showTip, sayTip, hideTip, make, number, percent } from "./dom.js";

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
  #held = null; // likewise, while the keyboard is at one of them
  #view = null; // {from, to, width} of what is drawn
  #hovered = null; // the step under the pointer or the keyboard
  #at = null; // the span that the keyboard is at

  constructor() {
    this.#canvas.addEventListener("mousemove", (event) => this.#point(event));
    this.#canvas.addEventListener("mouseleave", () => this.#hover(null));
    this.#canvas.addEventListener("blur", () => this.#go(null));
    this.#canvas.addEventListener("keydown", (event) => this.#press(event));
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
    const spans = this.#held ?? this.#frozen ?? this.#spans;
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
    if (this.#at) this.#outline(context, this.#at);
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
    const lane = laneOf(span);
    if (lane < 0) return;
    const { x, w, inset } = this.#place(span);
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

  #place(span) {
    const x = Math.max(this.#x(span.started_us), LABEL_WIDTH);
    // Who plans memory plans within the scheduler's planning: a thinner bar.
    return { x, w: Math.max(this.#x(end(span)) - x, 1.5), inset: span.row === "block manager" || span.row === "router" ? 8 : 4 };
  }

  #outline(context, span) {
    const { x, w, inset } = this.#place(span);
    context.strokeStyle = color("focus");
    context.lineWidth = 2;
    context.strokeRect(x - 1, laneOf(span) * LANE_HEIGHT + inset - 1, w + 2, LANE_HEIGHT - 2 * inset + 2);
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
    if (copies.length) words.push(`${number(copies.length)} plan${copies.length === 1 ? "" : "s"} of moves`);
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
    showTip(clientX, clientY, ...words(span));
  }

  /** Left and right go through the spans of a lane in the order in which they began, up and down to the other lanes. */
  #press(event) {
    if (event.key === "Escape" && this.#at) return this.#go(null);
    const [along, across] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0] }[event.key] ?? [0, 0];
    if ((!along && !across) || !this.#view) return;
    event.preventDefault();
    this.#held ??= this.#frozen ?? [...this.#spans];
    const lanes = LANES.map((_, lane) => this.#view.spans.filter((span) => laneOf(span) === lane));
    if (!this.#at) return this.#go(lanes.flat().filter(({ row }) => row === "device").at(-1));
    let lane = laneOf(this.#at);
    if (along) {
      const spans = lanes[lane];
      const next = spans.indexOf(this.#at) + along;
      return this.#go(spans[Math.min(Math.max(next, 0), spans.length - 1)]);
    }
    do lane += across;
    while (lanes[lane]?.length === 0);
    const away = (span) => Math.abs(span.started_us - this.#at.started_us);
    this.#go(lanes[lane]?.reduce((best, span) => (away(span) < away(best) ? span : best)) ?? this.#at);
  }

  /** The keyboard is at `span`, or at none any more. */
  #go(span) {
    if (!span && !this.#at) return;
    this.#at = span ?? null;
    if (!span) this.#held = null;
    this.#hovered = span?.step ?? null;
    hideTip();
    this.draw();
    if (!span) return;
    const { left, top } = this.#canvas.getBoundingClientRect();
    sayTip(left + this.#place(span).x, top + LANES.length * LANE_HEIGHT, ...words(span));
  }

  #hover(step) {
    if (step === null) hideTip();
    if (this.#at || step === this.#hovered) return;
    this.#hovered = step;
    this.draw();
  }
}

const end = (span) => span.started_us + span.duration_us;
const laneOf = (span) => LANES.findIndex(({ rows }) => rows.includes(span.row));

function words({ row, name, started_us: _, duration_us: took, ...facts }) {
  return [
    make("strong", {}, `${row}: ${name}`),
    make("div", {}, duration(took / 1000)),
    ...Object.entries(facts).map(([what, count]) => make("div", {}, `${what.replaceAll("_", " ")} ${number(count)}`)),
  ];
}

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
