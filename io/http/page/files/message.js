// Shows one entry of a conversation: a question, or an answer that grows while it streams.

import { copyButton, duration, make, number } from "./dom.js";
import { MarkdownView, codeBlock } from "./markdown.js";
import { isJson, prettyJson } from "./pretty_json.js";
import { TokenText } from "./tokens.js";
import { whySlow } from "./why_slow.js";

const ROLES = { user: "You", assistant: "Model", prompt: "Prompt", completion: "Completion" };
const NOTICES = { error: "No answer", unkept: "Not kept" };
// A pause after each rendering of a streamed answer is four times as long as the rendering took, so that long answers
// take at most a fifth of the time.
const PAUSES = { share: 4, least: 16, most: 2000 };

export class Message {
  /** The kept part: {kind, text, reasoning, thought_ms, calls: [{id, name, arguments}], facts, why, error}. */
  entry;
  element;
  #transcript;
  #text = make("div", { class: "text" });
  #foot = make("div", { class: "foot" });
  #view = null; // of the answer as Markdown
  #tokens = null; // of the answer as tokens
  #thoughts = null; // {details, summary, view, pending}
  #calls = new Map(); // by their index in the stream
  #callTexts = []; // the elements of the calls' arguments
  #pending = ""; // text that is not shown yet
  #pendingTokens = []; // logprobs of tokens that are not shown yet
  #timer = null;
  #pause = 0;
  #usage = null;
  #timing = null;
  #reason = null;
  #thinksSince = null;

  constructor(entry, transcript) {
    this.entry = entry;
    this.#transcript = transcript;
    const role = make("div", { class: "role" }, ROLES[entry.kind] ?? NOTICES[entry.kind]);
    this.element = make("li", { class: `message ${entry.kind}` }, role, this.#text, this.#foot);
    if (entry.kind === "assistant") this.#view = new MarkdownView(this.#text);
    transcript.append(this.element);
    if (entry.kind in ROLES) this.#restore();
  }

  /** Shows a kept entry. */
  #restore() {
    const { text, reasoning, calls, error } = this.entry;
    if (reasoning) this.#think(reasoning);
    for (const call of calls ?? []) this.#showCall(call);
    this.#pending = text;
    this.#render();
    this.#settle();
    if (error) this.#showError(error);
    this.#showFoot();
  }

  get isEmpty() {
    const { text, reasoning, calls } = this.entry;
    return text === "" && !reasoning && !calls?.length;
  }

  begin() {
    this.element.classList.add("live");
    this.#foot.replaceChildren();
    this.scroll(true);
  }

  // -- the stream ------------------------------------------------------------------------------------------------------

  /** Takes one event of the stream of either API. */
  take({ choices, usage, timing }) {
    if (usage) this.#usage = usage;
    if (timing) this.#timing = timing;
    for (const choice of choices ?? []) {
      if (choice.index !== 0) continue; // n > 1: the first is shown
      if (choice.finish_reason) this.#reason = choice.finish_reason;
      const { delta } = choice;
      if (delta?.reasoning) this.#takeThought(delta.reasoning);
      for (const call of delta?.tool_calls ?? []) this.#takeCall(call);
      const text = delta ? delta.content : choice.text;
      if (choice.logprobs) this.#pendingTokens.push(choice.logprobs);
      if (!text) continue;
      this.#endThought();
      this.entry.text += text;
      this.#pending += text;
    }
    this.#timer ??= setTimeout(() => this.#renderInTime(), this.#pause);
  }

  #renderTokens() {
    if (this.#pendingTokens.length > 0 && !this.#tokens) {
      this.#text.replaceChildren();
      this.#text.classList.remove("markdown");
      this.#tokens = new TokenText(this.#text);
    }
    for (const logprobs of this.#pendingTokens) this.#tokens.add(logprobs);
    this.#pendingTokens = [];
  }

  #takeThought(text) {
    this.#thinksSince ??= performance.now();
    this.entry.reasoning = (this.entry.reasoning ?? "") + text;
    this.#think(text);
  }

  #takeCall({ index, id, function: { name, arguments: args } }) {
    this.#endThought();
    let call = this.#calls.get(index);
    if (!call) {
      call = { id: id ?? "", name: name ?? "", arguments: "" };
      this.#calls.set(index, call);
      (this.entry.calls ??= []).push(call);
      this.#showCall(call);
    }
    call.arguments += args ?? "";
  }

  #renderInTime() {
    const begun = performance.now();
    const follows = this.#isAtEnd();
    this.#render();
    this.scroll(follows);
    const took = performance.now() - begun;
    this.#pause = Math.min(Math.max(PAUSES.share * took, PAUSES.least), PAUSES.most);
  }

  #render() {
    clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#thoughts?.details.open) this.#renderThoughts();
    this.#callTexts.forEach((element, i) => (element.textContent = prettyJson(this.entry.calls[i].arguments)));
    this.#renderTokens();
    if (this.#tokens || this.#pending === "") return;
    if (this.#view) {
      this.#view.append(this.#pending);
      this.#view.render();
    } else {
      this.#text.append(this.#pending);
    }
    this.#pending = "";
  }

  /** Ends the stream; `reason` replaces its own finish reason. */
  end(reason = this.#reason) {
    this.element.classList.remove("live");
    this.#endThought();
    const follows = this.#isAtEnd();
    this.#render();
    this.#settle();
    this.entry.facts = this.#facts(reason);
    if (this.#timing) this.entry.why = whySlow({ ...this.#timing, prompt_tokens: this.#usage?.prompt_tokens });
    this.#showFoot();
    this.scroll(follows);
  }

  fail(message) {
    if (this.entry.kind in ROLES) this.end("failed");
    this.entry.error = message;
    this.#showError(message);
    this.scroll(true);
  }

  // -- what is shown ---------------------------------------------------------------------------------------------------

  /** Shows an answer that is JSON as code, and arguments that are no JSON unchanged; only the end tells. */
  #settle() {
    const { kind, text, calls } = this.entry;
    this.#callTexts.forEach((element, i) => {
      if (!isJson(calls[i].arguments)) element.textContent = calls[i].arguments;
    });
    if (kind !== "assistant" || this.#tokens || !isJson(text)) return;
    this.#text.replaceChildren(codeBlock({ language: "json", text: prettyJson(text) }));
  }

  #think(text) {
    if (!this.#thoughts) {
      const summary = make("summary", {}, "");
      const body = make("div", {});
      const details = make("details", { class: "thinking" }, summary, body);
      details.addEventListener("toggle", () => details.open && this.#renderThoughts());
      this.#thoughts = { details, summary, view: new MarkdownView(body), pending: "" };
      this.#text.before(details);
      this.#titleThoughts();
    }
    this.#thoughts.pending += text;
  }

  #renderThoughts() {
    if (this.#thoughts.pending === "") return;
    this.#thoughts.view.append(this.#thoughts.pending);
    this.#thoughts.view.render();
    this.#thoughts.pending = "";
  }

  #titleThoughts() {
    const { thought_ms: ms } = this.entry;
    const isLive = this.#thinksSince !== null;
    this.#thoughts.details.classList.toggle("live", isLive);
    this.#thoughts.summary.textContent = isLive ? "Thinking …" : ms ? `Thought for ${duration(ms)}` : "Thoughts";
  }

  #endThought() {
    if (this.#thinksSince === null) return;
    this.entry.thought_ms = (this.entry.thought_ms ?? 0) + (performance.now() - this.#thinksSince);
    this.#thinksSince = null;
    this.#titleThoughts();
  }

  #showCall({ name, arguments: args }) {
    const text = make("code", {}, prettyJson(args));
    const index = this.#callTexts.length;
    this.#callTexts.push(text);
    const head = make("div", { class: "code-head" },
      make("span", {}, "Calls ", make("strong", {}, name)),
      copyButton("Copy the arguments", () => this.entry.calls[index].arguments));
    this.#foot.before(make("div", { class: "code call" }, head,
      make("pre", { tabindex: 0, role: "group", "aria-label": `Arguments of ${name}` }, text)));
  }

  #facts(reason) {
    const facts = [];
    if (this.#usage) {
      const cached = this.#usage.prompt_tokens_details?.cached_tokens;
      facts.push(`${number(this.#usage.prompt_tokens)} prompt tokens${cached ? ` (${number(cached)} cached)` : ""}`);
      facts.push(`${number(this.#usage.completion_tokens)} generated`);
    }
    if (this.#timing) {
      const { ttft_ms: ttft, total_ms: total } = this.#timing;
      const decoded = (this.#usage?.completion_tokens ?? 0) - 1;
      if (decoded > 0 && total > ttft) facts.push(`${number((1000 * decoded) / (total - ttft), 1)} tokens/s`);
      facts.push(`first token ${duration(ttft)}`, `total ${duration(total)}`);
    }
    if (reason) facts.push(reason);
    return facts;
  }

  #showFoot() {
    const { facts, why } = this.entry;
    this.#foot.replaceChildren();
    if (facts) {
      const spans = facts.map((fact) => make("span", {}, fact));
      this.#foot.append(make("div", { class: "meta" }, ...spans, why ? make("span", { class: "why" }, why) : null));
    }
    if (this.entry.text !== "") this.addAction(copyButton("Copy the message", () => this.entry.text));
  }

  /** Puts a button below the message. */
  addAction(button) {
    if (!this.#foot.querySelector(".actions")) this.#foot.append(make("div", { class: "actions" }));
    this.#foot.querySelector(".actions").append(button);
    return button;
  }

  #showError(message) {
    this.#foot.before(make("div", { class: "error", role: "alert" }, message));
  }

  #isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#transcript;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  scroll(follows) {
    if (follows) this.#transcript.scrollTop = this.#transcript.scrollHeight;
  }

  // -- editing ---------------------------------------------------------------------------------------------------------

  /** Shows a form that changes the text, and calls `done` with the new text. Escape and Cancel close the form. */
  edit(done) {
    if (this.element.querySelector(".edit")) return;
    const field = make("textarea", { rows: Math.min(12, this.entry.text.split("\n").length + 1), "aria-label": "Edit the message" });
    field.value = this.entry.text;
    const form = make("form", { class: "edit" }, field,
      make("div", { class: "composer-row" },
        make("span", { class: "hint" }, "Asks again from here; what follows is replaced"),
        make("button", { type: "button", class: "cancel" }, "Cancel"),
        make("button", { type: "submit", class: "main" }, "Ask")));
    const close = () => {
      form.remove();
      this.#text.hidden = this.#foot.hidden = false;
      this.#foot.querySelector(".edit-button")?.focus();
    };
    form.querySelector(".cancel").addEventListener("click", close);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = field.value;
      if (text.trim() === "") return;
      close();
      done(text);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.#text.hidden = this.#foot.hidden = true;
    this.#foot.before(form);
    field.focus();
  }
}
