// The playground: what the form says becomes a request; what streams back becomes messages.

import { $, make, duration, number } from "./dom.js";
import { ask, jsonEvents } from "./api.js";
import { TokenText } from "./tokens.js";
import { whySlow } from "./why_slow.js";

const NUMBERS = ["max_tokens", "seed", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "repetition_penalty"];
const NUM_ALTERNATIVES = 5;
const EMPTY = {
  chat: "Write a message below. The answer streams as the engine makes it.",
  completion: "Write the beginning of a text below, and the model goes on with it.",
};

export class Playground {
  #ui;
  #form = $("request");
  #transcript = $("transcript");
  #prompt = $("prompt");
  #messages = []; // of the conversation, as they are sent
  #running = null; // an AbortController

  constructor(ui) {
    this.#ui = ui;
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#send();
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#running?.abort();
    });
    $("stop").addEventListener("click", () => this.#running?.abort());
    $("clear").addEventListener("click", () => this.#clear());
    this.#form.addEventListener("change", () => this.#onSettings());
    if (matchMedia("(max-width: 760px)").matches) $("settings").open = false;
    this.#onSettings();
  }

  setModels(models) {
    const chosen = this.#form.model.value;
    this.#form.model.replaceChildren(...models.map(({ id }) => make("option", { value: id }, id)));
    if (models.some(({ id }) => id === chosen)) this.#form.model.value = chosen;
  }

  get #isChat() {
    return this.#form.kind.value === "chat";
  }

  #onSettings() {
    this.#form.classList.toggle("kind-completion", !this.#isChat);
    this.#prompt.placeholder = this.#isChat ? "Write a message" : "Once upon a time";
    $("prompt-label").textContent = this.#isChat ? "Message" : "Beginning of the text";
    this.#transcript.dataset.empty = EMPTY[this.#isChat ? "chat" : "completion"];
    $("legend").hidden = !this.#form.show_tokens.checked;
  }

  #clear() {
    this.#running?.abort();
    this.#messages = [];
    this.#transcript.replaceChildren();
    this.#prompt.focus();
  }

  /** The fields of a request but for its prompt. Throws an Error that names what cannot be read. */
  #fields() {
    const form = this.#form;
    const fields = { model: form.model.value, stream: true, stream_options: { include_usage: true }, timing: true };
    for (const name of NUMBERS) {
      const input = form[name];
      if (!input.checkValidity()) throw new Error(`${input.labels[0].firstChild.textContent}: ${input.validationMessage}`);
      if (input.value !== "") fields[name] = Number(input.value);
    }
    const stop = form.stop.value.split("\n").filter((line) => line !== "");
    if (stop.length > 0) fields.stop = stop;
    if (form.show_tokens.checked) {
      Object.assign(fields, this.#isChat ? { logprobs: true, top_logprobs: NUM_ALTERNATIVES } : { logprobs: NUM_ALTERNATIVES });
    }
    if (form.more.value.trim() === "") return fields;
    let more;
    try {
      more = JSON.parse(form.more.value);
    } catch (error) {
      throw new Error(`More fields: ${error.message}`);
    }
    if (more === null || typeof more !== "object" || Array.isArray(more)) throw new Error("More fields must be a JSON object");
    return { ...fields, ...more };
  }

  async #send() {
    const text = this.#prompt.value;
    if (this.#running || text.trim() === "") return;
    let fields;
    try {
      fields = this.#fields();
    } catch (error) {
      this.#add("error").fail(error.message);
      return;
    }
    const isChat = this.#isChat;
    const system = this.#form.system.value.trim();
    const asked = [...this.#messages, { role: "user", content: text }];
    const body = isChat
      ? { ...fields, messages: system ? [{ role: "system", content: system }, ...asked] : asked }
      : { ...fields, prompt: text };
    this.#add(isChat ? "user" : "prompt").write(text);
    this.#prompt.value = "";
    const answer = this.#add(isChat ? "assistant" : "completion");
    const content = await this.#run(isChat ? "v1/chat/completions" : "v1/completions", body, answer);
    if (isChat && content !== null) this.#messages = [...asked, { role: "assistant", content }];
    if (content === null) this.#prompt.value ||= text;
  }

  /** The text of the answer; null when there is none, for an error. */
  async #run(path, body, answer) {
    const controller = (this.#running = new AbortController());
    this.#setRunning(true);
    answer.begin();
    try {
      const response = await ask(path, { body, signal: controller.signal });
      for await (const event of jsonEvents(response)) answer.take(event);
      answer.end();
    } catch (error) {
      if (controller.signal.aborted) {
        answer.end("stopped");
      } else {
        answer.fail(error.message);
        if (error.needsKey) this.#ui.askForKey(error.message);
        if (answer.content === "") return null;
      }
    } finally {
      this.#running = null;
      this.#setRunning(false);
    }
    return answer.content;
  }

  #setRunning(isRunning) {
    $("send").hidden = isRunning;
    $("stop").hidden = !isRunning;
    $("progress").textContent = isRunning ? "The model answers" : "The answer has ended";
  }

  #add(kind) {
    const message = new Message(kind, this.#transcript);
    message.scroll(true);
    return message;
  }
}

const ROLES = { user: "You", assistant: "Model", prompt: "Prompt", completion: "Completion", error: "Not sent" };

/** One entry of the transcript. */
class Message {
  content = "";
  #transcript;
  #element;
  #text = make("div", { class: "text" });
  #thinking = null;
  #calls = new Map();
  #tokens = null;
  #usage = null;
  #timing = null;
  #reason = null;

  constructor(kind, transcript) {
    this.#transcript = transcript;
    this.#element = make("li", { class: `message ${kind}` }, make("div", { class: "role" }, ROLES[kind]), this.#text);
    transcript.append(this.#element);
  }

  write(text) {
    this.content += text;
    this.#text.append(text);
  }

  begin() {
    this.#element.classList.add("live");
  }

  /** One event of the stream, of either API. */
  take({ choices, usage, timing }) {
    if (usage) this.#usage = usage;
    if (timing) this.#timing = timing;
    const follows = this.#isAtEnd();
    for (const choice of choices ?? []) {
      if (choice.index !== 0) continue; // n > 1: the first is shown
      if (choice.finish_reason) this.#reason = choice.finish_reason;
      const { delta } = choice;
      if (delta?.reasoning) this.#think(delta.reasoning);
      for (const call of delta?.tool_calls ?? []) this.#call(call);
      const text = delta ? delta.content : choice.text;
      if (choice.logprobs) this.#showTokens(choice.logprobs);
      if (text && this.#tokens) this.content += text;
      else if (text) this.write(text);
    }
    this.scroll(follows);
  }

  #showTokens(logprobs) {
    if (!this.#tokens) {
      this.#text.replaceChildren();
      this.#tokens = new TokenText(this.#text);
    }
    this.#tokens.add(logprobs);
  }

  #think(text) {
    if (!this.#thinking) {
      this.#thinking = make("div", { class: "text" });
      this.#text.before(make("details", { class: "thinking", open: true }, make("summary", {}, "Thinking"), this.#thinking));
    }
    this.#thinking.append(text);
  }

  #call({ index, function: { name, arguments: args } }) {
    if (!this.#calls.has(index)) {
      this.#calls.set(index, make("div", { class: "call" }, `${name ?? ""} `));
      this.#text.after(this.#calls.get(index));
    }
    if (args) this.#calls.get(index).append(args);
  }

  end(reason = this.#reason) {
    this.#element.classList.remove("live");
    const follows = this.#isAtEnd();
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
    const why = this.#timing ? whySlow({ ...this.#timing, prompt_tokens: this.#usage?.prompt_tokens }) : "";
    const spans = facts.map((fact) => make("span", {}, fact));
    this.#element.append(make("div", { class: "meta" }, ...spans, why ? make("span", { class: "why" }, why) : null));
    this.scroll(follows);
  }

  fail(message) {
    this.#element.classList.remove("live");
    this.#element.append(make("div", { class: "error", role: "alert" }, message));
    this.scroll(true);
  }

  #isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#transcript;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  scroll(follows) {
    if (follows) this.#transcript.scrollTop = this.#transcript.scrollHeight;
  }
}
