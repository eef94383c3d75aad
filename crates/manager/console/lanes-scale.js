// The numbers of the failover timeline: the visible lanes, the positions of times, and the observers that a lane held at a time.

export const SPANS = { "15m": ["15 min", 900000], "1h": ["1 h", 3600000], "24h": ["24 h", 86400000] };
const LANES = 12;
const DAY_MS = 86400000;
/** The earliest time that a request for the timeline may name, with a margin for its transfer. */
export const earliest = () => Date.now() - DAY_MS + 10000;
const FOLDED_COLUMNS = 160;
const STEPS_MS = [5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600].map((it) => it * 1000);

/** The span from `since` to `until` in the address; nothing if the timeline does not cover it, as in an old bookmark, or if it is no span. */
export function rangeOf(params) {
  const since = params.get("since"), until = params.get("until"), [from, to] = [since, until].map((it) => Date.parse(it ?? ""));
  return from > Date.now() - DAY_MS && from < to ? { since, until } : null;
}

/** Whether the address has times that are not shown. */
export const isBadRange = (params) => Boolean(params.get("since") || params.get("until")) && rangeOf(params) === null;

/** The parameters of the request for the timeline, from the address. */
export function spanOf(params) {
  const range = rangeOf(params);
  if (range) return range;
  const span = params.get("span");
  return { since: Object.hasOwn(SPANS, span ?? "") ? span : "15m" };
}

/** Less than this, in ms, is too short a time for a picture. */
export const SHORTEST_MS = 60000;

/** When the first thing in the picture happened, in ms; nothing if the picture is empty. */
export function firstIn(picture, services) {
  const lanes = picture.others ? [...picture.lanes, picture.others] : picture.lanes;
  const least = (times) => times.reduce((first, it) => Math.min(first, Date.parse(it)), Infinity);
  const exact = least([...services.map((it) => it.created_at), ...picture.marks.map((it) => it.at), ...picture.incidents.map((it) => it.since)]);
  // A column begins earlier than what happened in it.
  const rough = least(lanes.flatMap((it) => it.segments.slice(0, 1).map((one) => one.since))), column = (Date.parse(picture.until) - Date.parse(picture.since)) / picture.columns;
  const first = rough + column < exact ? rough : exact;
  return Number.isFinite(first) ? first : undefined;
}

/** Where a picture begins whose first thing happened then: shortly before. */
export const startOf = (first, until) => (first === undefined ? -Infinity : Math.floor(Math.min(first - (until - first) / 20, until - SHORTEST_MS)));

const BEGINS = "service_registered", ENDS = new Set(["service_lost", "service_gone"]);

/** The times in which the service of a lane lived, by the marks of its starts and ends: pairs of ms. */
export function lifetimes(lane, marks, { since, until }) {
  const own = marks.filter((it) => it.service === lane.service && (it.type === BEGINS || ENDS.has(it.type)))
    .map((it) => ({ begins: it.type === BEGINS, at: Date.parse(it.since ?? it.at) })).sort((a, b) => a.at - b.at);
  const times = [];
  let from = (own.length ? !own[0].begins : lane.lives) ? since : null;
  for (const { begins, at } of own) {
    if (begins) from ??= at;
    else if (from !== null) { times.push([from, at]); from = null; }
  }
  // The loss of a process may be concluded after the next one has registered.
  from ??= own.findLast((it) => it.begins)?.at ?? null;
  if (from !== null && lane.lives) times.push([from, until]);
  return times;
}

/** How the service of a lane ended: managers noticed its loss, or it unregistered. */
export function endOf(lane, marks) {
  const ends = marks.filter((it) => it.service === lane.service && ENDS.has(it.type)).sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  return ends.at(-1)?.type === "service_lost" ? "lost" : "ended";
}

export function scale(picture, width, left, right) {
  const since = Date.parse(picture.since), until = Date.parse(picture.until);
  const x = (at) => left + (width - left - right) * Math.min(Math.max((at - since) / (until - since), 0), 1);
  const at = (place) => since + (until - since) * (place - left) / (width - left - right);
  return { since, until, x, at, left, right: width - right };
}

/** The ticks of an axis, from its end to its start: `at`, and the text `ago` in the unit of the whole axis. `isFine`: some are between two minutes. Those of a span in the past are at round times. */
export function ticks({ since, until }, most, isPast = false) {
  const step = STEPS_MS.find((it) => (until - since) / it <= most) ?? STEPS_MS.at(-1);
  const written = unitOf(step, until - since);
  const last = isPast ? Math.floor(until / step) * step : until;
  return Array.from({ length: Math.floor((last - since) / step) + 1 }, (_, index) => ({ at: last - index * step, ago: index ? `−${written(index * step)}` : "now", isFine: step < MINUTE_MS }));
}

const MINUTE_MS = 60000, HOUR_MS = 3600000;
const pair = (ms, large) => `${Math.floor(ms / large)}:${String(Math.round(ms % large / (large / 60))).padStart(2, "0")}`;

/** How the times before the end of an axis are written: all in one unit. */
function unitOf(step, span) {
  if (step % HOUR_MS === 0) return (ms) => `${ms / HOUR_MS} h`;
  if (step % MINUTE_MS === 0) return span > 2 * HOUR_MS ? (ms) => `${pair(ms, HOUR_MS)} h` : (ms) => `${ms / MINUTE_MS} min`;
  return (ms) => pair(ms, MINUTE_MS);
}

const sorted = (lanes) => lanes.toSorted((a, b) => a.service.localeCompare(b.service, "en", { numeric: true }));
const trouble = (lane, incidents) => lane.segments.reduce((most, it) => Math.max(most, it.gap * 2 + it.overlap * 3), 0) + (lane.lives ? 0 : 1) + incidents.filter((it) => it.from === lane.service).length * 10;

/** Up to twelve lanes; if there are more, the worst twelve and the sum of the others. */
export function chosen({ lanes, incidents }, unfolded) {
  if (lanes.length <= LANES || unfolded) return { shown: sorted(lanes), folded: null };
  const worst = lanes.toSorted((a, b) => trouble(b, incidents) - trouble(a, incidents) || a.service.localeCompare(b.service, "en", { numeric: true }));
  return { shown: sorted(worst.slice(0, LANES - 1)), folded: worst.slice(LANES - 1) };
}

/** The part of a column by which a segment may begin too early. */
const ROUNDED = 0.02;
const NOTHING = () => ({ held_min: 0, held_max: 0, gap: 0, overlap: 0 });

/** One lane in columns: the maximum of each. */
function columns(lane, { since, until }) {
  const all = Array.from({ length: FOLDED_COLUMNS }, NOTHING);
  const column = (at) => Math.floor((Date.parse(at) - since) / (until - since) * FOLDED_COLUMNS);
  for (const it of lane.segments) {
    const end = Math.min(Math.max(column(it.until), column(it.since) + 1), FOLDED_COLUMNS);
    for (let at = Math.max(column(it.since), 0); at < end; at += 1) for (const name of Object.keys(all[at])) all[at][name] = Math.max(all[at][name], it[name]);
  }
  return all;
}

/** The sum of several lanes, in columns. */
export function summed(lanes, at) {
  const sums = Array.from({ length: FOLDED_COLUMNS }, NOTHING);
  for (const lane of lanes) columns(lane, at).forEach((it, index) => { for (const name of Object.keys(it)) sums[index][name] += it[name]; });
  const moment = (index) => new Date(at.since + (at.until - at.since) * index / FOLDED_COLUMNS).toISOString();
  return sums.map((it, index) => ({ ...it, since: moment(index), until: moment(index + 1) }));
}

/**
 * Several lanes as one, in columns: the sum of what they held, each taken as the mean of its least and most, so that an observer that
 * moves from one of them to another counts once; and the largest gap and overlap of one lane, because those of several lanes in one column need not coincide. Ends where the last
 * lane ends.
 */
export function spread(lanes, at, count) {
  const size = (at.until - at.since) / count, sums = Array.from({ length: count }, () => ({ held: 0, gap: 0, overlap: 0 }));
  const end = Math.min(at.until, Math.max(at.since, ...lanes.map((it) => Date.parse(it.segments.at(-1)?.until ?? 0))));
  for (const { segments } of lanes) {
    for (const it of segments) {
      const since = Math.max(Date.parse(it.since), at.since), until = Math.min(Date.parse(it.until), end);
      for (let index = Math.floor((since - at.since) / size); index < count && at.since + index * size < until; index += 1) {
        const from = at.since + index * size, to = Math.min(from + size, end);
        const part = Math.max(Math.min(until, to) - Math.max(since, from), 0);
        sums[index].held += (it.held_min + it.held_max) / 2 * part / (to - from);
        // The manager rounds the times of segments: what reaches into a column by a moment belongs to the next one.
        if (part < Math.min((to - from) * ROUNDED, until - since)) continue;
        sums[index].gap = Math.max(sums[index].gap, it.gap);
        sums[index].overlap = Math.max(sums[index].overlap, it.overlap);
      }
    }
  }
  const moment = (index) => new Date(Math.min(at.since + size * index, end)).toISOString();
  return sums.slice(0, Math.ceil((end - at.since) / size)).map(({ held, gap, overlap }, index) => ({ held_min: Math.round(held), held_max: Math.round(held), gap, overlap, since: moment(index), until: moment(index + 1) }));
}

export const segmentAt = (lane, at) => lane.segments.find((it) => Date.parse(it.since) <= at && at < Date.parse(it.until));
export const most = (lane, name) => lane.segments.reduce((top, it) => Math.max(top, it[name]), 0);

/** Which part of its observers ran nowhere in the gap of each segment: of those that the service held before, or that ran nowhere in the same gap. */
export function gapParts(segments) {
  const parts = new Map();
  let run = [], before = 0, last = null;
  const close = () => {
    const all = Math.max(before, ...run.map((it) => Math.max(it.held_max, it.gap)));
    run.forEach((it) => parts.set(it, Math.min(it.gap / all, 1)));
    run = [];
  };
  for (const it of segments) {
    // Between two segments, the service held nothing.
    const isApart = last && Date.parse(last.until) < Date.parse(it.since);
    if (run.length && (isApart || it.gap === 0)) close();
    if (isApart) before = 0;
    if (it.gap > 0) run.push(it);
    else before = it.held_max;
    last = it;
  }
  if (run.length) close();
  return parts;
}
