// An incident as text: a one-line summary to paste into a chat, and the address of its page.
import { stamp } from "./clock.js";
import { counted, duration, number } from "./show.js";

const CAUSE = { lost: "lost", stopped: "stopped", handed_over: "handed over", unknown: "silent" };
const NAMED = 3;

export const incidentHref = (it) => `#/incidents/${encodeURIComponent(it.from)}/${encodeURIComponent(it.since)}`;
export const incidentTitle = (it) => `${it.from} ${CAUSE[it.cause] ?? it.cause} · ${counted(it.moved, "observer")} moved${it.waiting ? `, ${number(it.waiting)} run nowhere yet` : ""}`;

/** When its last observer started; now, if the incident is open. */
export const untilOf = (it) => (it.until ? Date.parse(it.until) : Date.now());

export function targets({ to, to_others: others = 0 }, withCounts = false) {
  const all = Object.entries(to).sort((a, b) => b[1] - a[1]);
  const named = all.slice(0, NAMED).map(([name, count]) => (withCounts ? `${name} (${number(count)})` : name));
  return [...named, ...(all.length > NAMED ? [`${number(all.length - NAMED)} more`] : []), ...(others ? ["others"] : [])].join(", ") || "no service yet";
}

export const gaps = (it) => `gap median ${duration(it.gap_ms_median)} · p99 ${duration(it.gap_ms_p99)} · longest ${duration(it.gap_ms_max)} · overlap ${it.overlap_ms_max ? duration(it.overlap_ms_max) : "0"}`;

export const incidentLine = (it) => `${incidentTitle(it)} · ${gaps(it)} · to ${targets(it, true)} · ${stamp(it.since)}`;
