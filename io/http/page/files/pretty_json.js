// Indents JSON. The text is not parsed into numbers, so that they keep their digits.

const MAX_INDENT = 20;

/** Indents a JSON object or array, or the beginning of one; returns other text unchanged. */
export function prettyJson(text) {
  if (!/^\s*[{[]/.test(text)) return text;
  const parts = text.match(/"[^"\\]*(?:\\[^][^"\\]*)*(?:"|\\?$)|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let pretty = "";
  const newLine = () => `\n${"  ".repeat(Math.min(Math.max(depth, 0), MAX_INDENT))}`;
  parts.forEach((part, i) => {
    const isOpening = part === "{" || part === "[";
    const isClosing = part === "}" || part === "]";
    const isEmpty = isClosing && (parts[i - 1] === "{" || parts[i - 1] === "[");
    if (isClosing) depth -= 1;
    if (isClosing && !isEmpty) pretty += newLine();
    pretty += part === ":" ? ": " : part;
    if (isOpening) depth += 1;
    const next = parts[i + 1];
    if ((isOpening && next !== "}" && next !== "]") || part === ",") pretty += newLine();
  });
  return pretty;
}

/** Returns whether the text is a JSON object or array. */
export function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // also one that nests too deep to be read
  }
}
