// The map of the KV cache: a square for each block, or for several of a large pool, coloured by the sequence that holds it.

import { $, fitted, color, requestColor, NUM_SHADES, isDark, showTip, sayTip, hideTip, make, number, percent } from "./dom.js";

const MOST_HEIGHT = 280;
const LARGEST = 18;
const SMALLEST = 3;
const GAP = 1;
const MOVE_MS = 2500; // how long a move is to be seen

const WORDS = { copy: "copied", swap_out: "swapped out", swap_in: "swapped in" };

export class BlockMap {
  #canvas = $("blocks");
  #cells = []; // {owner: of owners or null, references, cached}
  #map = null;
  #shades = new Map(); // of the requests: {sequence: its shade}
  #seen = new Map(); // moves that were told, and when first
  #hasBegun = false; // what was moved before is not told as just moved
  #layout = { size: LARGEST, columns: 1 };
  #at = -1; // the cell that the keyboard is at

  constructor() {
    this.#canvas.addEventListener("mousemove", ({ offsetX, offsetY, clientX, clientY }) =>
      this.#explain(this.#cellAt(offsetX, offsetY), clientX, clientY, showTip));
    this.#canvas.addEventListener("mouseleave", hideTip);
    this.#canvas.addEventListener("blur", () => {
      this.#at = -1;
      hideTip();
      if (this.#map) this.draw();
    });
    this.#canvas.addEventListener("keydown", (event) => this.#step(event));
  }

  take({ blocks }) {
    this.#map = blocks;
    this.#cells = unpacked(blocks);
    this.#shade(blocks.owners);
    const now = performance.now();
    const known = this.#seen;
    this.#seen = new Map();
    for (const move of blocks.moves) {
      const id = `${move.step}.${move.kind}.${move.from}.${move.to}`;
      this.#seen.set(id, { ...move, at: known.get(id)?.at ?? (this.#hasBegun ? now : -Infinity) });
    }
    this.#hasBegun = true;
  }

  /** Each sequence keeps its shade; one that comes gets that which the fewest of its request have. */
  #shade(owners) {
    const before = this.#shades;
    this.#shades = new Map();
    for (const { request, sequence } of owners) {
      if (!this.#shades.has(request)) this.#shades.set(request, new Map());
      const shade = before.get(request)?.get(sequence);
      if (shade !== undefined) this.#shades.get(request).set(sequence, shade);
    }
    for (const { request, sequence } of owners) {
      const shades = this.#shades.get(request);
      if (shades.has(sequence)) continue;
      const uses = new Array(NUM_SHADES).fill(0);
      for (const shade of shades.values()) ++uses[shade];
      shades.set(sequence, uses.indexOf(Math.min(...uses)));
    }
  }

  #color({ owner }, dark) {
    return owner ? requestColor(owner.request, dark, this.#shades.get(owner.request).get(owner.sequence)) : color("soft");
  }

  draw() {
    const width = this.#canvas.getBoundingClientRect().width;
    this.#layout = layout(this.#cells.length, width);
    const { size, columns } = this.#layout;
    const { context } = fitted(this.#canvas, Math.ceil(Math.ceil(this.#cells.length / columns) * size));
    const dark = isDark();
    const [free, kept, mark] = ["map-free", "map-kept", "map-mark"].map(color);
    const square = Math.floor(size) - GAP;
    this.#cells.forEach((cell, i) => {
      const { x, y } = this.#place(i);
      context.fillStyle = cell.references ? this.#color(cell, dark) : cell.cached ? kept : free;
      context.fillRect(x, y, square, square);
      if (!cell.references || size < 6) return;
      context.fillStyle = context.strokeStyle = mark;
      if (this.#isShared(cell)) {
        const inset = Math.max(2, Math.round(square / 4));
        context.lineWidth = Math.max(1, square / 8);
        context.strokeRect(x + inset, y + inset, square - 2 * inset, square - 2 * inset);
      } else if (cell.cached) {
        const dot = Math.max(2, Math.round(square / 4));
        context.globalAlpha = 0.7;
        context.fillRect(x + square - dot - 1, y + square - dot - 1, dot, dot);
        context.globalAlpha = 1;
      }
    });
    this.#outline(context);
    this.#tell();
  }

  /** The upper left corner of a cell, on whole pixels. */
  #place(i) {
    const { size, columns } = this.#layout;
    return { x: Math.round((i % columns) * size), y: Math.round(Math.floor(i / columns) * size) };
  }

  #isShared(cell) {
    return this.#map.per_cell === 1 && cell.references > 1;
  }

  /** Blocks that were just moved to, and the one that the keyboard is at. */
  #outline(context) {
    const square = Math.floor(this.#layout.size) - GAP;
    const draw = (cell, style, dashes = []) => {
      const { x, y } = this.#place(cell);
      const isSmall = square < 9; // a thick line would cover it
      context.strokeStyle = style;
      context.lineWidth = isSmall ? 1 : 2;
      context.setLineDash(dashes);
      if (isSmall) context.strokeRect(x + 0.5, y + 0.5, square - 1, square - 1);
      else context.strokeRect(x, y, square, square);
      context.setLineDash([]);
    };
    const now = performance.now();
    for (const { kind, to, at } of this.#seen.values()) {
      const cell = Math.floor(to / this.#map.per_cell);
      if (now - at >= MOVE_MS) continue;
      if (kind === "copy") draw(cell, color("map-copied"));
      if (kind === "swap_in") draw(cell, color("map-swapped"), [square / 3, square / 6]);
    }
    if (this.#at >= 0) draw(this.#at, color("focus"));
  }

  #tell() {
    const { total, per_cell: perCell, block_size: size, owners, num_owners: numOwners, moves } = this.#map;
    const owned = this.#cells.filter(({ references }) => references).length;
    const shared = this.#cells.filter((cell) => this.#isShared(cell)).length;
    const kept = this.#cells.filter(({ references, cached }) => !references && cached).length;
    const share = (count) => percent(this.#cells.length ? count / this.#cells.length : 0);
    const onHost = owners.filter(({ on_host: isOnHost }) => isOnHost).length;
    const parts = [
      `${number(total)} blocks of ${size} tokens`,
      `${number(numOwners)} sequence${numOwners === 1 ? "" : "s"}${onHost ? ` (${onHost} swapped out)` : ""}`,
      `${share(owned)} owned`,
    ];
    if (perCell === 1) parts.push(`${number(shared)} shared`);
    parts.push(`${share(kept)} cached`);
    if (perCell > 1) parts.push(`a square is ${number(perCell)} blocks`);
    $("blocks-summary").textContent = parts.join(" · ");
    const last = moves.at(-1);
    $("moves").textContent = last ? `last moved in step ${number(last.step)}: ${WORDS[last.kind]} ${last.from} → ${last.to}` : "";
  }

  #cellAt(x, y) {
    const { size, columns } = this.#layout;
    const column = Math.floor(x / size);
    return column < columns ? Math.floor(y / size) * columns + column : -1;
  }

  #step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.#layout.columns, ArrowDown: this.#layout.columns }[event.key];
    if (!by || !this.#map) return;
    event.preventDefault();
    this.#at = Math.min(Math.max(this.#at < 0 ? 0 : this.#at + by, 0), this.#cells.length - 1);
    this.draw();
    const { left, top } = this.#canvas.getBoundingClientRect();
    const { x, y } = this.#place(this.#at);
    this.#explain(this.#at, left + x, top + y, sayTip);
  }

  #explain(index, x, y, show) {
    const cell = this.#cells[index];
    if (!cell) return hideTip();
    const { per_cell: perCell, total } = this.#map;
    const first = index * perCell;
    const last = Math.min(first + perCell, total) - 1;
    const lines = [];
    if (cell.owner) {
      const { request, sequence, blocks, tokens } = cell.owner;
      lines.push(`request ${request}, sequence ${sequence}: ${number(blocks)} blocks, ${number(tokens)} tokens`);
    } else if (cell.references) lines.push("of a sequence that is not listed");
    if (perCell > 1) lines.push(`${number(cell.references)} uses of ${number(last - first + 1)} blocks`);
    else if (cell.references > 1) lines.push(`shared by ${cell.references} sequences`);
    if (cell.cached) lines.push(cell.references ? "findable by its prefix" : "cached: holds a prefix, nobody uses it now");
    if (!cell.references && !cell.cached) lines.push("free");
    show(x, y, make("strong", {}, perCell === 1 ? `block ${first}` : `blocks ${first} to ${last}`), ...lines.map((line) => make("div", {}, line)));
  }
}

/** The runs of [how many, 1 + owner, references, cached] as cells. */
function unpacked({ cells, owners }) {
  const all = [];
  for (let i = 0; i < cells.length; i += 4) {
    const cell = { owner: owners[cells[i + 1] - 1] ?? null, references: cells[i + 2], cached: cells[i + 3] === 1 };
    for (let n = 0; n < cells[i]; ++n) all.push(cell);
  }
  return all;
}

/** The largest squares with which `count` of them fit; those of a row fill the width. */
function layout(count, width) {
  const inColumns = (size) => Math.max(1, Math.floor(width / size));
  let size = LARGEST;
  while (size > SMALLEST && Math.ceil(count / inColumns(size)) * size > MOST_HEIGHT) --size;
  return { size: Math.min(width / inColumns(size), LARGEST + 2), columns: inColumns(size) };
}
