// The form of the playground: reads the fields of a request, keeps and restores them.

import { $, make } from "./dom.js";
import { saveSettings } from "./conversations.js";

const NUMBERS = ["max_tokens", "seed", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "repetition_penalty"];
const TEXTS = ["model", "system", ...NUMBERS, "stop", "more"];
const NUM_ALTERNATIVES = 5;

export class RequestForm {
  #form = $("request");
  #model = ""; // the model to choose once the models are known

  constructor(onChange) {
    this.#form.addEventListener("change", () => {
      saveSettings(this.values);
      this.#update();
      onChange();
    });
    this.#update();
  }

  get isChat() {
    return this.#form.kind.value === "chat";
  }

  get system() {
    return this.#form.system.value.trim();
  }

  setModels(models) {
    const chosen = this.#model || this.#form.model.value;
    this.#form.model.replaceChildren(...models.map(({ id }) => make("option", { value: id }, id)));
    if (models.some(({ id }) => id === chosen)) this.#form.model.value = chosen;
    this.#model = "";
  }

  /** The values of the form, to be kept. */
  get values() {
    const values = { kind: this.#form.kind.value, show_tokens: this.#form.show_tokens.checked };
    for (const name of TEXTS) values[name] = this.#form[name].value;
    return values;
  }

  /** Fills the form with kept values; fields without one stay as they are. */
  fill(values) {
    if (["chat", "completion"].includes(values.kind)) this.#form.kind.value = values.kind;
    if (typeof values.show_tokens === "boolean") this.#form.show_tokens.checked = values.show_tokens;
    for (const name of TEXTS) {
      if (typeof values[name] === "string" && name !== "model") this.#form[name].value = values[name];
    }
    this.#choose(values.model);
    this.#update();
  }

  #choose(model) {
    if (typeof model !== "string") return;
    const { options } = this.#form.model;
    if (options.length === 0) this.#model = model;
    else if ([...options].some(({ value }) => value === model)) this.#form.model.value = model;
  }

  /** The fields of a request but for its prompt. Throws an Error that names what cannot be read. */
  fields() {
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
      Object.assign(fields, this.isChat ? { logprobs: true, top_logprobs: NUM_ALTERNATIVES } : { logprobs: NUM_ALTERNATIVES });
    }
    return { ...fields, ...this.#more() };
  }

  #more() {
    const text = this.#form.more.value;
    if (text.trim() === "") return {};
    let more;
    try {
      more = JSON.parse(text);
    } catch (error) {
      throw new Error(`More fields: ${error.message}`);
    }
    if (more === null || typeof more !== "object" || Array.isArray(more)) throw new Error("More fields must be a JSON object");
    return more;
  }

  #update() {
    this.#form.classList.toggle("kind-completion", !this.isChat);
    $("legend").hidden = !this.#form.show_tokens.checked;
  }
}
