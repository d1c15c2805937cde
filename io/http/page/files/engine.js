// The live view: follows /ui/live while it is seen, and hands each snapshot to the parts that draw it.

import { $ } from "./dom.js";
import { ask, events } from "./api.js";
import { Tiles } from "./tiles.js";
import { BlockMap } from "./blocks.js";
import { Timeline } from "./timeline.js";
import { RequestTable } from "./requests.js";

const RETRY_MS = 2000;
const STALE_MS = 3000;

export class Engine {
  #ui;
  #isShown = false;
  #stream = null; // an AbortController, while connected
  #model = ""; // where there are several
  #replica = 0; // whose blocks are shown
  #isPaused = false;
  #last = null; // the last snapshot
  #heard = 0; // when it came
  #parts = [new Tiles(), new BlockMap(), new Timeline(), new RequestTable()];

  constructor(ui) {
    this.#ui = ui;
    document.addEventListener("visibilitychange", () => this.#follow());
    document.addEventListener("theme", () => this.#redraw());
    new ResizeObserver(() => this.#redraw()).observe($("view-engine"));
    $("replica").addEventListener("change", ({ target }) => {
      this.#replica = Number(target.value);
      this.restart();
    });
    $("pause").addEventListener("click", () => this.#pause(!this.#isPaused));
    setInterval(() => this.#checkAge(), 1000);
  }

  show(isShown) {
    this.#isShown = isShown;
    this.#follow();
  }

  setModel(name) {
    if (name === this.#model) return;
    this.#model = name;
    this.#replica = 0;
    this.restart();
  }

  /** With another key, or another model. */
  restart() {
    this.#stream?.abort();
    this.#stream = null;
    this.#follow();
  }

  /** Connected just while somebody can see it: else the server has nothing to tell. */
  #follow() {
    const isWanted = this.#isShown && !document.hidden;
    if (isWanted && !this.#stream) this.#listen();
    if (!isWanted) {
      this.#stream?.abort();
      this.#stream = null;
    }
  }

  async #listen() {
    const controller = (this.#stream = new AbortController());
    let words = "The server has ended the stream";
    try {
      const path = `ui/live?replica=${this.#replica}${this.#model ? `&model=${encodeURIComponent(this.#model)}` : ""}`;
      const response = await ask(path, { signal: controller.signal });
      this.#notice("");
      for await (const { event, data } of events(response)) {
        if (controller.signal.aborted) return;
        const json = JSON.parse(data);
        if (event === "end") words = json.message;
        else this.#take(json);
      }
    } catch (error) {
      if (controller.signal.aborted) return;
      words = error.message;
      if (error.needsKey) {
        this.#notice(`${words}. The live view takes an admin key: use the button Key.`);
        this.#ui.askForKey(words);
        return; // the stream stays set, so that nothing is tried until there is another key
      }
    }
    if (controller.signal.aborted) return;
    this.#notice(`${words}; trying again.`);
    setTimeout(() => {
      if (this.#stream === controller) this.restart();
    }, RETRY_MS);
  }

  #take(snapshot) {
    this.#heard = performance.now();
    this.#notice("");
    const { health } = snapshot.stats;
    this.#ui.setHealth(health === "ok", health === "ok" ? "connected" : health);
    this.#offerReplicas(snapshot);
    for (const part of this.#parts) part.take(snapshot);
    this.#last = snapshot;
    this.#redraw();
  }

  #offerReplicas({ replicas, replica }) {
    $("replica-choice").hidden = replicas < 2;
    const choice = $("replica");
    if (choice.options.length !== replicas) {
      choice.replaceChildren(...Array.from({ length: replicas }, (_, id) => new Option(id, id)));
    }
    choice.value = replica;
  }

  #redraw() {
    if (!this.#last || this.#isPaused || !this.#isShown) return;
    for (const part of this.#parts) part.draw();
  }

  #pause(isPaused) {
    this.#isPaused = isPaused;
    $("pause").setAttribute("aria-pressed", isPaused);
    $("pause").textContent = isPaused ? "Go on" : "Pause";
    for (const part of this.#parts) part.freeze?.(isPaused);
    this.#redraw();
  }

  #checkAge() {
    if (!this.#stream || !this.#last || !this.#isShown) return;
    const age = performance.now() - this.#heard;
    if (age > STALE_MS) this.#notice(`Nothing heard of the engine for ${Math.round(age / 1000)} s.`);
  }

  #notice(words) {
    const notice = $("live-notice");
    notice.hidden = words === "";
    if (notice.textContent !== words) notice.textContent = words;
  }
}
