// Keeps conversations in the browser's storage: at most MAX_KEPT of them and MAX_LENGTH characters, the oldest go first. Each
// has a key of its own, so that tabs with different conversations do not overwrite each other.

const PREFIX = "pagoda.conversation.";
const SETTINGS = "pagoda.settings";
const CURRENT = "pagoda.current";
export const MAX_KEPT = 50;
export const MAX_LENGTH = 2_000_000;
const KINDS = ["user", "assistant", "prompt", "completion"];

/** Reads the JSON under a key; null if there is none. */
function read(storage, key) {
  try {
    return JSON.parse(storage().getItem(key));
  } catch {
    return null; // also where the browser keeps nothing
  }
}

function write(storage, key, value) {
  try {
    storage().setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false; // full, or the browser keeps nothing
  }
}

const local = () => localStorage;
const tab = () => sessionStorage;

const isText = (value) => typeof value === "string";
const isObject = (value) => value !== null && typeof value === "object";

/** Copies the known fields of a stored entry; null if it is none. Another version may have written it. */
function checkedEntry(entry) {
  if (!isObject(entry) || !KINDS.includes(entry.kind) || !isText(entry.text)) return null;
  const checked = { kind: entry.kind, text: entry.text };
  for (const name of ["reasoning", "why", "error"]) if (isText(entry[name])) checked[name] = entry[name];
  if (Number.isFinite(entry.thought_ms)) checked.thought_ms = entry.thought_ms;
  if (Array.isArray(entry.facts)) checked.facts = entry.facts.filter(isText);
  if (Array.isArray(entry.calls)) {
    checked.calls = entry.calls.filter((call) => isObject(call) && [call.id, call.name, call.arguments].every(isText));
  }
  return checked;
}

function checked(stored) {
  if (!isObject(stored) || !Array.isArray(stored.entries)) return null;
  const entries = stored.entries.map(checkedEntry).filter((entry) => entry !== null);
  if (entries.length === 0) return null;
  const changed = Number.isFinite(stored.changed) ? stored.changed : 0;
  return { entries, changed, settings: isObject(stored.settings) ? stored.settings : {} };
}

function keys() {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  } catch {
    return [];
  }
}

/** Lists {id, title, changed} of each conversation, the newest first. */
export function listed() {
  const found = [];
  for (const key of keys()) {
    const conversation = checked(read(local, key));
    if (!conversation) continue;
    const title = conversation.entries[0].text.trim().replace(/\s+/g, " ").slice(0, 60);
    found.push({ id: key.slice(PREFIX.length), title, changed: conversation.changed });
  }
  return found.sort((a, b) => b.changed - a.changed);
}

/** Reads a conversation: {id, entries, settings, changed}; null if it is not kept. */
export function load(id) {
  const conversation = checked(read(local, PREFIX + id));
  return conversation && { id, ...conversation };
}

/** Makes a conversation without entries. It is kept once it has some. */
export const begun = () => ({ id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), entries: [], settings: {}, changed: 0 });

/** Keeps a conversation, and drops the oldest others where there is no room; returns whether it is kept. One that another
 *  tab changed meanwhile gets an id of its own. */
export function save(conversation) {
  if (conversation.entries.length === 0) return true;
  const stored = load(conversation.id);
  if (stored && stored.changed !== conversation.changed) conversation.id = begun().id;
  conversation.changed = Date.now();
  const { id, ...rest } = conversation;
  const others = listed().filter((other) => other.id !== id);
  const lengths = new Map(others.map((other) => [other.id, localStorage.getItem(PREFIX + other.id).length]));
  let total = JSON.stringify(rest).length;
  if (total > MAX_LENGTH) return false;
  for (const length of lengths.values()) total += length;
  while (others.length >= MAX_KEPT || total > MAX_LENGTH) {
    const { id: oldest } = others.pop();
    total -= lengths.get(oldest);
    remove(oldest);
  }
  while (!write(local, PREFIX + id, rest)) {
    if (others.length === 0) return false;
    remove(others.pop().id);
  }
  write(tab, CURRENT, id);
  return true;
}

export function remove(id) {
  localStorage.removeItem(PREFIX + id);
}

export function removeAll() {
  for (const key of keys()) localStorage.removeItem(key);
}

/** Returns the conversation that this tab showed before a reload; in a new tab the newest one. */
export function current() {
  const id = read(tab, CURRENT);
  if (id === "") return begun();
  return (isText(id) && load(id)) || (listed()[0] && load(listed()[0].id)) || begun();
}

/** Notes which conversation this tab shows; "" for one without entries. */
export const setCurrent = (id) => write(tab, CURRENT, id);

export const settings = () => (isObject(read(local, SETTINGS)) ? read(local, SETTINGS) : {});
export const saveSettings = (values) => write(local, SETTINGS, values);
