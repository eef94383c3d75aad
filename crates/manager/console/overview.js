// Everything in one glance: do they run, is there room, what went wrong lately.
import { get } from "./api.js";
import { h } from "./dom.js";
import { HEALTHS, RESTS, STATUSES, bar, counted, duration, empty, number, observerLink, table, time, what, word } from "./show.js";

const HOUR_MS = 3600000;
const SLOW_MS = 10000;
const TROUBLE = "failed,errored,refused,service_suspect,service_lost,republish_capped";
const MOVES_FROM = 500;

let slow = null;

/** One move, or the moves that a summary stands for. */
const asMoves = ({ at, burst, gap_ms: gap, overlap_ms: overlap }) => burst
  ? { at, count: burst.count, gap: burst.gap_ms_median, longest: burst.gap_ms_max, overlap: burst.overlap_ms_max }
  : { at, count: 1, gap, longest: gap, overlap };

/** The gap that half of the moves did not exceed. */
function median(moves, count) {
  let left = count / 2;
  return [...moves].sort((a, b) => a.gap - b.gap).find((it) => (left -= it.count) < 0)?.gap ?? 0;
}

/** Moves are counted from many events: not at each refresh. */
async function lately() {
  if (slow && performance.now() - slow.at < SLOW_MS) return slow;
  const starts = await get("/v1/events", { type: "started", limit: MOVES_FROM });
  const since = Date.now() - HOUR_MS;
  const moves = starts.items.map(asMoves).filter((it) => it.gap !== null && Date.parse(it.at) >= since);
  const all = starts.next_cursor === null || Date.parse(starts.items.at(-1)?.at) < since;
  slow = { at: performance.now(), moves, all };
  return slow;
}

const ABLE = ["active", "standby"];

/** How many of the largest active services each pool could lose and still hold what is wanted; the worst pool counts. */
export function spare(pools, services) {
  const of = (pool) => {
    const sizes = services.filter((it) => it.pool === pool.name && ABLE.includes(it.state)).map((it) => it.capacity).sort((a, b) => b - a);
    const wanted = ["Created", "Processing", "OnDeleting"].reduce((sum, it) => sum + (pool.observers[it] ?? 0), 0);
    // Any of the other services of a single pool may become the active one.
    if (pool.single) return { pool: pool.name, lost: sizes.every((it) => it >= wanted) ? Math.max(sizes.length - 1, 0) : 0, wanted };
    let room = sizes.reduce((sum, it) => sum + it, 0), lost = 0;
    while (lost < sizes.length - 1 && room - sizes[lost] >= wanted) room -= sizes[lost++];
    return { pool: pool.name, lost, wanted };
  };
  // A paused pool is listed even if no service and no observer belongs to it; such a pool does not count.
  return pools.filter((it) => it.services > 0 || it.needed > 0).map(of).sort((a, b) => a.lost - b.lost)[0] ?? null;
}

async function load() {
  const [stats, pools, services, trouble, safeMode, parked, { moves, all }] = await Promise.all([
    get("/v1/stats"), get("/v1/pools"), get("/v1/services", { limit: 1000 }), get("/v1/events", { type: TROUBLE, limit: 8 }),
    get("/v1/safe-mode"), get("/v1/parked", { limit: 1 }), lately()]);
  return { stats, pools: pools.items, services: services.items, trouble: trouble.items, safeMode, parked: parked.total, moves, all };
}

function headline({ stats }) {
  const count = stats.observers, total = STATUSES.reduce((sum, it) => sum + (count[it] ?? 0), 0);
  const { running, restarting, waiting, moving } = stats.health, wanted = running + restarting + waiting + moving;
  if (total === 0) return ["No observers yet", "good"];
  if (count.Failed > 0) return [`${counted(count.Failed, "observer")} failed`, "bad"];
  if (restarting > 0) return [`${counted(restarting, "observer")} restarting after errors`, "wait"];
  if (running < wanted) return [`${number(running)} of ${number(wanted)} observers run`, "wait"];
  return [wanted === 1 ? "1 observer runs" : `All ${number(running)} observers run`, "good"];
}

function standing({ stats, pools, services }) {
  const active = stats.services.active ?? 0;
  if (active + (stats.services.standby ?? 0) === 0) return "No service is active: no observer can run.";
  const failed = stats.observers.Failed > 0 || stats.health.restarting > 0 ? `${counted(stats.health.running, "observer")} run. ` : "";
  const room = `${failed}${counted(active, "active service")} with ${number(Math.max(stats.capacity - stats.held, 0))} of ${number(stats.capacity)} slots free.`;
  const worst = spare(pools, services);
  if (!worst || worst.wanted === 0) return room;
  const pool = pools.length > 1 ? ` of pool ${worst.pool}` : "";
  if (worst.lost === 0) return `${room} Losing the largest service${pool} would leave observers waiting.`;
  return `${room} All observers would still have slots after the loss of the ${worst.lost === 1 ? "largest service" : `${worst.lost} largest services`}${pool}.`;
}

function warnings({ stats, safeMode, parked, services }) {
  const silent = services.filter((it) => it.state === "suspect");
  return [
    stats.broker ? null : h("p", { class: "notice", "data-tone": "bad" }, h("strong", {}, "The broker is not connected. "), "Observers keep running; none can start, and no reports arrive."),
    safeMode.on ? h("p", { class: "notice", "data-tone": "wait" }, h("strong", {}, "Safe mode. "), `Managers conclude nothing from silence${safeMode.reason ? `: ${safeMode.reason}` : ""}.`) : null,
    silent.length ? h("p", { class: "notice", "data-tone": "wait" }, h("strong", {}, `${counted(silent.length, "service")} silent: `), silent.map((it) => it.name).slice(0, 5).join(", ")) : null,
    parked ? h("p", { class: "notice", "data-tone": "wait" }, h("a", { href: "#/parked" }, `${counted(parked, "message")} parked`), " because managers could not read or apply them.") : null,
  ];
}

/** A tile for each health, and for each status of those that are not to run. */
function strip({ observers, health }) {
  const tiles = [...HEALTHS.map((it) => [it, `health=${it}`, health[it] ?? 0]), ...RESTS.map((it) => [it, `status=${it}`, observers[it] ?? 0])];
  const some = tiles.filter(([, , count]) => count > 0);
  return h("div", { class: "strip-block" },
    some.length ? h("div", { class: "strip", "aria-hidden": "true" }, some.map(([it, , count]) =>
      h("span", { key: it, "data-status": it, style: { "flex-grow": String(count) } }))) : null,
    h("ul", { class: "legend" }, tiles.map(([it, filter, count]) => h("li", { key: it },
      h("a", { href: `#/observers?${filter}`, "data-status": it, class: count ? "" : "zero" },
        h("strong", {}, number(count)), h("span", {}, word(it)))))));
}

function movesPanel({ moves, all }) {
  const count = moves.reduce((sum, it) => sum + it.count, 0);
  const most = (of) => Math.max(0, ...moves.map((it) => of(it) ?? 0));
  return h("section", { class: "panel" }, h("h2", {}, "Moves in the last hour"),
    moves.length === 0 ? h("p", { class: "fine" }, "No observer moved.") :
      h("dl", { class: "facts big" }, fact("Moves", `${number(count)}${all ? "" : " or more"}`), fact("Median gap", duration(median(moves, count))),
        fact("Longest gap", duration(most((it) => it.longest))), fact("Longest overlap", duration(most((it) => it.overlap)))));
}

const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));

function poolsPanel({ pools, services, stats }) {
  const worst = spare(pools, services), able = ABLE.reduce((sum, it) => sum + (stats.services[it] ?? 0), 0);
  return h("section", { class: "panel" }, h("h2", {}, "Capacity"), pools.length === 0 ? h("p", { class: "fine" }, "No pool yet: start a service.") :
    table("Capacity by pool", [
      { title: "Pool", cell: (it) => [h("a", { href: `#/observers?pool=${encodeURIComponent(it.name)}` }, it.name), it.paused ? h("span", { class: "bad" }, " paused") : ""] },
      { title: "Services", class: "n", cell: (it) => number(it.services) },
      { title: "Used", class: "wide", cell: (it) => bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`) },
      { title: "Held", class: "n", cell: (it) => number(it.held) },
      { title: "Slots", class: "n", cell: (it) => number(it.capacity) },
    ], pools),
    h("dl", { class: "facts big" }, fact("Failure tolerance", worst ? `${number(worst.lost)} of ${counted(able, "service")}` : "none"),
      fact("Broker", stats.broker ? "connected" : h("span", { class: "bad" }, "not connected"))));
}

const troublePanel = ({ trouble }) => h("section", { class: "panel across" }, h("h2", {}, "Recent problems"),
  trouble.length === 0 ? h("p", { class: "fine" }, "No failures, no lost services.") : table("Recent problems", [
    { title: "When", class: "when", cell: (it) => time(it.at) },
    { title: "Event", cell: (it) => what(it.type) },
    { title: "Observer", cell: (it) => it.observer ? observerLink(it.observer) : "" },
    { title: "Service", cell: (it) => it.service?.name ?? "" },
    { title: "Cause", class: "text", cell: (it) => it.text },
  ], trouble));

function draw(data) {
  const [title, tone] = headline(data);
  const total = STATUSES.reduce((sum, it) => sum + (data.stats.observers[it] ?? 0), 0);
  return [
    h("header", { class: "hero", "data-tone": tone }, h("h1", {}, title), h("p", {}, standing(data))),
    warnings(data),
    total === 0
      ? empty("Create the first observer", "An observer is a task that never ends: a feed to poll, a device to watch, a process to keep alive. Services run observers; when a service dies, its observers continue on other services.",
        h("a", { class: "button primary", href: "#/create" }, "New observer"))
      : strip(data.stats),
    h("div", { class: "panels" }, poolsPanel(data), movesPanel(data), troublePanel(data)),
  ];
}

export const overview = { name: "overview", title: "Overview", load, draw };
