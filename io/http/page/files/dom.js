// Small helpers for the document. Text from anywhere becomes text nodes only, never markup.

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; children that are no nodes become text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (key === "class") element.className = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Copies a text to the clipboard; returns whether it did. Browsers offer `navigator.clipboard` only over https and on localhost. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { class: "hidden" });
    field.value = text;
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return isCopied;
  }
}

/** Makes a button that copies what `text` returns. */
export function copyButton(label, text) {
  const button = make("button", { type: "button", class: "quiet copy", "aria-label": label, title: label }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text())) ? "Copied" : "Not copied";
    $("said").textContent = button.textContent;
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

const tip = $("tip");

/** Shows `nodes` beside the point (x, y) of the window. */
export function showTip(x, y, ...nodes) {
  tip.replaceChildren(...nodes);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(x + 14, innerWidth - width - 8);
  const top = y + 18 + height > innerHeight ? y - height - 10 : y + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

export function hideTip() {
  tip.hidden = true;
}

/** Shows `nodes` as showTip() does, and says them to who cannot see them: for what the keyboard has come to. */
export function sayTip(x, y, ...nodes) {
  showTip(x, y, ...nodes);
  $("said").textContent = nodes.map((node) => node.textContent).join(", ");
}

/** A colour of the theme. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Fits the canvas to its place at `height` CSS pixels; its context, scaled to CSS pixels, and its width. */
export function fitted(canvas, height) {
  const scale = devicePixelRatio || 1;
  if (height) canvas.style.height = `${height}px`;
  const { width, height: actual } = canvas.getBoundingClientRect();
  const pixels = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(actual * scale))];
  if (canvas.width !== pixels[0]) canvas.width = pixels[0];
  if (canvas.height !== pixels[1]) canvas.height = pixels[1];
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, actual);
  return { context, width, height: actual };
}

/** 1234.5 as "1,235", 3.21 as "3.2"; nothing known is a dash. */
export function number(value, digits = value < 10 && value % 1 ? 1 : 0) {
  return value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** Milliseconds for people. */
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${ms.toFixed(0)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

export const percent = (share) => (share == null ? "–" : `${(100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`);

const LIGHTNESS = { light: [45, 31, 58, 38], dark: [58, 76, 46, 67] }; // of a request's sequences

/** How many shades of a colour are told apart. */
export const NUM_SHADES = LIGHTNESS.light.length;

/** The colour of a request's blocks: hues that lie far from each other for ids that follow each other, and a shade of it
 *  for each of its sequences. */
export function requestColor(id, isDark, shade = 0) {
  const lightness = LIGHTNESS[isDark ? "dark" : "light"][shade];
  return `hsl(${Math.round((212 + id * 137.508) % 360)} ${isDark ? 48 : 52}% ${lightness}%)`;
}
export const isDark = () => document.documentElement.dataset.theme === "dark";
