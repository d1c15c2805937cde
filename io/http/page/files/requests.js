// The table of requests: live ones in the order in which they are served, then those that ended last.

import { $, make, number, duration, requestColor, isDark } from "./dom.js";
import { StepLog } from "./step_log.js";
import { whySlow } from "./why_slow.js";

const MOST_ROWS = 120;

export class RequestTable {
  #snapshot = null;
  #rows = new Map(); // by id: {element, cells}
  #seen = new Map(); // by id: {grammar_ms, decoding}: what is not told any more when a request has ended
  #steps = new StepLog();

  take(snapshot) {
    this.#snapshot = snapshot;
    this.#steps.take(snapshot);
    const known = this.#seen;
    this.#seen = new Map();
    for (const request of [...snapshot.requests, ...snapshot.ended]) {
      const seen = known.get(request.id) ?? { grammar_ms: 0, decoding: [], hasEnded: false };
      if (!seen.hasEnded) this.#look(request, snapshot.now_us, seen);
      this.#seen.set(request.id, seen);
    }
  }

  #look(request, now, seen) {
    seen.hasEnded = !request.state;
    if (request.state === "waiting_for_grammar") seen.grammar_ms = request.age_ms;
    if (request.ttft_ms == null || request.generated_tokens < 2) return;
    const to = now - 1000 * (request.ended_ms_ago ?? 0);
    const from = to - 1000 * ((request.total_ms ?? request.age_ms) - request.ttft_ms);
    const reasons = this.#steps.reasons(from, to);
    if (reasons.length || !seen.hasEnded) seen.decoding = reasons;
  }

  draw() {
    const { requests, ended, stats, steps_in_flight: steps } = this.#snapshot;
    const live = new Set(requests.map(({ id }) => id));
    const all = [...requests, ...ended.filter(({ id }) => !live.has(id)).reverse()].slice(0, MOST_ROWS);
    const forGrammar = requests.filter(({ state }) => state === "waiting_for_grammar").length;
    const body = $("requests");
    const known = this.#rows;
    this.#rows = new Map();
    for (const request of all) {
      const row = known.get(request.id) ?? newRow();
      fill(row, request, this.#seen.get(request.id));
      this.#rows.set(request.id, row);
    }
    const elements = [...this.#rows.values()].map(({ element }) => element);
    if (elements.length === 0) elements.push(make("tr", {}, make("td", { colspan: 10, class: "empty" }, "No requests yet")));
    if (elements.length !== body.children.length || elements.some((element, i) => body.children[i] !== element)) {
      body.replaceChildren(...elements);
    }
    $("queues").textContent = [
      `${number(stats.requests_running)} running`,
      `${number(stats.requests_waiting)} waiting`,
      ...(forGrammar ? [`${number(forGrammar)} of them for a grammar`] : []),
      `${number(stats.requests_swapped)} swapped`,
      `${number(stats.requests_finished_total)} finished`,
      `${number(stats.requests_aborted_total)} aborted`,
      `${number(stats.requests_failed_total)} failed`,
      ...(steps.length ? [`in flight: ${steps.map(({ step, tokens, rows }) => `step ${step} (${rows} rows, ${tokens} tokens)`).join(", ")}`] : []),
      ...(stats.overloaded ? ["full: new requests are refused"] : []),
    ].join(" · ");
  }
}

function newRow() {
  const cells = Array.from({ length: 10 }, (_, i) => make("td", { class: i >= 2 && i <= 8 ? "num" : i === 9 ? "why" : false }));
  const swatch = make("i", { class: "swatch" });
  const id = make("span");
  cells[0].append(swatch, id);
  return { element: make("tr", {}, ...cells), cells, swatch, id };
}

function fill({ element, cells, swatch, id }, request, { grammar_ms, decoding: reasons }) {
  const state = request.state ?? request.finish_reason;
  element.className = request.state ? "" : "ended";
  swatch.style.background = requestColor(request.id, isDark());
  swatch.style.opacity = request.state ? 1 : 0.35;
  const time = request.total_ms ?? request.age_ms;
  const generated = request.generated_tokens;
  const decoding = request.ttft_ms == null ? 0 : time - request.ttft_ms;
  put(id, number(request.id));
  const words = state.replaceAll("_", " ");
  const what = request.sequences > 1 ? `${words} × ${request.sequences}` : words;
  put(cells[1], request.adapter ? `${what}, ${request.adapter}` : what);
  cells[1].className = `state-${state}`;
  put(cells[2], number(request.prompt_tokens));
  put(cells[3], number(request.cached_tokens));
  put(cells[4], request.max_tokens ? `${number(generated)} / ${number(request.max_tokens * Math.max(1, request.sequences))}` : number(generated));
  put(cells[5], duration(request.queue_ms));
  put(cells[6], duration(request.ttft_ms));
  put(cells[7], duration(time));
  put(cells[8], generated > 1 && decoding > 0 ? number((1000 * (generated - 1)) / decoding) : "–");
  put(cells[9], whySlow({ ...request, grammar_ms }, reasons));
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
