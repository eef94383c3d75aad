// The runs of an observer: a strip with a lane for each of its services, and a list.
import { clock, exact } from "./clock.js";
import { h, s } from "./dom.js";
import { gap, gapText, isBound } from "./gap.js";
import { room } from "./lanes.js";
import { SPANS, scale, startOf, ticks } from "./lanes-scale.js";
import { may } from "./session.js";
import { counted, duration, number, observerPath, time } from "./show.js";

const RUNS = 30;
const ROW = 20, BETWEEN = 8, TOP = 10, FOOT = 24;
const LANES = 6;
export const ENDED = { handed_over: "handed over", stopped: "stopped", completed: "completed", failed: "failed", lost: "its service was lost" };

/** A run whose attempts lasted shorter than this on average did not run: its code ended again and again. */
const CRASHING_MS = 300000;

const start = (run) => Date.parse(run.started_at);
const end = (run) => (run.ended_at ? Date.parse(run.ended_at) : Date.now());
const keepsFailing = (run) => run.attempts > 1 && (end(run) - start(run)) / run.attempts < CRASHING_MS;
const serviceOf = (run) => run.service?.name || "a service";

const runsNow = (run, at, it) => at === 0 && !run.ended && it.status === "Processing" && it.service?.id === run.service?.id;
const ending = (run, at, it) => (run.ended ? ENDED[run.ended] ?? run.ended : runsNow(run, at, it) ? (it.health === "restarting" ? "restarting" : "runs now") : "end not reported");

function strip(runs, it, span, width) {
  // Before it was created, there is nothing to show.
  const until = Date.now(), since = Math.max(until - SPANS[span][1], startOf(Date.parse(it.created_at), until));
  const picture = { since: new Date(since).toISOString(), until: new Date(until).toISOString() };
  const shown = runs.filter((run) => end(run) >= since);
  const lanes = [...new Set(shown.map(serviceOf))].slice(0, LANES).toSorted((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const left = width < 620 ? 88 : 124, at = scale(picture, width, left, 14), y = (row) => TOP + row * (ROW + BETWEEN);
  const bottom = y(Math.max(lanes.length, 1)) - BETWEEN / 2;
  const bars = shown.map((run, index) => {
    const row = lanes.indexOf(serviceOf(run));
    if (row < 0) return null;
    const x0 = at.x(start(run)), x1 = Math.max(at.x(end(run)), x0 + 2);
    const hasEndedBadly = run.ended === "lost" || run.ended === "failed";
    const tone = keepsFailing(run) || (runsNow(run, index, it) && it.health === "restarting") ? "restart" : hasEndedBadly ? "fail" : "run";
    const said = `${serviceOf(run)}, run ${run.generation}.${run.acquisitions}: ${clock(run.started_at)} to ${run.ended_at ? clock(run.ended_at) : "now"}, ${ending(run, index, it)}${run.attempts > 1 ? `, ${counted(run.attempts, "attempt")}` : ""}${run.gap_ms !== null ? `, after a gap of ${gapText(run.gap_ms, isBound(run))}` : ""}`;
    const text = ending(run, index, it);
    return s("g", { key: String(run.epoch) }, s("title", {}, said), s("rect", { class: `run ${tone}`, x: x0.toFixed(1), y: y(row), width: (x1 - x0).toFixed(1), height: ROW, rx: 3 }),
      hasEndedBadly ? s("path", { class: "glyph", "data-tone": "bad", d: "M1 1L9 9M9 1L1 9", transform: `translate(${Math.min(x1 + 3, at.right - 10).toFixed(1)} ${y(row) + 5})` }) : null,
      x1 - x0 > text.length * 7 + 16 ? s("text", { class: "on-run", x: (x1 - 8).toFixed(1), y: y(row) + 14, "text-anchor": "end" }, text) : null);
  });
  const links = shown.slice(0, -1).map((run, index) => {
    const before = shown[index + 1], from = lanes.indexOf(serviceOf(before)), to = lanes.indexOf(serviceOf(run));
    if (from < 0 || to < 0 || run.gap_ms === null) return null;
    const x0 = at.x(end(before)), x1 = at.x(start(run));
    return s("path", { class: before.ended === "lost" ? "arc lost" : "arc", d: `M${x0.toFixed(1)} ${y(from) + ROW / 2}C${(x0 + 10).toFixed(1)} ${y(from) + ROW / 2},${(x1 - 8).toFixed(1)} ${y(to) + ROW / 2},${x1.toFixed(1)} ${y(to) + ROW / 2}` });
  });
  return s("svg", { class: "chart strip", viewBox: `0 0 ${width} ${bottom + FOOT}`, role: "img", "aria-label": `Runs ${since > until - SPANS[span][1] ? "since it was created" : `in the last ${SPANS[span][0]}`}: ${shown.map((run, index) => `${serviceOf(run)} ${ending(run, index, it)}`).join("; ") || "none"}` },
    // Stripes: the code runs only for a part of this time.
    s("defs", {}, s("pattern", { id: "restarts", width: 12, height: 8, patternUnits: "userSpaceOnUse" }, s("rect", { class: "ground", width: 12, height: 8 }), s("rect", { width: 4, height: 8, fill: "var(--restart)", opacity: 0.3 }))),
    ticks(at, width / 130).map(({ at: moment, ago }) => s("g", { key: ago }, s("line", { class: "grid", x1: at.x(moment).toFixed(1), x2: at.x(moment).toFixed(1), y1: TOP - 4, y2: bottom }), s("text", { x: at.x(moment).toFixed(1), y: bottom + 15, "text-anchor": moment === at.until ? "end" : "middle" }, ago))),
    lanes.map((name, row) => s("text", { class: "lane-name", key: name, x: 14, y: y(row) + 14 }, name.length > 16 ? `${name.slice(0, 15)}…` : name)), bars.filter(Boolean), links.filter(Boolean),
    lanes.length === 0 ? s("text", { x: left, y: TOP + 14 }, "It did not run in this time.") : null);
}

/** The shortest span that shows how the newest run began. */
function fitting(runs) {
  const since = Date.now() - (runs[0] ? start(runs[0]) : Date.now());
  return Object.keys(SPANS).find((it) => since < SPANS[it][1] * 0.9) ?? "24h";
}

export function stripPanel(runs, it, params, context) {
  const span = Object.hasOwn(SPANS, params.get("span") ?? "") ? params.get("span") : fitting(runs);
  const button = ([name, [text]]) => h("button", { type: "button", class: "quiet", key: name, "aria-pressed": String(span === name), onclick: () => context.set({ span: name }) }, text);
  return h("section", { class: "panel lanes", key: "strip" }, h("header", {}, h("h2", {}, "Runs"), h("span", { class: "seg end", role: "group", "aria-label": "Span of time" }, Object.entries(SPANS).map(button))),
    h("div", { class: "canvas" }, strip(runs, it, span, room())));
}

/** Newest first: a line for each run and for the time between two. */
export function runList(runs, it) {
  const line = (run, at) => {
    const lasted = run.ended_at ? duration(Math.max(Date.parse(run.ended_at) - start(run), 0)) : null;
    return h("li", { key: String(run.epoch), "data-now": runsNow(run, at, it) ? (it.health === "restarting" ? "restarting" : "yes") : undefined, "data-lost": run.ended === "lost" ? "yes" : undefined },
      h("p", {}, h("strong", {}, serviceOf(run)), " ", h("span", { class: "how" }, ending(run, at, it))),
      h("p", { class: "fine", title: exact(run.started_at) }, "started ", time(run.started_at), lasted ? `, ran for ${lasted}` : "", run.attempts > 1 ? `, ${number(run.attempts)} attempts` : "",
        run.gap_ms !== null ? [", after a gap of ", gap(run.gap_ms, isBound(run))] : "", ` · epoch ${run.generation}.${run.acquisitions}`, may("logs:read") ? [" · ", h("a", { href: `#/${observerPath(it)}?run=${run.epoch_string}`, "aria-label": `Log of run ${run.epoch_string}` }, "Log")] : ""));
  };
  const waits = { Created: it.waiting ? " for a slot" : " in the queue of its pool", Scheduled: " for its start" };
  return h("ol", { class: "timeline" },
    waits[it.status] ? h("li", { key: "waits" }, h("p", {}, h("strong", {}, "Waits"), h("span", { class: "how" }, waits[it.status]))) : null,
    runs.slice(0, RUNS).map(line),
    runs.length > RUNS ? h("li", { key: "older" }, h("p", { class: "fine" }, counted(runs.length - RUNS, "older run"))) : null,
    h("li", { key: "created" }, h("p", {}, h("strong", {}, "Created")), h("p", { class: "fine" }, time(it.created_at), `, kind ${it.kind} in pool ${it.pool}`)));
}
