// The server's HTTP API: keys, errors, streams of events. Addresses are relative, so a path before them does not matter.

const KEY = "pagoda.key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An answer that is not 200: `status`, and the server's words. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
  get needsKey() {
    return this.status === 401 || this.status === 403;
  }
}

async function failure(response) {
  let message = `the server answered ${response.status}`;
  try {
    const body = await response.json();
    message = body.error?.message ?? message;
  } catch {
    // not the server's own words: a proxy's
  }
  return new ApiError(response.status, message);
}

/** The response, which is 200; `body` is sent as JSON. */
export async function ask(path, { body, signal } = {}) {
  const headers = {};
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
  });
  if (!response.ok) throw await failure(response);
  return response;
}

export const askJson = async (path, options) => (await ask(path, options)).json();

/** The events of a stream of server-sent events, as {event, data}. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffered += value;
      const parts = buffered.split("\n\n");
      buffered = parts.pop();
      for (const part of parts) yield parsed(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(text) {
  let event = "message";
  const data = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
  }
  return { event, data: data.join("\n") };
}

/** The JSON of each event up to [DONE]; an error that the stream tells is thrown. */
export async function* jsonEvents(response) {
  for await (const { data } of events(response)) {
    if (data === "[DONE]") return;
    if (!data) continue;
    const json = JSON.parse(data);
    if (json.error) throw new ApiError(200, json.error.message ?? "the stream failed");
    yield json;
  }
}
