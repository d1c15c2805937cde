// Markdown as elements. A model's text becomes text nodes, and elements with names from this file and markdown_inline.js.
// Markup in it is never parsed, nothing is loaded, and linkTo() decides which addresses become links.

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

/** Builds a block of code with its language and a button that copies it. */
export function codeBlock({ language, text }) {
  const code = make("code", {}, text);
  const head = make("div", { class: "code-head" }, make("span", {}, language || "text"), copyButton("Copy the code", () => code.textContent));
  return make("div", { class: "code" }, head, make("pre", { tabindex: 0, role: "group", "aria-label": `Code: ${language || "text"}` }, code));
}

function listItem({ task, blocks }) {
  if (task === null) return make("li", {}, ...blocks.map(buildBlock));
  const box = make("input", { type: "checkbox", disabled: true, checked: task, "aria-label": task ? "done" : "to do" });
  return make("li", { class: "task" }, box, make("div", {}, ...blocks.map(buildBlock)));
}

const tableRow = (tag, align) => (cells) =>
  make("tr", {}, ...cells.map((cell, i) => {
    const attributes = { class: align[i] || null, scope: tag === "th" ? "col" : null };
    return withInline(make(tag, attributes), cell, { breaks: true });
  }));

function table({ align, rows: [head, ...rows] }) {
  const body = make("tbody", {}, ...rows.map(tableRow("td", align)));
  return make("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Table" },
    make("table", {}, make("thead", {}, tableRow("th", align)(head)), body));
}

/** Shows a growing text as Markdown in an element. Blocks that cannot change any more are built once. */
export class MarkdownView {
  #element;
  #text = ""; // the text from the first block on that may still change
  #blocks = []; // its blocks with their elements

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
    // An incomplete last line may yet join the block before it, so a block that it begins makes none final.
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

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Rebuilds the children of `parent` that differ between `before` and `after`. */
function patch(parent, before, after, build) {
  after.forEach((each, i) => {
    const shown = parent.children[i];
    if (!shown) parent.append(build(each));
    else if (!same(before[i], each)) shown.replaceWith(build(each));
  });
  while (parent.children.length > after.length) parent.lastElementChild.remove();
}

/** Update the element of a block to a later state; return false where a new element is needed. */
const UPDATERS = {
  code({ block: before, element }, { language, text }) {
    if (before.language !== language || !text.startsWith(before.text)) return false;
    if (text.length > before.text.length) element.querySelector("code").append(text.slice(before.text.length));
    return true;
  },
  list({ block: before, element }, { start, loose, items }) {
    if (before.start !== start || before.loose !== loose) return false;
    patch(element, before.items, items, listItem);
    return true;
  },
  table({ block: before, element }, { align, rows }) {
    if (!same(before.align, align) || !same(before.rows[0], rows[0])) return false;
    patch(element.querySelector("tbody"), before.rows.slice(1), rows.slice(1), tableRow("td", align));
    return true;
  },
};

/** Updates and returns the element of a block that has only grown, so that selection, scrolling and focus stay; else null. */
function updated(shown, block) {
  const isUpdated = shown?.block.type === block.type && UPDATERS[block.type]?.(shown, block);
  return isUpdated ? shown.element : null;
}
