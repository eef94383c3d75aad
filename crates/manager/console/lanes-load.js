// Reads the timeline. A span that begins before anything is stored is cut, so that the rest has the whole width.
import { get } from "./api.js";
import { SPANS, firstIn, spanOf, startOf } from "./lanes-scale.js";

/** When the first service started or the first event happened, in ms, by what is shown and for how long; nothing that is older appears later. */
const firsts = new Map();

/** The picture of the span that the address names; `services()` returns those that the session may read. */
export async function readTimeline(params, services, more) {
  const span = spanOf(params);
  // The user has chosen the times: they stay.
  if (span.until) return get("/v1/timeline", { ...span, ...more });
  const key = `${span.since} ${more.service ?? ""}`, begin = Date.now() - SPANS[span.since][1];
  const read = (start) => get("/v1/timeline", { since: start > begin ? new Date(start).toISOString() : span.since, ...more });
  const known = startOf(firsts.get(key), Date.now());
  const picture = await read(known);
  if (known > begin) return { ...picture, isFromStart: true };
  const first = firstIn(picture, await services()), start = startOf(first, Date.parse(picture.until));
  if (!(start > Date.parse(picture.since))) return picture;
  firsts.set(key, first);
  return { ...await read(start), isFromStart: true };
}
