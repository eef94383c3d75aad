// An incident as text: a one-line summary to paste into a chat, and the address of its page.
import { stamp } from "./clock.js";
import { gapText, isBound } from "./gap.js";
import { counted, duration, eventWord, number } from "./show.js";

/** The event that a cause stands for; a title names the service, so it omits this word. */
const EVENTS = { lost: "service_lost", stopped: "service_gone", handed_over: "handed_over", unknown: "service_suspect" };
const causeWord = (cause) => eventWord(EVENTS[cause] ?? cause).replace(/^service /, "");
const NAMED = 3;

/** A handover after which an observer ran nowhere for so long is an incident, in ms: usually, no other service had room. */
const LONG_GAP_MS = 10000;
/** Whether its service handed the observers over, on request or because it stopped, and all soon ran elsewhere. Only the others are counted as incidents. */
export const isHandover = (it) => (it.cause === "handed_over" || it.cause === "stopped") && it.gap_ms_max < LONG_GAP_MS;

export const incidentHref = (it) => `#/incidents/${encodeURIComponent(it.from)}/${encodeURIComponent(it.since)}`;
/** How many of its observers moved, and how many its service started again, because no other had room: those have not moved. */
export function moved({ from, to, moved: all }) {
  const back = Math.min(to[from] ?? 0, all), gone = all - back;
  return [gone || !back ? { title: "Moved", word: "moved", count: gone } : null, back ? { title: "Started there again", word: "started there again", count: back } : null].filter(Boolean);
}

const movedText = (it) => moved(it).map(({ word, count }, at) => `${at ? number(count) : counted(count, "observer")} ${word}`).join(", ");

export const incidentTitle = (it) => `${it.from} ${causeWord(it.cause)}${it.reasons.length ? ` (${it.reasons.join(", ")})` : ""} · ${movedText(it)}${it.waiting ? `, ${number(it.waiting)} ${it.waiting === 1 ? "runs" : "run"} nowhere yet` : ""}`;

/** When its last observer started; now, if the incident is open. */
export const untilOf = (it) => (it.until ? Date.parse(it.until) : Date.now());

export function targets({ to, to_others: others = 0 }, withCounts = false) {
  const all = Object.entries(to).sort((a, b) => b[1] - a[1]);
  const named = all.slice(0, NAMED).map(([name, count]) => (withCounts ? `${name} (${number(count)})` : name));
  return [...named, ...(all.length > NAMED ? [`${number(all.length - NAMED)} more`] : []), ...(others ? ["others"] : [])].join(", ") || "no service yet";
}

const gapOf = (it, ms) => gapText(ms, isBound(it));
/** Gaps that are all the same are one number. */
function gapsOf(it) {
  const [median, p99, longest] = [it.gap_ms_median, it.gap_ms_p99, it.gap_ms_max].map((ms) => gapOf(it, ms));
  // Of few gaps, the longest is the percentile.
  return median === longest ? `gap ${longest}` : `gap median ${median}${p99 === longest ? "" : ` · p99 ${p99}`} · longest ${longest}`;
}
export const gaps = (it) => it.waiting > 0 ? `longest gap so far ${gapOf(it, it.gap_ms_max)}` : `${gapsOf(it)} · overlap ${it.overlap_ms_max ? duration(it.overlap_ms_max) : "0"}`;

export const incidentLine = (it) => `${incidentTitle(it)} · ${gaps(it)} · to ${targets(it, true)} · ${stamp(it.since)}`;
