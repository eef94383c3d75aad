// Asks for a span of time.
import { askForm } from "./ask-sent.js";
import { isUtc, zoneName } from "./clock.js";
import { earliest } from "./lanes-scale.js";

/** A time in the format of a date field, in the time zone of the console. */
const written = (at) => {
  const date = new Date(isUtc() ? at : at - new Date(at).getTimezoneOffset() * 60000);
  return date.toISOString().slice(0, 16);
};
const read = (text) => new Date(isUtc() ? `${text}Z` : text);

function wrong(since, until, first) {
  if (!(since < until)) return "The start must be before the end.";
  return since < first ? "The timeline holds the last 24 hours." : null;
}

/** Returns `{ since, until }`, or nothing if the user cancels. `first`: the earliest time that it may name. */
export async function askRange(first) {
  const now = Date.now(), limits = { type: "datetime-local", min: first && written(first), max: written(now) };
  const typed = await askForm({ title: "Span of time", lines: [first ? `Within the last 24 hours, in ${zoneName()}.` : `In ${zoneName()}.`], action: "Show", check: ({ since, until }) => wrong(read(since), read(until), first ?? 0),
    fields: [{ name: "since", label: "From", value: written(now - 3600000), ...limits }, { name: "until", label: "To", value: written(now), ...limits }] });
  return typed && { since: read(typed.since).toISOString(), until: read(typed.until).toISOString() };
}

/** The arguments for the buttons of a timeline. */
export const spans = (params, context) => ({ params, ask: () => askRange(earliest()).then((span) => span && context.set({ ...span, span: "" })) });
