// Markdown as elements. Text of a model becomes text nodes and elements whose names stand here and in markdown_inline.js:
// no markup of its own is ever read, nothing is loaded, and links lead only where linkTo() lets them.

import { copyButton, make } from "./dom.js";
import { linesOf, parseBlocks } from "./markdown_blocks.js";
import { appendInline } from "./markdown_inline.js";

const BUILDERS = {
  paragraph: ({ text }) => withInline(make("p"), text),
  heading: ({ level, text }) => withInline(make(`h${Math.min(6, level + 2)}`, { class: `level-${level}` }), text),
  rule: () => make("hr"),
  math: ({ text }) => make("div", { class: "math display" }, text),
  code: codeBlock,
  quote: ({ blocks }) => make("blockquote", {}, ...blocks.map(buildBlock)),
  list: ({ start, loose, items }) => make(start === null ? "ul" : "ol", { class: loose ? "loose" : null, start }, ...items.map(listItem)),
  table,
};

const buildBlock = (block) => BUILDERS[block.type](block);

function withInline(element, text, options) {
  appendInline(element, text, options);
  return element;
}

/** A block of code with its language and a button that copies it. */
export function codeBlock({ language, text }) {
  const code = make("code", {}, text);
  const head = make("div", { class: "code-head" }, make("span", {}, language || "text"), copyButton("Copy the code", () => code.textContent));
  return make("div", { class: "code" }, head, make("pre", { tabindex: 0, role: "region", "aria-label": `Code: ${language || "text"}` }, code));
}

function listItem({ task, blocks }) {
  if (task === null) return make("li", {}, ...blocks.map(buildBlock));
  const box = make("input", { type: "checkbox", disabled: true, checked: task, "aria-label": task ? "done" : "to do" });
  return make("li", { class: "task" }, box, make("div", {}, ...blocks.map(buildBlock)));
}

function table({ align, rows: [head, ...rows] }) {
  const row = (tag) => (cells) => make("tr", {}, ...cells.map((cell, i) => {
    const attributes = { class: align[i] || null, scope: tag === "th" ? "col" : null };
    return withInline(make(tag, attributes), cell, { breaks: true });
  }));
  return make("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Table" },
    make("table", {}, make("thead", {}, row("th")(head)), make("tbody", {}, ...rows.map(row("td")))));
}

/** A text that grows, as Markdown in an element. Blocks that cannot change any more are built once. */
export class MarkdownView {
  #element;
  #text = ""; // from the first block that may change
  #blocks = []; // the blocks of it, as they are shown

  constructor(element) {
    this.#element = element;
    element.classList.add("markdown");
  }

  /** Adds to the text; render() shows it. */
  append(text) {
    this.#text += text.replaceAll("\r", "");
  }

  render() {
    const lines = linesOf(this.#text);
    const blocks = parseBlocks(lines);
    this.#show(blocks);
    // A line that may go on says nothing yet of the block that it begins, nor of the one before.
    const complete = this.#text.endsWith("\n") ? lines.length : lines.length - 1;
    const last = blocks.findLastIndex(({ line }) => line < complete);
    if (last <= 0) return;
    const passed = lines.slice(0, blocks[last].line).reduce((sum, line) => sum + line.length + 1, 0);
    this.#text = this.#text.slice(passed);
    this.#blocks.splice(0, last);
  }

  #show(blocks) {
    const shown = this.#blocks;
    this.#blocks = blocks.map((block, i) => {
      const element = updated(shown[i], block) ?? buildBlock(block);
      if (shown[i]?.element !== element) shown[i] ? shown[i].element.replaceWith(element) : this.#element.append(element);
      return { block, element };
    });
    for (const { element } of shown.slice(blocks.length)) element.remove();
  }
}

/** The element of a block of code that only grew: what is selected or scrolled in it stays. */
function updated(shown, block) {
  if (!shown || block.type !== "code" || shown.block.type !== "code") return null;
  if (shown.block.language !== block.language || !block.text.startsWith(shown.block.text)) return null;
  if (block.text.length > shown.block.text.length) shown.element.querySelector("code").append(block.text.slice(shown.block.text.length));
  return shown.element;
}
