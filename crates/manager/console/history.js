// The last 24 hours in small, for tiles of the overview: how many observers ran, and how many ran nowhere.
import { get } from "./api.js";
import { shortClock } from "./clock.js";
import { h, patch, s } from "./dom.js";
import { SHORTEST_MS, firstIn, spread } from "./lanes-scale.js";
import { may, readable } from "./session.js";
import { number } from "./show.js";

const COLUMNS = 96;
/** The shortest part of the day that fills a line: a new deployment has fewer columns. */
const FEWEST = 8;
const FRESH_MS = 60000;
const HEIGHT = 24;
let held = null, askedAt = -Infinity;
let pointed = null;
addEventListener("hashchange", () => { pointed = null; });

const lanesOf = (picture) => (picture.others ? [...picture.lanes, picture.others] : picture.lanes);

/** The picture since the first service of a new deployment: in the columns of a day, its first minutes are a mean with the time before. Nothing for an older one. */
async function beginning(picture) {
  const until = Date.parse(picture.until), first = firstIn(picture, []);
  if (first === undefined || first < until - FEWEST * (until - Date.parse(picture.since)) / COLUMNS) return null;
  const since = new Date(Math.min(first, until - SHORTEST_MS)).toISOString();
  return { first, picture: await get("/v1/timeline", { since, columns: COLUMNS }) };
}

/** The first column of a new deployment begins with its first service. */
function begun(column, { first, picture }) {
  const since = Math.max(column.since, first), [it] = spread(lanesOf(picture), { since, until: Math.min(column.until, Date.parse(picture.until)) }, 1);
  return { ...column, since, running: it?.held_max ?? column.running };
}

/** The columns of the picture from the first in which a service ran; nothing if none ran. */
function series(picture, start) {
  const at = { since: Date.parse(picture.since), until: Date.parse(picture.until) }, size = (at.until - at.since) / COLUMNS;
  const told = spread(lanesOf(picture), at, COLUMNS);
  const all = Array.from({ length: COLUMNS }, (_, index) => ({ running: told[index]?.held_max ?? 0, nowhere: told[index]?.gap ?? 0, since: at.since + index * size, until: at.since + (index + 1) * size }));
  const first = all.findIndex((it) => it.running > 0 || it.nowhere > 0);
  if (first >= 0 && start !== null) all[first] = begun(all[first], start);
  return first < 0 ? null : all.map((it, index) => ({ ...it, isBefore: index < first })).slice(Math.min(first, COLUMNS - FEWEST));
}

/** Read at most once a minute; nothing if the session may not read it. */
export async function history() {
  if (!may("events:read")) return null;
  const now = performance.now();
  if (now - askedAt < FRESH_MS) return held;
  askedAt = now;
  try {
    const picture = await readable("events:read", () => get("/v1/timeline", { since: "24h", columns: COLUMNS }), null);
    held = picture && series(picture, await beginning(picture));
  } catch (error) {
    askedAt = -Infinity;
    throw error;
  }
  return held;
}

const span = (it) => `${shortClock(it.since)} to ${shortClock(it.until)}`;

const stored = (all) => all.filter((it) => !it.isBefore);

/** What the lines show: the words for a column, and the alternative to the drawing. */
const LINES = {
  running: {
    said: (it) => [`about ${number(it.running)} ran`, span(it)],
    alternative: (every) => {
      const all = stored(every);
      const low = all.reduce((a, b) => (b.running < a.running ? b : a)), high = all.reduce((a, b) => (b.running > a.running ? b : a));
      return `Since ${shortClock(all[0].since)}, between about ${number(low.running)} (${span(low)}) and about ${number(high.running)} observers ran (${span(high)})`;
    },
  },
  nowhere: {
    said: (it) => [it.nowhere ? `${number(it.nowhere)} ran nowhere` : "no gap", `${it.nowhere ? "at once, of one service, " : ""}${span(it)}`],
    alternative: (every) => {
      const all = stored(every);
      const worst = all.reduce((a, b) => (b.nowhere > a.nowhere ? b : a));
      return worst.nowhere ? `Since ${shortClock(all[0].since)}, up to ${number(worst.nowhere)} observers of one service ran nowhere at once (${span(worst)})` : `Since ${shortClock(all[0].since)}, no observer had a gap between two runs`;
    },
  },
};

function running(all) {
  const top = Math.max(1, ...all.map((it) => it.running));
  const level = (it) => (HEIGHT - 2 - it.running / top * (HEIGHT - 5)).toFixed(1);
  const line = all.map((it, index) => `${index} ${level(it)}L${index + 1} ${level(it)}`).join("L");
  return [s("path", { class: "area", d: `M0 ${HEIGHT}L${line}L${all.length} ${HEIGHT}Z` }), s("path", { class: "line", d: `M${line}` })];
}

function nowhere(all) {
  const top = Math.max(1, ...all.map((it) => it.nowhere));
  const bars = all.map((it, index) => ({ index, height: it.nowhere / top * (HEIGHT - 3) })).filter((it) => it.height > 0);
  // Lines of one width, however few columns there are: a wide block would look like an alarm.
  return [s("path", { class: "ground", d: `M0 ${HEIGHT - 1}H${all.length}` }), ...bars.map(({ index, height }) => s("path", { class: "stem", d: `M${index + 0.5} ${HEIGHT - 1}V${(HEIGHT - 1 - Math.max(height, 3)).toFixed(1)}` }))];
}

const holderOf = (name) => `history-${name}`;

function card(name) {
  if (pointed?.name !== name) return [];
  const [first, second] = pointed.column.isBefore ? ["before the first run", span(pointed.column)] : LINES[name].said(pointed.column);
  return [h("div", { class: "lane-card" }, h("strong", {}, first), h("span", {}, second))];
}

/** Shows the card of this column, and closes the other one. */
function point(name, column) {
  pointed = column && { name, column };
  for (const it of Object.keys(LINES)) {
    const holder = document.getElementById(holderOf(it));
    if (holder) patch(holder, card(it));
  }
}

/** The line of one name; `all`: see `history`. */
export function spark(name, all) {
  const look = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    point(name, all[Math.min(Math.max(Math.floor((event.clientX - box.left) / box.width * all.length), 0), all.length - 1)]);
  };
  return s("svg", { class: "spark", viewBox: `0 0 ${all.length} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": LINES[name].alternative(all), onpointermove: look, onpointerleave: () => point(name, null) },
    name === "running" ? running(all) : nowhere(all));
}

/** Where the card of a line appears. */
export const sparkCard = (name) => h("div", { id: holderOf(name), key: "card" }, card(name));
