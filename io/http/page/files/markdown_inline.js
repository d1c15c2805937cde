// Inline Markdown: emphasis, code, links, formulas. The text becomes text nodes and elements with names from this file. The
// time is linear in the length of the text: emphasis is matched with CommonMark's delimiter stack.

import { make } from "./dom.js";

const MAX_DEPTH = 20; // of elements in elements; deeper text is shown, its marks are not
const MAX_ADDRESS = 2000;
const SPECIAL = /[\\`*_~$<[\]!&]|\bhttps?:\/\//g;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const ASCII_PUNCTUATION = /[!-/:-@[-`{-~]/;
const ADDRESS = /https?:\/\/(?:[^\s<>"`[\]*]|\*(?!\*))+/y;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const LINE_BREAK = /<br[ ]?\/?>/iy;
const ENTITY = /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));/y;
const ENTITIES = {
  __proto__: null, amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—",
  ndash: "–", times: "×", middot: "·", bull: "•", rarr: "→", larr: "←", deg: "°", euro: "€", le: "≤", ge: "≥", ne: "≠",
};

/** Returns the URL of an http:, https: or mailto: address; null for every other, such as javascript:, data: or a path. */
export function linkTo(address) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address) || address.length > MAX_ADDRESS) return null;
  try {
    return new URL(address);
  } catch {
    return null;
  }
}

/** Turns a text into a list of items: {text}, {open, attributes}, {close}, and runs of delimiters with what they open and close. */
class InlineParser {
  #text;
  #breaks; // whether <br> breaks a line, for cells of tables
  #at = 0;
  #items = [];
  #bottom = { position: -1 }; // of the list of delimiters
  #delimiters = this.#bottom; // the last one
  #brackets = [];
  #numInactive = 0; // the brackets below begin no link, since they hold one
  #backticks = null; // length of a run: {starts, next}
  #absent = new Set(); // ends of formulas that do not follow

  constructor(text, breaks) {
    this.#text = text;
    this.#breaks = breaks;
  }

  parse() {
    const text = this.#text;
    while (this.#at < text.length) {
      SPECIAL.lastIndex = this.#at;
      const match = SPECIAL.exec(text);
      this.#put(text.slice(this.#at, match?.index ?? text.length));
      if (!match) break;
      this.#at = match.index;
      this.#special(match[0]);
    }
    this.#emphasize(this.#bottom);
    return this.#items;
  }

  #put(text) {
    if (text !== "") this.#items.push({ text });
  }

  /** Takes `length` characters as text. */
  #take(length) {
    this.#put(this.#text.slice(this.#at, this.#at + length));
    this.#at += length;
  }

  /** Adds an element that holds only text, and goes on at `end`. */
  #element(tag, content, end, attributes = {}) {
    this.#items.push({ open: tag, attributes }, { text: content }, { close: tag });
    this.#at = end;
  }

  #special(char) {
    if (char === "\\") return this.#escape();
    if (char === "`") return this.#code();
    if (char === "$") return this.#dollar();
    if (char === "<") return this.#angle();
    if (char === "&") return this.#entity();
    if (char === "[") return this.#bracket(1);
    if (char === "]") return this.#closeBracket();
    if (char === "!") return this.#text[this.#at + 1] === "[" ? this.#bracket(2) : this.#take(1);
    if (char.length > 1) return this.#address();
    return this.#delimiter(char);
  }

  #escape() {
    const next = this.#text[this.#at + 1] ?? "";
    if (next === "(" && this.#formula("\\(", "\\)", "math")) return;
    if (next === "[" && this.#formula("\\[", "\\]", "math display")) return;
    if (next === "\n" || ASCII_PUNCTUATION.test(next)) this.#at += 1;
    this.#take(1);
  }

  /** Adds a formula, whose content is no Markdown; returns whether there is one. */
  #formula(opening, closing, name) {
    if (this.#absent.has(closing)) return false;
    const end = this.#text.indexOf(closing, this.#at + opening.length);
    if (end < 0) {
      this.#absent.add(closing);
      return false;
    }
    const content = this.#text.slice(this.#at, end + closing.length);
    if (content.trim().length <= opening.length + closing.length) return false;
    this.#element("span", content, end + closing.length, { class: name });
    return true;
  }

  #dollar() {
    const text = this.#text;
    if (text[this.#at + 1] === "$") {
      if (!this.#formula("$$", "$$", "math display")) this.#take(2);
      return;
    }
    // Pandoc's rule keeps prices text: no space inside the dollars, no digit behind them.
    const end = text.indexOf("$", this.#at + 1);
    const isFormula = end > this.#at + 1 && /\S/.test(text[this.#at + 1]) && /\S/.test(text[end - 1]) &&
      text[end - 1] !== "\\" && !/\d/.test(text[end + 1] ?? "");
    if (isFormula) this.#element("span", text.slice(this.#at, end + 1), end + 1, { class: "math" });
    else this.#take(1);
  }

  #code() {
    const length = this.#runAt(this.#at);
    this.#backticks ??= this.#findBackticks();
    const runs = this.#backticks.get(length);
    while (runs?.starts[runs.next] <= this.#at) runs.next += 1;
    const end = runs?.starts[runs.next];
    if (end === undefined) return this.#take(length);
    let code = this.#text.slice(this.#at + length, end).replaceAll("\n", " ");
    if (code[0] === " " && code.at(-1) === " " && code.trim() !== "") code = code.slice(1, -1);
    this.#element("code", code, end + length);
  }

  #findBackticks() {
    const found = new Map();
    for (const { 0: run, index } of this.#text.matchAll(/`+/g)) {
      if (!found.has(run.length)) found.set(run.length, { starts: [], next: 0 });
      found.get(run.length).starts.push(index);
    }
    return found;
  }

  /** Counts the equal characters from `at` on. */
  #runAt(at) {
    let end = at + 1;
    while (this.#text[end] === this.#text[at]) end += 1;
    return end - at;
  }

  #matchAt(pattern) {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#text);
  }

  #angle() {
    const link = this.#matchAt(AUTOLINK);
    const url = link && linkTo(link[1]);
    if (url) {
      this.#element("a", link[1], this.#at + link[0].length, { href: url.href });
      return;
    }
    const lineBreak = this.#breaks && this.#matchAt(LINE_BREAK);
    if (!lineBreak) return this.#take(1);
    this.#put("\n");
    this.#at += lineBreak[0].length;
  }

  #entity() {
    const match = this.#matchAt(ENTITY);
    if (!match) return this.#take(1);
    const [all, decimal, hex, name] = match;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    const isCharacter = code > 0 && code < 0x110000 && !(code >= 0xd800 && code < 0xe000);
    const char = name ? ENTITIES[name] : isCharacter ? String.fromCodePoint(code) : undefined;
    this.#put(char ?? all);
    this.#at += all.length;
  }

  /** Adds a bare address. It ends before a sentence's punctuation, and before a bracket that it does not open. */
  #address() {
    const match = this.#matchAt(ADDRESS);
    if (!match) return this.#take(4);
    const address = match[0];
    let end = address.length;
    let open = 0;
    for (const char of address) open += char === "(" ? 1 : char === ")" ? -1 : 0;
    for (;;) {
      const last = address[end - 1];
      if (last === ")" && open < 0) open += 1;
      else if (!/[.,:;!?'*_~|]/.test(last)) break;
      end -= 1;
    }
    const url = linkTo(address.slice(0, end));
    if (url) this.#element("a", address.slice(0, end), this.#at + end, { href: url.href });
    else this.#take(end);
  }

  // -- links -----------------------------------------------------------------------------------------------------------

  #bracket(length) {
    this.#brackets.push({ item: this.#items.length, delimiter: this.#delimiters });
    this.#take(length);
    this.#brackets.at(-1).isImage = length === 2;
  }

  #closeBracket() {
    const bracket = this.#brackets.pop();
    const isActive = bracket && (bracket.isImage || this.#brackets.length >= this.#numInactive);
    this.#numInactive = Math.min(this.#numInactive, this.#brackets.length);
    const target = isActive ? this.#target(this.#at + 1) : null;
    const url = target && linkTo(target.address);
    if (!url) return this.#take(1);
    this.#emphasize(bracket.delimiter);
    this.#items[bracket.item] = { open: "a", attributes: { href: url.href, class: bracket.isImage ? "image" : null } };
    if (bracket.item === this.#items.length - 1) this.#put(url.href);
    this.#items.push({ close: "a" });
    this.#at = target.end;
    if (!bracket.isImage) this.#numInactive = this.#brackets.length;
  }

  /** Reads `(address "title")` at `at`: {address, end}, or null. Bounds of both keep the time linear. */
  #target(at) {
    if (this.#text[at] !== "(") return null;
    const near = this.#text.slice(at + 1, at + 1 + 2 * MAX_ADDRESS);
    let from = near.search(/\S|$/);
    const address = near[from] === "<" ? /<([^<>\n]*)>/y : /[^\s<[\]]+/y;
    address.lastIndex = from;
    const match = address.exec(near);
    if (!match) return null;
    let found = match[1] ?? this.#balanced(match[0]);
    from += match[1] === undefined ? found.length : match[0].length;
    const rest = /(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
    rest.lastIndex = from;
    const end = rest.exec(near);
    if (!end) return null;
    found = found.replace(/\\([!-/:-@[-`{-~])/g, "$1");
    return { address: found, end: at + 1 + rest.lastIndex };
  }

  /** Returns the address up to the first bracket that it does not open. */
  #balanced(address) {
    let open = 0;
    for (let at = 0; at < address.length; at += 1) {
      if (address[at] === "(") open += 1;
      else if (address[at] === ")" && --open < 0) return address.slice(0, at);
    }
    return address;
  }

  // -- emphasis --------------------------------------------------------------------------------------------------------

  #delimiter(char) {
    const length = this.#runAt(this.#at);
    const before = this.#text.slice(Math.max(0, this.#at - 2), this.#at).match(/[^]$/u)?.[0] ?? "\n";
    const after = String.fromCodePoint(this.#text.codePointAt(this.#at + length) ?? 10);
    if (char === "~" && length !== 2) return this.#take(length);
    // For * and ~ punctuation counts as letters, so that **标题：**正文 is emphasis; Markdown in English reads the same.
    let canOpen = /\S/.test(after);
    let canClose = /\S/.test(before);
    if (char === "_") {
      const opens = canOpen && (!PUNCTUATION.test(after) || !canClose || PUNCTUATION.test(before));
      const closes = canClose && (!PUNCTUATION.test(before) || !canOpen || PUNCTUATION.test(after));
      canOpen = opens && (!closes || PUNCTUATION.test(before));
      canClose = closes && (!opens || PUNCTUATION.test(after));
    }
    const state = { position: this.#items.length, left: length, closings: [], openings: [], previous: this.#delimiters };
    const delimiter = { char, length, canOpen, canClose, ...state };
    this.#delimiters.next = delimiter;
    this.#delimiters = delimiter;
    this.#items.push(delimiter);
    this.#at += length;
  }

  /** Matches the delimiters above `bottom`, and removes them from the list. */
  #emphasize(bottom) {
    const floors = new Map(); // kind of closer: the highest position that a search for its opener has already covered
    for (let closer = bottom.next; closer; ) {
      const opener = closer.canClose && closer.left > 0 ? this.#openerOf(closer, bottom, floors) : null;
      if (opener) {
        this.#pair(opener, closer);
        continue;
      }
      if (closer.left === 0) {
        closer.previous.next = closer.next;
        if (closer.next) closer.next.previous = closer.previous;
      }
      closer = closer.next;
    }
    bottom.next = undefined;
    this.#delimiters = bottom;
  }

  #openerOf(closer, bottom, floors) {
    const kind = `${closer.char}${closer.canOpen}${closer.length % 3}`;
    const floor = floors.get(kind) ?? bottom.position;
    let opener = closer.previous;
    while (opener.position > floor && !matches(opener, closer)) opener = opener.previous;
    if (opener.position > floor) return opener;
    floors.set(kind, closer.previous.position);
    return null;
  }

  #pair(opener, closer) {
    const length = Math.min(opener.left, closer.left) >= 2 ? 2 : 1;
    const tag = closer.char === "~" ? "del" : length === 2 ? "strong" : "em";
    opener.left -= length;
    closer.left -= length;
    opener.openings.push(tag);
    closer.closings.push(tag);
    // Delimiters between the two stay text. An opener without characters left leaves the list, too.
    const kept = opener.left > 0 ? opener : opener.previous;
    kept.next = closer;
    closer.previous = kept;
  }
}

function matches(opener, closer) {
  if (opener.char !== closer.char || !opener.canOpen) return false;
  const isOfThree = (opener.canClose || closer.canOpen) && (opener.length + closer.length) % 3 === 0;
  return !isOfThree || (opener.length % 3 === 0 && closer.length % 3 === 0);
}

// -- nodes -------------------------------------------------------------------------------------------------------------

/** Builds the parser's items as nodes below `parent`. */
class Builder {
  #parent;
  #opened = []; // the open elements; null for an element that is left out: too deep, or a link in a link
  #text = "";
  #link = null;

  constructor(parent) {
    this.#parent = parent;
  }

  add(items) {
    for (const item of items) {
      if (item.text !== undefined) this.#text += item.text;
      else if (item.open) this.#open(item.open, item.attributes);
      else if (item.close) this.#close();
      else this.#addDelimiter(item);
    }
    this.#flush();
  }

  #addDelimiter({ char, left, closings, openings }) {
    for (let i = 0; i < closings.length; i += 1) this.#close();
    this.#text += char.repeat(left);
    for (const tag of openings.reverse()) this.#open(tag);
  }

  #flush() {
    if (this.#text !== "") this.#parent.append(this.#text);
    this.#text = "";
  }

  #open(tag, attributes = {}) {
    if (this.#opened.length >= MAX_DEPTH || (tag === "a" && this.#link)) return this.#opened.push(null);
    this.#flush();
    const element = make(tag, attributes);
    if (tag === "a") {
      Object.assign(element, { target: "_blank", rel: "noopener noreferrer nofollow", title: element.href });
      this.#link = element;
    }
    this.#parent.append(element);
    this.#parent = element;
    this.#opened.push(element);
  }

  #close() {
    const element = this.#opened.pop();
    if (element === null) return;
    this.#flush();
    this.#parent = element.parentNode;
    if (element !== this.#link) return;
    this.#link = null;
    const place = placeOf(element);
    if (place) element.append(make("span", { class: "place" }, ` ${place}`));
  }
}

/** Returns the host or mail address of a link; "" if its text is already its address. */
function placeOf(link) {
  if (!link.username && isAddress(link)) return "";
  return link.protocol === "mailto:" ? decoded(link.pathname) : link.host;
}

/** Returns whether the text of a link is its own address. */
function isAddress(link) {
  const text = link.textContent.trim();
  const addresses = [text, `mailto:${text}`, ...["http", "https"].map((scheme) => `${scheme}://${text}`)];
  return addresses.some((each) => linkTo(each)?.href === link.href);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Appends `text` to `parent`; breaks: whether <br> breaks a line. */
export function appendInline(parent, text, { breaks = false } = {}) {
  new Builder(parent).add(new InlineParser(text, breaks).parse());
}
