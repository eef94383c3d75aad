// The failover timeline: a lane for each service with the observers that it held, gaps, overlaps, events and moves.
import { clock, exact, shortClock } from "./clock.js";
import { h, patch, s } from "./dom.js";
import { AT_MOST, isBound } from "./gap.js";
import { CAUSES, inlineGlyph, markOf, outlined } from "./glyphs.js";
import { gaps, incidentHref, incidentLine, incidentTitle, targets, untilOf } from "./incident-text.js";
import { dragBand, dragging } from "./lanes-drag.js";
import { byOf, fullOf, groupNames, groupedRows, groupings, toggled } from "./lanes-groups.js";
import { SPANS, chosen, endOf, gapParts, isBadRange, lifetimes, most, rangeOf, scale, segmentAt, summed, ticks } from "./lanes-scale.js";
import { counted, number, table } from "./show.js";
import { meaningOf } from "./terms.js";

const ROW = 34, BETWEEN = 5, TOP = 12, FOOT = 24;
const NARROW = 620;
const NEAR = 7;
/** A column of this time shows that there was a gap, not how long it was. */
const COARSE_MS = 20000;
/** The radius of the end of an arc. */
const END = 2.6;
/** More incidents than this within so many pixels are drawn without arcs. */
const CROWD = 3, CROWD_PX = 40;
/** Events that do not explain changes of a lane. */
const DULL = new Set(["work_queue_created", "limit_set", "limit_deleted", "rate_set", "rate_deleted"]);
let card = null;
let unfolded = false;
// No pointer leaves the chart of a page that is left.
addEventListener("hashchange", () => { card = null; });

/** The width of the drawing, in pixels. */
export function room() {
  const main = document.getElementById("main"), style = getComputedStyle(main);
  return Math.max(280, Math.round(main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)) - 2);
}

/** Of how many columns a picture is asked for: two pixels each. */
export const columns = () => Math.round(room() / 2);

const y = (row) => TOP + row * (ROW + BETWEEN);

/** Adjoining segments, as one outline for each sequence. */
function outlines(segments) {
  const all = [];
  for (const it of segments) {
    if (it.held_max === 0) continue;
    const last = all.at(-1);
    if (last && Date.parse(last.at(-1).until) >= Date.parse(it.since)) last.push(it);
    else all.push([it]);
  }
  return all;
}

/** A line for the time in which the service lived: without it, one that holds nothing would look like one that is gone. */
const lifeLines = (lane, marks, row, at) => lifetimes(lane, marks, at).map(([from, until]) =>
  s("line", { class: "life", x1: at.x(from).toFixed(1), x2: at.x(until).toFixed(1), y1: y(row) + ROW - 0.8, y2: y(row) + ROW - 0.8 }));

function heldPaths(segments, row, full, { x }) {
  const base = y(row) + ROW;
  const level = (value) => (base - (ROW - 3) * Math.min(value / Math.max(full, 1), 1)).toFixed(1);
  const line = (run, name) => run.map((it) => `${x(Date.parse(it.since)).toFixed(1)} ${level(it[name])}L${x(Date.parse(it.until)).toFixed(1)} ${level(it[name])}`).join("L");
  return outlines(segments).flatMap((run) => {
    const from = x(Date.parse(run[0].since)).toFixed(1), to = x(Date.parse(run.at(-1).until)).toFixed(1);
    const area = (name) => `M${from} ${base}L${line(run, name)}L${to} ${base}Z`;
    return [s("path", { class: "most", d: area("held_max") }), s("path", { class: "least", d: area("held_min") }), s("path", { class: "held", d: `M${line(run, "held_max")}` })];
  });
}

/** A gap shorter than this looks like a moment, whatever time a column stands for. */
const MOMENT_MS = 250;

/** Whether all gaps of a lane in a segment were that short, as those of handovers are: the incidents say how long. */
function momentary(incidents, columnMs) {
  const all = incidents.map((it) => ({ at: Date.parse(it.since), end: untilOf(it), ms: it.gap_ms_max }));
  return (segment) => {
    const near = all.filter((it) => it.at < Date.parse(segment.until) + columnMs && it.end > Date.parse(segment.since) - columnMs);
    return near.length > 0 && near.every((it) => it.ms < MOMENT_MS);
  };
}

/** A gap of a few of many observers is to be seen, too. */
const GAP_MIN = 5;

function faults(segments, row, { x, isCoarse }, isMomentary) {
  const parts = gapParts(segments), height = (it) => Math.max(ROW * parts.get(it), GAP_MIN);
  return segments.filter((it) => it.gap > 0 || it.overlap > 0).flatMap((it) => {
    const from = x(Date.parse(it.since)), whole = x(Date.parse(it.until)) - from, isBrief = isCoarse || isMomentary(it), width = isBrief ? Math.max(whole - 1, 1.2) : Math.max(whole, 2.5);
    const part = (name, height = ROW) => s("rect", { class: name, x: from.toFixed(1), y: (y(row) + ROW - height).toFixed(1), width: width.toFixed(1), height: height.toFixed(1), rx: 1 });
    // A column of a minute has a gap if there was one for a moment: it must not look like a minute of it.
    if (isBrief) return [it.gap > 0 ? part("gap brief", height(it)) : null, it.overlap > 0 ? part("overlap") : null];
    return [it.gap > 0 ? part("gap", height(it)) : null, it.overlap > 0 ? part("overlap") : null];
  }).filter(Boolean);
}

/** Where a mark stands: that of a lost service before its gap, which begins with its last sign of life, and the others at their time. */
function placeOf(it, x) {
  if (it.type !== "service_lost") return x(Date.parse(it.at)) + 1;
  // The gap in the lane begins with the second.
  return x(Math.floor(Date.parse(it.since ?? it.at) / 1000) * 1000) - NEAR;
}

/** Of marks that would cover each other, only the worst is drawn; none leaves the lanes. */
function marksOf(marks, { x, left, right }, level) {
  const drawn = [];
  for (const it of marks.toSorted((a, b) => markOf(a.type).rank - markOf(b.type).rank)) {
    const at = Math.min(Math.max(placeOf(it, x), left + NEAR), right - NEAR);
    if (drawn.every((one) => Math.abs(one.at - at) >= 2 * NEAR)) drawn.push({ at, type: it.type });
  }
  return drawn.map((it) => outlined(it.type, it.at, level));
}

/** A name that fits beside the lanes. */
const short = (name, width, less = 0) => {
  const many = (width < NARROW ? 11 : 16) - less;
  return name.length > many ? `${name.slice(0, many - 1)}…` : name;
};

/** A lane of a group is indented by so many pixels. */
const INDENT = 12;

function laneLabel(lane, row, width, { capacity, isGrouped, marks, past }) {
  const name = short(lane.service, width, isGrouped ? 2 : 0), x = isGrouped ? 14 + INDENT : 14;
  // It may have lived then, and ended since.
  const text = past && (lane.lives || lane.held > 0) ? `${number(lane.held)} at ${shortClock(past)}` : !lane.lives ? endOf(lane, marks) : `${number(lane.held)}${capacity ? ` / ${number(capacity)}` : ""}`;
  return s("a", { href: `#/services/${encodeURIComponent(lane.service)}` },
    s("text", { class: "lane-name", x, y: y(row) + 14 }, name), s("text", { x, y: y(row) + 28 }, text));
}

/** The heading of a group: a link that collapses or opens it. */
function groupLabel(it, row, width, { params, context }) {
  const change = toggled(params, it.group), search = new URLSearchParams(params);
  for (const [name, value] of Object.entries(change)) value ? search.set(name, value) : search.delete(name);
  const sum = `${number(it.held)}${it.capacity ? ` / ${number(it.capacity)}` : ""}`;
  const count = it.isClosed || it.below === it.services ? counted(it.services, "service") : `${number(it.below)} of ${counted(it.services, "service")}`;
  return s("a", { class: "fold", href: `#/?${search}`, "aria-expanded": String(!it.isClosed), "aria-description": `${it.service}: ${count}`, onclick: (event) => { event.preventDefault(); context.set(change); } },
    s("rect", { class: "hit", x: 4, y: y(row), width: (width < NARROW ? 88 : 124) - 10, height: ROW, rx: 4 }),
    s("path", { class: "turn", d: it.isClosed ? `M15 ${y(row) + 6}L20 ${y(row) + 10}L15 ${y(row) + 14}Z` : `M13 ${y(row) + 7}L21 ${y(row) + 7}L17 ${y(row) + 13}Z` }),
    s("text", { class: "lane-name", x: 14 + INDENT, y: y(row) + 14 }, `${short(it.service, width, it.isClosed ? 6 : 2)}${it.isClosed ? ` (${number(it.services)})` : ""}`), s("text", { x: 14 + INDENT, y: y(row) + 28 }, sum));
}

function arcs(it, rows, { x, right }) {
  const from = rows.get(it.from);
  const x0 = x(Date.parse(it.since)), y0 = y(from) + ROW / 2;
  return Object.keys(it.to).filter((name) => rows.has(name) && rows.get(name) !== from).map((name) => {
    const to = rows.get(name), far = Math.abs(to - from);
    // Half of them had started by then; some may have waited much longer for a slot.
    const started = Date.parse(it.since) + it.gap_ms_median;
    const y1 = y(to) + (to < from ? ROW - 4 : 4), x1 = Math.min(Math.max(x(started), x0), right - END);
    // Both ends stand at their times: a curve that leads to a later place would look like a later start.
    const bow = x1 + 12 + far * 4;
    return s("g", {}, s("path", { class: "arc", d: `M${x0.toFixed(1)} ${y0}C${bow.toFixed(1)} ${y0},${bow.toFixed(1)} ${y1},${x1.toFixed(1)} ${y1}` }), s("circle", { class: "end", cx: x1.toFixed(1), cy: y1, r: END }));
  });
}

const incidentCard = (it) => [h("strong", {}, incidentTitle(it)), h("span", {}, gaps(it)), isBound(it) ? h("span", { class: "fine" }, `≤ ${AT_MOST}`) : null, h("span", {}, `to ${targets(it, true)}`), h("span", {}, exact(it.since))].filter(Boolean);

function show(next) {
  card = next;
  const holder = document.getElementById("lane-card-holder");
  if (holder) patch(holder, cardElement());
}

function cardElement() {
  if (!card) return [];
  const style = { top: `${card.top}px`, ...(card.left > card.width * 0.6 ? { right: `${Math.max(card.width - card.left + 12, 0)}px` } : { left: `${Math.min(card.left + 14, card.width - 200)}px` }) };
  return [h("div", { class: "lane-card", style }, card.lines)];
}

/** Incidents with several others nearby: their arcs would cover each other. */
function crowdedOf(incidents, { x }) {
  const places = incidents.map((it) => x(Date.parse(it.since)));
  return new Set(incidents.filter((_, index) => places.filter((place) => Math.abs(place - places[index]) < CROWD_PX).length > CROWD));
}

function incidentLink(it, rows, at, width, isCrowded) {
  const x0 = at.x(Date.parse(it.since)), row = rows.get(it.from);
  return s("a", { href: incidentHref(it), key: `${it.from}-${it.since}`, "aria-label": incidentLine(it),
    onfocus: () => show({ left: x0, top: y(row) + ROW + 4, width, lines: incidentCard(it) }), onblur: () => show(null) },
    isCrowded ? null : arcs(it, rows, at), s("rect", { class: "hit", x: (x0 - 16).toFixed(1), y: y(row) - 2, width: 34, height: ROW + 4, rx: 4 }));
}

/** Whether a row shows this service: its own lane, or the heading of its group, if it has no row. */
const stands = (row, service) => (row.names ? row.names.has(service) : row.service === service);

/** The card for the pointer: the lane at that moment, with nearby events. */
function look(event, picture, shown, at, width) {
  const box = event.currentTarget.getBoundingClientRect(), factor = width / box.width;
  const px = (event.clientX - box.left) * factor, row = Math.floor(((event.clientY - box.top) * factor - TOP) / (ROW + BETWEEN));
  const lane = shown[row];
  if (!lane || px < at.left || px > at.right) return show(null);
  const moment = at.at(px), near = (other) => Math.abs(at.x(Date.parse(other)) - px) < NEAR * 1.6;
  const marks = picture.marks.filter((it) => (stands(lane, it.service) || it.service === null) && (near(it.at) || Math.abs(placeOf(it, at.x) - px) < NEAR * 1.6)).slice(0, 3);
  const found = picture.incidents.find((it) => stands(lane, it.from) && near(it.since));
  const segment = segmentAt(lane, moment);
  const held = !segment ? "held nothing" : segment.held_min === segment.held_max ? `held ${number(segment.held_max)}` : `held ${number(segment.held_min)} to ${number(segment.held_max)}`;
  // A heading knows the largest gap of its lanes, not their sum.
  const least = lane.group && lane.services > 1 ? "at least " : "";
  show({ left: px / factor, top: (y(row) + ROW + 6) / factor, width: box.width, lines: [
    h("strong", {}, `${lane.service} · ${clock(moment)}`), h("span", {}, held),
    segment?.gap ? h("span", { class: "bad" }, `gap: ${least}${counted(segment.gap, "observer")} ran nowhere`) : null,
    segment?.overlap ? h("span", { class: "warn" }, `overlap: ${least}${counted(segment.overlap, "observer")} ran twice`) : null,
    ...marks.map((it) => h("span", {}, `${markOf(it.type).word} ${clock(it.at)}${it.since ? `, last sign of life ${clock(it.since)}` : ""}${it.text ? `: ${it.text}` : ""}`)),
    ...(found ? incidentCard(found).slice(0, -1) : [])].filter(Boolean) });
}

const pattern = (id, size, color, opacity) => s("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("line", { x1: 0, y1: 0, x2: 0, y2: size, stroke: `var(${color})`, "stroke-width": size / 2.4, opacity }));

/** The axis of a picture that ends longer ago than this, in ms, has the time of the clock. */
const LIVE_MS = 10000;
const isLive = (at) => Math.abs(Date.now() - at.until) < LIVE_MS;
/** Half the width of a time of the axis. */
const HALF = 28;
/** The width of the words at the start of the axis. */
const START = 76;

function axis(at, bottom, width, isFromStart) {
  const live = isLive(at);
  const start = isFromStart ? s("text", { key: "start", x: at.left, y: bottom + 15 }, "since start") : null;
  return [start, ...ticks(at, width / 130, !live).map(({ at: moment, ago, isFine }) => {
    const place = at.x(moment).toFixed(1);
    const text = start && at.x(moment) < at.left + START + 24 ? "" : live ? ago : isFine ? clock(moment) : shortClock(moment);
    const word = (its) => ({ x: place, y: bottom + 15, "text-anchor": at.right - at.x(moment) < HALF ? "end" : "middle", ...its });
    // While the manager does not answer, the picture grows old.
    const words = text === "now" ? [s("text", word({ class: "is-fresh" }), text), s("text", word({ class: "is-stale" }), clock(moment))] : [s("text", word({}), text)];
    return s("g", { key: `tick-${ago}` }, s("line", { class: "grid", x1: place, x2: place, y1: TOP - 4, y2: bottom }), ...words);
  })];
}

/** The rows of the chart, in groups if the user has chosen some. */
function rowsOf(picture, at, groups) {
  const { shown, folded } = chosen(picture, unfolded);
  const others = picture.others ? [{ segments: picture.others.segments }] : [];
  const more = (segments, many) => ({ service: `${number(many)} more`, lives: true, segments: summed(segments, at), sum: true });
  if (groups?.by) return [...groupedRows(picture, shown, { ...groups, at }), ...(picture.others ? [more(others, picture.others.lanes)] : [])];
  const many = (folded?.length ?? 0) + (picture.others?.lanes ?? 0);
  return many ? [...shown, more([...(folded ?? []), ...others], many)] : shown;
}

/** Whether the service was lost soon after it became suspect: the mark of the loss, at its last sign of life, says more. */
const precedesLoss = (it, marks) => it.type === "service_suspect" && marks.some((one) => one.type === "service_lost" && one.service === it.service && one.since && Date.parse(one.since) <= Date.parse(it.at) && Date.parse(it.at) <= Date.parse(one.at));

function chart(all, capacities, width, groups, choose) {
  const picture = { ...all, marks: all.marks.filter((it) => !DULL.has(it.type) && !precedesLoss(it, all.marks)) };
  const left = width < NARROW ? 88 : 124, columnMs = (Date.parse(picture.until) - Date.parse(picture.since)) / picture.columns;
  const at = { ...scale(picture, width, left, 14), isCoarse: columnMs > COARSE_MS };
  const drawn = rowsOf(picture, at, groups);
  const rows = new Map(drawn.flatMap((it, row) => (it.sum ? [] : [...(it.names ?? [it.service])].map((name) => [name, row]))));
  const top = Math.max(1, ...drawn.filter((it) => !it.group && !it.sum).map((it) => most(it, "held_max")));
  const full = (it) => (it.group ? fullOf(it) : it.sum ? most(it, "held_max") * 1.2 : Math.max(capacities.get(it.service) ?? top * 1.2, most(it, "held_max")));
  const bottom = y(drawn.length) - BETWEEN, known = picture.complete_since ? Date.parse(picture.complete_since) : null;
  const shown = picture.incidents.filter((it) => rows.has(it.from)), crowded = crowdedOf(shown, at);
  const lane = (it, row) => s("g", { key: it.group ? `group-${it.group}` : it.service, class: it.group ? "group" : undefined },
    it.group ? groupLabel(it, row, width, groups) : it.sum ? s("g", {}, s("text", { class: "lane-name", x: 14, y: y(row) + 14 }, it.service), s("text", { x: 14, y: y(row) + 28 }, "services")) : laneLabel(it, row, width, { capacity: capacities.get(it.service), isGrouped: Boolean(groups?.by), marks: all.marks, past: isLive(at) ? null : at.until }),
    s("rect", { class: "bed", x: left, y: y(row), width: width - left - 14, height: ROW, rx: 4 }),
    it.group || it.sum ? null : lifeLines(it, all.marks, row, at), heldPaths(it.segments, row, full(it), at), faults(it.segments, row, at, momentary(picture.incidents.filter((one) => it.sum || stands(it, one.from)), columnMs)), marksOf(picture.marks.filter((one) => one.service !== null && stands(it, one.service)), at, y(row) + ROW / 2));
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${bottom + FOOT}`, role: "group", "aria-label": "Failover timeline: a lane for each service. The table below has the same data.",
    ...dragging({ at, width, choose, move: (event) => look(event, picture, drawn, at, width), leave: () => show(null) }) },
    s("defs", {}, pattern("hatch", 6, "--restart", 1), pattern("unknown", 8, "--line", 1)),
    axis(at, bottom, width, picture.isFromStart), drawn.map(lane),
    known && known > at.since ? s("rect", { class: "unknown", x: left, y: TOP, width: (at.x(known) - left).toFixed(1), height: bottom - TOP }) : null,
    shown.map((it) => incidentLink(it, rows, at, width, crowded.has(it))),
    marksOf(picture.marks.filter((it) => it.service === null), at, 6), choose ? dragBand(TOP - 4, bottom) : null);
}

const placed = (it) => it.since ?? it.at;
const asTable = ({ lanes, marks }, groups) => {
  const names = groups?.by ? groupNames(lanes, groups.services, groups.by) : null;
  return h("details", { class: "aside", key: "table" }, h("summary", {}, "The timeline as a table"), table("Failover timeline", [
  { title: "Service", cell: (it) => h("a", { href: `#/services/${encodeURIComponent(it.service)}` }, it.service) },
  ...(names ? [{ title: groups.by === "pool" ? "Pool" : `Label ${groups.by.slice("label:".length)}`, cell: (it) => names.get(it.service) ?? "–" }] : []),
  { title: "State", cell: (it) => (it.lives ? "alive" : endOf(it, marks)) },
  { title: "Held at the end", class: "n", cell: (it) => number(it.held) },
  { title: "Most held", class: "n", cell: (it) => number(most(it, "held_max")) },
  { title: "Most nowhere at once", class: "n", cell: (it) => number(most(it, "gap")) },
  { title: "Most running twice", class: "n", cell: (it) => number(most(it, "overlap")) },
  { title: "Events", class: "text", cell: (it) => marks.filter((one) => one.service === it.service).toSorted((a, b) => placed(a).localeCompare(placed(b))).map((one) => one.since ? `${markOf(one.type).word}, last sign of life ${clock(one.since)}` : `${markOf(one.type).word} ${clock(one.at)}`).join(", ") },
], lanes.map((it) => ({ ...it, name: it.service }))));
};

const PALE = "observers of the service ran nowhere; the height is their part of those that it held; pale: the gap is too short to draw to scale";
const LEGEND = [["held", "good", "M0 8H10", "the number of observers that the service holds; the full height is its capacity now"], ["gap", "bad", "M5 0V10", PALE]];
const hinted = (text, meaning) => (meaning ? h("span", { class: "hinted", title: meaning }, text) : text);
const entry = (word, tone, d, meaning) => h("li", { key: word }, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("path", { class: "glyph", "data-tone": tone, d })), hinted(word, meaning));
const legend = (picture, canZoom) => h("ul", { class: "lane-legend", key: "legend" },
  LEGEND.map((it) => entry(...it)),
  entry("moved", "move", "M0 8C5 8 5 2 9 2", "observers started on another service: from the lane of the former one to the lane of the next"),
  picture.lanes.some((it) => most(it, "overlap") > 0) ? entry("overlap", "warn", "M0 10L10 0M0 5L5 0M5 10L10 5", meaningOf("overlap")) : null,
  [...new Set(picture.marks.map((it) => it.type))].filter((it) => !DULL.has(it)).sort((a, b) => markOf(a).rank - markOf(b).rank).slice(0, 8).map((type) => h("li", { key: type }, inlineGlyph(type), hinted(markOf(type).word, meaningOf(type)))),
  canZoom ? h("li", { class: "fine roomy", key: "drag" }, "drag to zoom in") : null);

function spanButtons(params, context, ask) {
  const now = rangeOf(params) ? "range" : Object.hasOwn(SPANS, params.get("span") ?? "") ? params.get("span") : "15m";
  const button = (name, text, run) => h("button", { type: "button", class: "quiet", key: name, "aria-pressed": String(now === name), onclick: run }, text);
  return h("span", { class: "seg end", role: "group", "aria-label": "Span of time" },
    Object.entries(SPANS).map(([name, [text]]) => button(name, text, () => context.set({ span: name, since: "", until: "" }))), button("range", "Range…", ask),
    now === "range" ? button("out", "Zoom out", () => context.set({ since: "", until: "" })) : null);
}

function groupChoice({ services, by }, context) {
  const onchange = (event) => context.set({ group: event.target.value, collapsed: "" });
  return h("label", { class: "group-by", key: "group-by" }, "Group by", h("select", { name: "group", onchange }, groupings(services).map(([value, text]) => h("option", { value, selected: value === by }, text))));
}

/** How the address groups the lanes of these services; nothing if the session may not read services, or if there is nothing to group. */
export const groupsOf = (picture, services, params, context) => (picture.lanes.length > 1 && services.length ? { services, params, context, by: byOf(params, services) } : null);

/** The panel. `capacities`: slots by the name of the service. Without `spans`, the span is fixed. `groups`: see `groupsOf`. */
export function lanesPanel(picture, capacities, { title = "Failover timeline", spans, context, groups = null }) {
  const width = room();
  const many = chosen(picture, false).folded;
  return h("section", { class: "panel lanes across", key: "lanes" },
    h("header", {}, h("h2", {}, title), legend(picture, Boolean(spans)), groups ? groupChoice(groups, context) : null, spans ? spanButtons(spans.params, context, spans.ask) : null),
    spans && isBadRange(spans.params) ? h("p", { class: "fine", key: "bad-range" }, "The times in the address are no span within the last 24 hours, so the timeline shows another one.") : null,
    picture.lanes.length === 0 ? h("p", { class: "fine" }, "No service ran in this time.") :
      h("div", { class: "canvas", key: "canvas" }, chart(picture, capacities, width, groups, spans ? (span) => { card = null; context.set({ ...span, span: "" }, false); } : null), h("div", { id: "lane-card-holder", key: "holder" }, cardElement())),
    many ? h("button", { type: "button", class: "quiet lane-more", key: "more", onclick: () => { unfolded = !unfolded; context.redraw(); } }, unfolded ? "Show fewer lanes" : `Show all ${number(picture.lanes.length)} lanes`) : null,
    asTable(picture, groups));
}

export const causeGlyph = (it) => inlineGlyph(CAUSES[it.cause] ?? "rebalanced");
