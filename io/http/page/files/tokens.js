// A text as its tokens: each shaded by its probability, with the alternatives on a tooltip.

import { make, showTip, hideTip } from "./dom.js";

const SHADES = [0.9, 0.6, 0.3, 0.1, 0.01];

/** 0 for a likely token to 5 for an unlikely one. */
const shade = (probability) => SHADES.filter((limit) => probability <= limit).length;

/** The list that either API gives: [{token, logprob, top: [{token, logprob}]}]. */
function listed(logprobs) {
  if (logprobs.content) {
    return logprobs.content.map(({ token, logprob, top_logprobs: top }) => ({ token, logprob, top: top ?? [] }));
  }
  return (logprobs.tokens ?? []).map((token, i) => ({
    token,
    logprob: logprobs.token_logprobs[i],
    top: Object.entries(logprobs.top_logprobs?.[i] ?? {}).map(([other, logprob]) => ({ token: other, logprob })),
  }));
}

/** What cannot be seen gets a sign, beside which line ends still end lines. */
function visible(token) {
  if (token === "") return [make("span", { class: "glyph" }, "∅")];
  return token.split(/(\n|\t)/).filter((part) => part !== "").flatMap((part) => {
    if (part === "\n") return [make("span", { class: "glyph" }, "↵"), "\n"];
    if (part === "\t") return [make("span", { class: "glyph" }, "→"), "\t"];
    return [part];
  });
}

export class TokenText {
  #element;
  #tokens = [];
  #chosen = -1;

  constructor(element) {
    this.#element = element;
    element.tabIndex = 0;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", "Tokens of the answer; the arrow keys go from one to the next");
    element.addEventListener("mousemove", (event) => this.#point(event));
    element.addEventListener("mouseleave", () => this.#choose(-1));
    element.addEventListener("blur", () => this.#choose(-1));
    element.addEventListener("keydown", (event) => this.#step(event));
  }

  add(logprobs) {
    for (const token of listed(logprobs)) {
      const probability = Math.exp(token.logprob ?? 0);
      const span = make("span", { class: `tok s${shade(probability)}` }, ...visible(token.token));
      span.dataset.index = this.#tokens.length;
      this.#tokens.push({ ...token, span });
      this.#element.append(span);
    }
  }

  #point(event) {
    const span = event.target.closest(".tok");
    this.#choose(span ? Number(span.dataset.index) : -1, event.clientX, event.clientY);
  }

  #step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = Math.min(Math.max(this.#chosen + by, 0), this.#tokens.length - 1);
    const { left, bottom } = this.#tokens[next].span.getBoundingClientRect();
    this.#choose(next, left, bottom - 12);
  }

  #choose(index, x, y) {
    this.#tokens[this.#chosen]?.span.classList.remove("at");
    this.#chosen = index;
    if (index < 0) return hideTip();
    const { token, logprob, top, span } = this.#tokens[index];
    span.classList.add("at");
    const rows = top.some((other) => other.token === token) ? top : [{ token, logprob }, ...top];
    const likeliest = [...rows].sort((a, b) => b.logprob - a.logprob);
    const title = make("div", {}, make("strong", {}, JSON.stringify(token)), ` token ${index + 1}`);
    showTip(x, y, title, ...likeliest.map((other) => row(other, other.token === token)));
  }
}

function row({ token, logprob }, isChosen) {
  const probability = Math.exp(logprob);
  return make(
    "div",
    { class: isChosen ? "bar-row chosen" : "bar-row" },
    make("span", {}, JSON.stringify(token).slice(1, -1)),
    make("meter", { min: 0, max: 1, value: probability }),
    make("span", {}, `${(100 * probability).toFixed(probability < 0.1 ? 2 : 1)} %`),
  );
}
