// Gaps: exact after a handover; after a death, an upper bound.
import { h } from "./dom.js";
import { duration } from "./show.js";

/** What the sign ≤ means, for hovering. */
export const AT_MOST = "upper bound: counted from the last sign of life of the earlier service";

/** The longest time, in ms, of which tenths of a second are shown, as commands show them. */
const TENTHS_MS = 60000;
/** In ms, the unit to which an upper bound is rounded. */
const unitOf = (ms) => (ms < 1000 ? 1 : ms < TENTHS_MS ? 100 : ms < 90000 ? 1000 : 60000);
/** An upper bound must not be rounded down. */
function atMost(ms) {
  const bound = Math.ceil(ms / unitOf(ms)) * unitOf(ms);
  return `≤ ${bound >= 10000 && bound < TENTHS_MS ? `${(bound / 1000).toFixed(1)} s` : duration(bound)}`;
}

/** The gap as text. A gap of zero needs no sign. */
export const gapText = (ms, isAtMost) => (isAtMost && ms > 0 ? atMost(ms) : duration(ms));
/** The gap with its explanation. */
export const gap = (ms, isAtMost) => (isAtMost && ms > 0 ? h("span", { class: "hinted", title: AT_MOST }, gapText(ms, true)) : gapText(ms, false));

/** The gap of an event in ms; of a summary, the median. Only observers have gaps: of a lost service, `gap_ms` is the time until managers knew of the loss. */
export const gapOf = (event) => (event.type === "service_lost" ? null : event.burst?.gap_ms_median ?? event.gap_ms ?? null);
/** Whether the gap of an event or a run is an upper bound; of a summary or an incident, whether one of its gaps is. */
export const isBound = (event) => event.burst?.gap_is_bound ?? event.gap_is_bound;
