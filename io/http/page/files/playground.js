// The playground: sends questions as requests and shows the answers as messages of a conversation.

import { $, make } from "./dom.js";
import { ask, jsonEvents } from "./api.js";
import * as conversations from "./conversations.js";
import { Message } from "./message.js";
import { RequestForm } from "./request_form.js";

const EMPTY = {
  chat: "Write a message below. The answer streams as the engine makes it.",
  completion: "Write the beginning of a text below, and the model goes on with it.",
};

const isQuestion = ({ entry }) => entry.kind === "user" || entry.kind === "prompt";

export class Playground {
  #ui;
  #form;
  #transcript = $("transcript");
  #prompt = $("prompt");
  #conversation; // the kept conversation; #keep() takes its entries from the messages
  #messages = [];
  #running = null; // {controller, answer}
  #asked = null; // a promise for the end of the last question
  #notice = null; // the message that says why nothing was sent or kept

  constructor(ui) {
    this.#ui = ui;
    this.#form = new RequestForm(() => {
      this.#onSettings();
      this.#keep();
    });
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
      if (event.key === "Escape") this.#running?.controller.abort();
    });
    $("stop").addEventListener("click", () => this.#running?.controller.abort());
    $("new").addEventListener("click", () => this.#change(conversations.begun()));
    $("conversations").addEventListener("change", (event) => {
      this.#change(conversations.load(event.target.value) ?? conversations.begun());
    });
    $("delete").addEventListener("click", () => {
      $("delete-dialog").returnValue = "";
      $("delete-dialog").showModal();
    });
    $("delete-dialog").addEventListener("close", () => this.#delete($("delete-dialog").returnValue));
    addEventListener("pagehide", () => this.#running && this.#keep());
    if (matchMedia("(max-width: 760px)").matches) $("settings").open = false;
    this.#form.fill(conversations.settings());
    this.#open(conversations.current());
  }

  setModels(models) {
    this.#form.setModels(models);
  }

  #onSettings() {
    const { isChat } = this.#form;
    this.#prompt.placeholder = isChat ? "Write a message" : "Once upon a time";
    $("prompt-label").textContent = isChat ? "Message" : "Beginning of the text";
    this.#transcript.dataset.empty = EMPTY[isChat ? "chat" : "completion"];
  }

  // -- conversations ---------------------------------------------------------------------------------------------------

  #open(conversation) {
    this.#conversation = conversation;
    this.#form.fill(conversation.settings);
    this.#transcript.replaceChildren();
    this.#notice = null;
    this.#messages = conversation.entries.map((entry) => new Message(entry, this.#transcript));
    conversations.setCurrent(conversation.entries.length > 0 ? conversation.id : "");
    this.#onSettings();
    this.#showActions();
    this.#showList();
    this.#transcript.scrollTop = this.#transcript.scrollHeight;
  }

  async #change(conversation) {
    await this.#stop();
    this.#open(conversation);
    this.#prompt.focus();
  }

  async #delete(choice) {
    if (choice === "") return;
    await this.#stop();
    if (choice === "all") conversations.removeAll();
    else conversations.remove(this.#conversation.id);
    this.#open(conversations.begun());
    this.#prompt.focus();
  }

  #showList() {
    const kept = conversations.listed();
    const option = ({ id, title }) => make("option", { value: id }, title);
    const isKept = kept.some(({ id }) => id === this.#conversation.id);
    const first = isKept ? [] : [make("option", { value: "" }, "New conversation")];
    $("conversations").replaceChildren(...first, ...kept.map(option));
    $("conversations").value = isKept ? this.#conversation.id : "";
    $("delete").disabled = kept.length === 0;
    $("delete-one").hidden = !isKept;
    $("delete-all").textContent = `All ${kept.length}`;
  }

  /** Keeps the conversation, with the part of a running answer that has come; returns whether it is kept. */
  #keep() {
    const messages = this.#running ? [...this.#messages, this.#running.answer] : this.#messages;
    this.#conversation.entries = messages.filter((message) => !message.isEmpty).map(({ entry }) => entry);
    this.#conversation.settings = this.#form.values;
    conversations.saveSettings(this.#form.values);
    return conversations.save(this.#conversation);
  }

  // -- questions -------------------------------------------------------------------------------------------------------

  async #send() {
    const text = this.#prompt.value;
    if (this.#running || text.trim() === "") return;
    this.#prompt.value = "";
    this.#asked = this.#ask(this.#messages, text);
    if (!(await this.#asked)) this.#prompt.value ||= text;
  }

  /** Asks `text` after `before`, the first of the messages, and drops the others; an error without an answer restores them.
   *  Returns whether there is an answer. */
  async #ask(before, text) {
    this.#notice?.element.remove();
    this.#notice = null;
    let fields;
    try {
      fields = this.#form.fields();
    } catch (error) {
      this.#notify("error", error.message);
      return false;
    }
    const { isChat } = this.#form;
    const after = this.#messages.slice(before.length);
    for (const { element } of after) element.remove();
    const question = new Message({ kind: isChat ? "user" : "prompt", text }, this.#transcript);
    const answer = new Message({ kind: isChat ? "assistant" : "completion", text: "" }, this.#transcript);
    this.#messages = [...before, question];
    const body = isChat ? { ...fields, messages: this.#history() } : { ...fields, prompt: text };
    const error = await this.#run(isChat ? "v1/chat/completions" : "v1/completions", body, answer);
    const isAnswered = error === null || !answer.isEmpty;
    if (isAnswered) {
      this.#messages = [...before, question, answer];
    } else {
      for (const { element } of [question, answer]) element.remove();
      this.#transcript.append(...after.map(({ element }) => element));
      this.#messages = [...before, ...after];
      this.#notify("error", error);
    }
    this.#showActions();
    if (!this.#keep()) this.#notify("unkept", "The browser does not keep this conversation: it is too long, or storage is off.");
    this.#showList();
    return isAnswered;
  }

  #notify(kind, message) {
    this.#notice?.element.remove();
    this.#notice = new Message({ kind, text: "" }, this.#transcript);
    this.#notice.fail(message);
  }

  /** Returns the messages of a chat request. Questions without an answer are left out, except for the last. */
  #history() {
    const messages = this.#form.system ? [{ role: "system", content: this.#form.system }] : [];
    this.#messages.forEach((message, i) => {
      const next = this.#messages[i + 1];
      const { kind, text, reasoning, calls } = message.entry;
      if (message.isEmpty || (next && isQuestion(message) && (next.isEmpty || isQuestion(next)))) return;
      if (kind === "user") messages.push({ role: "user", content: text });
      if (kind !== "assistant") return;
      const answer = { role: "assistant", content: text };
      if (reasoning) answer.reasoning = reasoning;
      if (calls?.length) answer.tool_calls = calls.map(({ id, name, arguments: args }) => ({ id, type: "function", function: { name, arguments: args } }));
      messages.push(answer);
    });
    return messages;
  }

  /** Runs a request and shows its answer; returns the error that ended it, or null. */
  async #run(path, body, answer) {
    const controller = new AbortController();
    this.#running = { controller, answer };
    this.#setRunning(true);
    answer.begin();
    try {
      const response = await ask(path, { body, signal: controller.signal });
      for await (const event of jsonEvents(response)) answer.take(event);
      answer.end();
      return null;
    } catch (error) {
      if (controller.signal.aborted) {
        answer.end("stopped");
        return null;
      }
      answer.fail(error.message);
      if (error.needsKey) this.#ui.askForKey(error.message);
      return error.message;
    } finally {
      this.#running = null;
      this.#setRunning(false);
    }
  }

  /** Stops the running request, and waits until its answer is kept. */
  async #stop() {
    this.#running?.controller.abort();
    await this.#asked;
  }

  #setRunning(isRunning) {
    $("send").hidden = isRunning;
    $("stop").hidden = !isRunning;
    this.#transcript.classList.toggle("running", isRunning);
    $("progress").textContent = isRunning ? "The model answers" : "The answer has ended";
  }

  // -- actions ---------------------------------------------------------------------------------------------------------

  /** Gives every question a button that edits it, and the last message one that asks again. */
  #showActions() {
    for (const button of this.#transcript.querySelectorAll(".again-button, .edit-button")) button.remove();
    this.#messages.forEach((message, i) => {
      const isLast = i === this.#messages.length - 1;
      if (isQuestion(message)) this.#addEdit(message, i);
      if (isLast && (isQuestion(message) || i > 0)) this.#addAgain(message, isQuestion(message) ? i : i - 1);
    });
  }

  #addEdit(message, i) {
    const button = message.addAction(make("button", { type: "button", class: "quiet edit-button" }, "Edit"));
    button.addEventListener("click", () => message.edit((text) => this.#askAgain(i, text)));
  }

  #addAgain(message, i) {
    const button = message.addAction(make("button", { type: "button", class: "quiet again-button" }, "Ask again"));
    button.addEventListener("click", () => this.#askAgain(i, this.#messages[i].entry.text));
  }

  #askAgain(i, text) {
    if (this.#running) return;
    this.#form.fill({ kind: this.#messages[i].entry.kind === "user" ? "chat" : "completion" });
    this.#onSettings();
    this.#prompt.focus();
    this.#asked = this.#ask(this.#messages.slice(0, i), text);
  }
}
