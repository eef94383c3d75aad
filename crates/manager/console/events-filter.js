// The filter of the page of events. The API filters by type, observer and service; the span of time is cut out of its pages.
import { get } from "./api.js";
import { SPANS } from "./lanes-scale.js";

/** The parameters of the address that filter. */
export const FILTERS = ["type", "observer", "service", "span", "since", "until"];
const READ = 1000, PAGES_MAX = 20;

const moment = (text) => (Number.isNaN(Date.parse(text ?? "")) ? null : Date.parse(text));

/** `{ since, until }` in ms; null for an open end. */
export function spanOf(params) {
  const span = params.get("span") ?? "";
  if (Object.hasOwn(SPANS, span)) return { since: Date.now() - SPANS[span][1], until: null };
  return { since: moment(params.get("since")), until: moment(params.get("until")) };
}

/** A page without the events before the span; no page follows those. */
export function keptIn(page, { since, until }) {
  if (since === null && until === null) return page;
  const items = page.items.filter((it) => (since === null || Date.parse(it.at) >= since) && (until === null || Date.parse(it.at) <= until));
  const isEnd = since !== null && page.items.some((it) => Date.parse(it.at) < since);
  return { items, next_cursor: isEnd ? null : page.next_cursor, total: null };
}

/** New events are listed before a past time's, so its cursor holds. */
let held = { key: null, cursor: null };

/** The cursor after which the events until this time begin, empty for the first page; null if it is more than 20,000 events back. */
export async function startOf(filter, until) {
  const key = JSON.stringify([filter, until]);
  if (held.key === key) return held.cursor;
  let cursor = "";
  for (let read = 0; read < PAGES_MAX; read += 1) {
    const page = await get("/v1/events", { ...filter, cursor, limit: READ });
    const newer = page.items.findIndex((it) => Date.parse(it.at) <= until);
    if (newer > 0) cursor = (await get("/v1/events", { ...filter, cursor, limit: newer })).next_cursor;
    if (newer >= 0 || !page.next_cursor) {
      // The first page has no cursor that stays.
      if (cursor) held = { key, cursor };
      return cursor;
    }
    cursor = page.next_cursor;
  }
  return null;
}
