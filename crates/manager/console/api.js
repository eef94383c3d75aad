// Talks to the manager. A refused request throws a Refused with the problem's detail; no answer throws a Lost.

const LIMIT_MS = 15000;

export class Lost extends Error {}

export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `the manager answered ${status}`);
    this.status = status;
    this.code = problem?.code ?? "";
    this.errors = problem?.errors ?? [];
  }
}

/** `signal` ends the request early, as if there were no answer. */
export const call = async (method, path, body, more, signal) => (await exchange(method, path, body, more, signal)).answer;

/** The response with its ETag. */
export async function tagged(path) {
  const { answer, response } = await exchange("GET", path);
  return { answer, tag: response.headers.get("etag") };
}

async function exchange(method, path, body, more = {}, signal = null) {
  const limit = AbortSignal.timeout(LIMIT_MS);
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }), ...more },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
      cache: "no-store",
    });
  } catch (error) {
    throw new Lost(error.name === "TimeoutError" ? "the manager did not answer in time" : "the manager cannot be reached");
  }
  const text = await response.text().catch(() => { throw new Lost("the connection closed before the response was complete"); });
  let answer = null;
  try { answer = text ? JSON.parse(text) : null; } catch { /* an answer that is not JSON is told by its status */ }
  if (!response.ok) throw new Refused(response.status, answer);
  return { answer, response };
}

export function get(path, parameters = {}) {
  const search = query(parameters);
  return call("GET", search ? `${path}?${search}` : path);
}

export function query(parameters) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") search.append(name, one);
  }
  return search.toString();
}

/** Runs `work` for each item, a few at a time; answers what went wrong with which. */
export async function forEach(items, work, told = () => {}) {
  const left = [...items], wrong = [];
  let done = 0;
  const worker = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) {
      try { await work(item); } catch (error) { wrong.push({ item, error }); }
      told(++done, items.length);
    }
  };
  await Promise.all(Array.from({ length: 4 }, worker));
  return wrong;
}
