// The block structure of Markdown (CommonMark with GFM's tables and task lists) as plain objects, without elements.
// HTML and link definitions are text. The time is linear in the length of the text: containers nest at most MAX_DEPTH
// deep, and no pattern below backtracks.
//
// A block is one of
//   {type: "paragraph" | "math", text}        {type: "heading", level, text}     {type: "rule"}
//   {type: "code", language, text}            {type: "quote", blocks}
//   {type: "list", start, loose, items: [{task, blocks}]}     start: null for bullets; task: null, or whether it is done
//   {type: "table", align: ["left" | "center" | "right" | ""], rows: [[text]]}   the first row is the head
// A block at the top also has `line`, the number of its first line.

export const MAX_DEPTH = 16;

const FENCE = /^(`{3,}|~{3,})[ \t]*(.*)$/;
const HEADING = /^(#{1,6})(?:[ \t](.*))?$/;
const RULE = /^([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const MARKER = /^([-*+]|(\d{1,9})[.)])(?=[ \t]|$)/;
const TASK = /^\[([ xX])\][ \t]+(?=\S)/;
const MATH = { __proto__: null, "$$": "$$", "\\[": "\\]" }; // the ends of formulas by their beginnings

const isBlank = (line) => line.trim() === "";

/** Counts the columns of white space that a line begins with; a tab ends at a multiple of four. */
function indentOf(line) {
  let columns = 0;
  for (const char of line) {
    if (char === " ") columns += 1;
    else if (char === "\t") columns += 4 - (columns % 4);
    else break;
  }
  return columns;
}

/** Removes up to `columns` of a line's leading white space; a tab that is cut leaves spaces. */
function dedent(line, columns) {
  let at = 0;
  let passed = 0;
  while (passed < columns && (line[at] === " " || line[at] === "\t")) {
    passed += line[at] === " " ? 1 : 4 - (passed % 4);
    at += 1;
  }
  return " ".repeat(Math.max(0, passed - columns)) + line.slice(at);
}

/** Reads the opening of a fenced code block: {mark, language, indent}, or null. */
function fenceOf(line) {
  if (indentOf(line) > 3) return null;
  const match = FENCE.exec(line.trim());
  if (!match || (match[1][0] === "`" && match[2].includes("`"))) return null;
  return { mark: match[1], language: match[2].split(/[\s{]/, 1)[0].slice(0, 40), indent: indentOf(line) };
}

function closesFence(line, { mark }) {
  const text = line.trim();
  return indentOf(line) < 4 && text.startsWith(mark) && [...text].every((char) => char === mark[0]);
}

/** Reads the marker of a list item: {kind, start, indent, content (the column of its text), text}, or null. */
function markerOf(line) {
  const indent = indentOf(line);
  if (indent > 3) return null;
  const rest = line.trimStart();
  const match = MARKER.exec(rest);
  if (!match || RULE.test(rest)) return null;
  const after = rest.slice(match[0].length);
  const gap = indentOf(after);
  const content = isBlank(after) || gap > 4 ? match[0].length + 1 : match[0].length + gap;
  return {
    kind: match[0].at(-1),
    start: match[2] === undefined ? null : Number(match[2]),
    indent,
    content: indent + content,
    text: dedent(after, content - match[0].length),
  };
}

/** Returns whether the line begins a block that ends a paragraph before it. */
function interrupts(line) {
  if (indentOf(line) > 3) return false;
  const text = line.trim();
  if (text[0] === ">" || HEADING.test(text) || RULE.test(text) || text in MATH || fenceOf(line)) return true;
  const marker = markerOf(line);
  return marker !== null && !isBlank(marker.text) && (marker.start === null || marker.start === 1);
}

/** Splits a table's row into cells. A pipe after a backslash belongs to its cell; with `keepsCode` also one in code. */
function cellsOf(line, keepsCode = false) {
  const cells = [""];
  let text = line.trim();
  let isCode = false;
  if (text[0] === "|") text = text.slice(1);
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "`") isCode = keepsCode && !isCode;
    if (text[at] === "\\" && text[at + 1] === "|") cells[cells.length - 1] += text[++at];
    else if (text[at] === "|" && !isCode) cells.push("");
    else cells[cells.length - 1] += text[at];
  }
  if (cells.length > 1 && cells.at(-1).trim() === "") cells.pop();
  return cells.map((cell) => cell.trim());
}

/** Splits a table's row into at most `count` cells. Models expect neither of GFM's rules: that a pipe in code ends a cell,
 *  and that cells beyond the head are dropped. */
function cellsUpTo(count, line) {
  const cells = cellsOf(line);
  if (cells.length <= count) return cells;
  const whole = cellsOf(line, true);
  if (whole.length <= count) return whole;
  return [...cells.slice(0, count - 1), cells.slice(count - 1).join(" | ")];
}

/** Reads the line under a table's head: an alignment for each column, or null. */
function alignmentsOf(line) {
  if (line === undefined || !line.includes("-") || !line.includes("|")) return null;
  const cells = cellsOf(line);
  if (!cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => {
    if (cell.at(-1) === ":") return cell[0] === ":" ? "center" : "right";
    return cell[0] === ":" ? "left" : "";
  });
}

/** Parses one level of blocks: the lines of a text, of a quote or of a list item. */
class BlockParser {
  #lines;
  #depth;
  #at = 0;
  #blocks = [];
  #noEndBefore = {}; // end of a formula: no line before this one has it

  constructor(lines, depth) {
    this.#lines = lines;
    this.#depth = depth;
  }

  parse() {
    while (this.#at < this.#lines.length) {
      if (isBlank(this.#lines[this.#at])) {
        this.#at += 1;
        continue;
      }
      const line = this.#at;
      this.#blocks.push({ ...this.#block(this.#lines[line]), line });
    }
    return this.#blocks;
  }

  #block(line) {
    if (indentOf(line) > 3) return this.#indentedCode();
    const text = line.trim();
    const fence = fenceOf(line);
    if (fence) return this.#fencedCode(fence);
    const heading = HEADING.exec(text);
    if (heading) return this.#heading(heading[1].length, heading[2] ?? "");
    if (RULE.test(text)) {
      this.#at += 1;
      return { type: "rule" };
    }
    if (this.#depth < MAX_DEPTH) {
      if (text[0] === ">") return this.#quote();
      const marker = markerOf(line);
      if (marker) return this.#list(marker);
    }
    return this.#formula(text) ?? this.#table() ?? this.#paragraph();
  }

  #heading(level, text) {
    this.#at += 1;
    const title = text.trim();
    let end = title.length;
    while (title[end - 1] === "#") end -= 1;
    const closes = end === 0 || title[end - 1] === " " || title[end - 1] === "\t";
    return { type: "heading", level, text: closes ? title.slice(0, end).trim() : title };
  }

  #fencedCode(fence) {
    const lines = [];
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      if (closesFence(line, fence)) {
        this.#at += 1;
        break;
      }
      lines.push(dedent(line, fence.indent));
    }
    return { type: "code", language: fence.language, text: lines.join("\n") };
  }

  #indentedCode() {
    const lines = [];
    let end = 0; // before the blank lines behind the code
    while (this.#at + lines.length < this.#lines.length) {
      const line = this.#lines[this.#at + lines.length];
      if (!isBlank(line) && indentOf(line) < 4) break;
      lines.push(dedent(line, 4));
      if (!isBlank(line)) end = lines.length;
    }
    this.#at += lines.length;
    return { type: "code", language: "", text: lines.slice(0, end).join("\n") };
  }

  #quote() {
    const lines = [];
    let fence = null;
    let isText = false; // whether a line without a mark goes on with a paragraph
    for (; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      const text = line.trimStart();
      if (text[0] === ">" && indentOf(line) < 4) {
        lines.push(text[1] === " " ? text.slice(2) : text.slice(1));
        const ends = fence && closesFence(lines.at(-1), fence);
        isText = !fence && !isBlank(lines.at(-1)) && !fenceOf(lines.at(-1));
        fence = fence ? (ends ? null : fence) : fenceOf(lines.at(-1));
      } else if (isText && !isBlank(line) && !interrupts(line)) {
        lines.push(line);
      } else {
        break;
      }
    }
    return { type: "quote", blocks: this.#inner(lines) };
  }

  #inner(lines) {
    return new BlockParser(lines, this.#depth + 1).parse().map(({ line, ...block }) => block);
  }

  #list(first) {
    const items = [];
    let loose = false;
    for (let marker = first; marker; ) {
      const { lines, isApart } = this.#item(marker);
      const task = TASK.exec(lines[0]);
      if (task) lines[0] = lines[0].slice(task[0].length);
      const blocks = this.#inner(lines);
      items.push({ task: task ? task[1] !== " " : null, blocks });
      const next = this.#at < this.#lines.length ? markerOf(this.#lines[this.#at]) : null;
      marker = next?.kind === first.kind ? next : null;
      loose ||= marker !== null && isApart;
    }
    return { type: "list", start: first.start, loose, items };
  }

  /** Takes the lines of an item; isApart: whether blank lines follow it. */
  #item({ kind, content, indent, text }) {
    const lines = [text];
    let fence = fenceOf(text);
    let isText = !fence && !isBlank(text); // whether a line goes on with a paragraph though it is not indented
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      const isOutside = !fence && !isBlank(line) && indentOf(line) < content;
      if (isOutside) {
        if (this.#isInner(line, kind, indent)) content = indentOf(line);
        else if (!isText || interrupts(line) || markerOf(line)?.kind === kind) break;
      }
      const inner = dedent(line, content);
      lines.push(inner);
      // Models often forget to indent code in a list: it stays in the item up to its end.
      const wasFence = fence;
      if (fence) fence = closesFence(inner, fence) ? null : fence;
      else fence = fenceOf(inner);
      isText = !wasFence && !fence && !isBlank(line);
    }
    return { lines, isApart: !fence && isBlank(lines.at(-1)) };
  }

  /** Returns whether the line begins an inner list of another kind with too little indent, as models write it. */
  #isInner(line, kind, indent) {
    const marker = markerOf(line);
    return marker !== null && marker.kind !== kind && marker.indent >= indent + 2;
  }

  /** Takes a formula in lines of its own. Without an end it is a paragraph, unless the text ends first: more may come. */
  #formula(text) {
    const closer = MATH[text.slice(0, 2)];
    if (closer === undefined || this.#at < (this.#noEndBefore[closer] ?? 0)) return null;
    let end = this.#at;
    while (end < this.#lines.length && !isBlank(this.#lines[end])) {
      const line = this.#lines[end].trim();
      const isFirst = end === this.#at;
      if (line.endsWith(closer) && (!isFirst || line.length >= 4)) return this.#takeFormula(end + 1);
      if (isFirst && line.indexOf(closer, 2) >= 0) return null; // text follows on its line
      end += 1;
    }
    if (end === this.#lines.length) return this.#takeFormula(end);
    this.#noEndBefore[closer] = end;
    return null;
  }

  #takeFormula(end) {
    const lines = this.#lines.slice(this.#at, end).map((line) => line.trim());
    this.#at = end;
    return { type: "math", text: lines.join("\n") };
  }

  #table() {
    const head = this.#lines[this.#at];
    const align = head.includes("|") ? alignmentsOf(this.#lines[this.#at + 1]) : null;
    if (!align || cellsOf(head).length !== align.length) return null;
    const rows = [cellsOf(head)];
    for (this.#at += 2; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      if (!line.includes("|") || interrupts(line)) break;
      rows.push(cellsUpTo(align.length, line));
    }
    return { type: "table", align, rows };
  }

  #paragraph() {
    const lines = [];
    for (; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      if (isBlank(line)) break;
      if (lines.length > 0) {
        const text = line.trim();
        if (indentOf(line) < 4 && /^(?:=+|-+)$/.test(text)) {
          this.#at += 1;
          return { type: "heading", level: text[0] === "=" ? 1 : 2, text: lines.join("\n").trim() };
        }
        if (interrupts(line) || this.#beginsTable()) break;
      }
      lines.push(line.trimEnd());
    }
    lines[0] = lines[0].trimStart();
    return { type: "paragraph", text: lines.join("\n") };
  }

  #beginsTable() {
    const line = this.#lines[this.#at];
    if (!line.includes("|")) return false;
    return alignmentsOf(this.#lines[this.#at + 1])?.length === cellsOf(line).length;
  }
}

/** Splits a text into lines; a line break at its end begins no further line. */
export function linesOf(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Returns the blocks of the lines. */
export const parseBlocks = (lines) => new BlockParser(lines, 0).parse();
