// Gaps: exact after a handover; after a death, an upper bound.
import { get } from "./api.js";
import { h } from "./dom.js";
import { duration } from "./show.js";

const READ = 1000;
const FRESH_MS = 5000;
/** A handover is reported at the time at which its gap begins, give or take this. */
const NEAR_MS = 1500;
/** What the sign ≤ means, for hovering. */
export const AT_MOST = "at most: counted from the last sign of life of the lost service";

/** The gap as text. A gap of zero needs no sign. */
export const gapText = (ms, isAtMost) => (isAtMost && ms > 0 ? `≤ ${duration(ms)}` : duration(ms));
/** The gap with its explanation. */
export const gap = (ms, isAtMost) => (isAtMost && ms > 0 ? h("span", { class: "hinted", title: AT_MOST }, gapText(ms, true)) : gapText(ms, false));

/** Whether the gaps of an incident are upper bounds. */
export const hasBounds = (incident) => incident.cause === "lost" || incident.cause === "unknown";
/** Whether the gap before the run at this place of the list, newest first, is an upper bound. */
export const followsDeath = (runs, at) => at >= 0 && runs[at + 1]?.ended === "lost";

/** The gap of an event in ms; of a summary, the median. */
export const gapOf = (event) => event.burst?.gap_ms_median ?? event.gap_ms ?? null;

const keyOf = (observer, service) => `${observer} ${service}`;
const NOTHING = { newest: null, readAt: -Infinity, handovers: new Map(), lost: new Set(), since: 0 };
let held = NOTHING;

/** The times at which services handed observers over, and the lost services, as far as these events need them; it is read again when there are new events. */
export async function endings(items) {
  const newest = Math.max(0, ...items.filter((it) => it.from).map((it) => it.id));
  if (newest === 0) return NOTHING;
  if (newest === held.newest && performance.now() - held.readAt < FRESH_MS) return held;
  const [handed, lost] = await Promise.all([get("/v1/events", { type: "handed_over,stopped", details: true, limit: READ }), get("/v1/events", { type: "service_lost", limit: READ })]);
  held = { newest, readAt: performance.now(), handovers: Map.groupBy(handed.items, (it) => keyOf(it.observer?.id, it.service?.id)), lost: new Set(lost.items.map((it) => it.service?.id)), since: handed.next_cursor ? Date.parse(handed.items.at(-1).at) : 0 };
  return held;
}

/** Whether the gap of this event is an upper bound. For events older than the handovers that were read, the loss of the service decides. */
export function isBound(event, { handovers, lost, since }) {
  if (!event.from) return false;
  const at = Date.parse(event.at), began = at - gapOf(event);
  if (event.burst || at < since) return lost.has(event.from.id);
  return !handovers.get(keyOf(event.observer?.id, event.from.id))?.some((it) => Math.abs(Date.parse(it.at) - began) < NEAR_MS);
}
