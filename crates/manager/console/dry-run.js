// What the manager says about a definition: a dry run of the request that would create or change the observer.
import { Refused, call } from "./api.js";

/** The session may not ask, or the manager cannot answer at this time: that says nothing about the definition. */
const isSilent = ({ status }) => status === 401 || status === 403 || status === 429 || status >= 500;

/** The member that a refusal without a place is about. */
const MEMBER = { "name-exists": "/name", "name-ending": "/name", "finish-at-passed": "/finish_at" };

/** What is wrong, each with its place: the sentence of the manager where the place has only a word of it. */
function listed({ code, errors, message }) {
  if (errors.length === 0) return [{ pointer: MEMBER[code] ?? "", detail: message }];
  return code !== "invalid" && errors.length === 1 ? [{ pointer: errors[0].pointer, detail: message }] : errors;
}

/** The definition without these members. */
export const without = (definition, members) => Object.fromEntries(Object.entries(definition).filter(([name]) => !members.has(name)));

/** The part of a definition that can be read; `own`: what the console refuses, by the field; `members`: the fields of the spec. */
export function readablePart(definition, own, { members, isWhole }) {
  const bad = new Set(Object.keys(own).flatMap((it) => (it === "/time_zone" ? ["schedule", "windows"] : it.startsWith("/") ? [it.split("/")[1]] : [])));
  const part = without(definition, bad);
  if (!isWhole && part.spec) part.spec = without(part.spec, new Set(members.map((it) => it.name).filter((it) => Object.hasOwn(own, it))));
  return part;
}

/** What the manager would refuse (`errors`: null if it does not say), and the observer that it would make, if it refuses nothing. */
export async function judgment(method, path, definition, signal) {
  const first = await judged(method, path, definition, signal), memberOf = ({ pointer }) => pointer.split("/")[1];
  const bad = new Set((first.errors ?? []).map(memberOf).filter(Boolean));
  if (bad.size === 0 || bad.has("kind")) return first;
  // A definition that is not valid hides what is wrong besides, such as a name that is taken. What is missing now says nothing.
  const rest = await judged(method, path, without(definition, bad), signal);
  return { errors: [...first.errors, ...(rest.errors ?? []).filter((it) => !bad.has(memberOf(it)))], made: null };
}

async function judged(method, path, definition, signal) {
  try {
    return { errors: [], made: await call(method, `${path}?dry_run=true`, definition, {}, signal) };
  } catch (error) {
    return { errors: error instanceof Refused && !isSilent(error) ? listed(error) : null, made: null };
  }
}

/** Asks about the latest definition, `wait` ms after the last change: a request that still runs ends when another one is due. */
export function dryRuns(wait) {
  let timer = null, running = null;
  const stop = () => { clearTimeout(timer); running?.abort(); };
  const ask = (method, path, definition, answer) => {
    stop();
    timer = setTimeout(async () => {
      const mine = new AbortController();
      running = mine;
      const said = await judgment(method, path, definition, mine.signal);
      if (!mine.signal.aborted) answer(said);
    }, wait);
  };
  return { ask, stop };
}
