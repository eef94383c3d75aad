// The overview: whether all observers run, the failure tolerance, the timeline, incidents and problems.
import { get } from "./api.js";
import { clock } from "./clock.js";
import { begun } from "./doctor.js";
import { h } from "./dom.js";
import { history, spark, sparkCard } from "./history.js";
import { capacities, incidentList } from "./incidents.js";
import { isHandover } from "./incident-text.js";
import { columns, groupsOf, lanesPanel } from "./lanes.js";
import { readTimeline } from "./lanes-load.js";
import { COUNTS, someIncidents } from "./nav.js";
import { findingsFor, full as fullOf, problems, problemsPanel, waitingIn, wantedIn, withoutService } from "./problems.js";
import { spans } from "./range.js";
import { isDev, may, readable } from "./session.js";
import { bar, countOf, counted, empty, number, observersIn as total, table, word } from "./show.js";

const SHOWN = 5;
/** The head names so many pools of a group. */
const NAMED = 3;
/** A tile for each health; the others appear when an observer has them. */
const TILES = [["running", "health"], ["restarting", "health"], ["waiting", "health"], ["moving", "health"], ["Paused", "status"], ["Failed", "status"]];
/** The tiles with a line of the last 24 hours. */
const LINES = { running: "running", moving: "nowhere" };
/** The statuses of observers that are not meant to run; those that have failed were. */
const AT_REST = ["Paused", "Scheduled", "Completed"];
const RARE = [["Scheduled", "status"], ["stopping", "health"], ["Completed", "status"]];

async function load({ params }) {
  const read = readable("services:read", () => get("/v1/services", { limit: 1000 }), { items: [] });
  const [stats, pools, services, missing, found, safeMode, parked, picture, past] = await Promise.all([
    get("/v1/stats"), readable("pools:read", () => get("/v1/pools"), { items: [] }), read, readable("services:read", () => get("/v1/services", { missing: true, limit: 1000 }), { items: [] }), problems(),
    readable("safe-mode:read", () => get("/v1/safe-mode"), { on: false }), readable("parked:read", () => get("/v1/parked", { limit: 1 }), { total: 0 }),
    readable("events:read", () => readTimeline(params, () => read.then((it) => it.items), { columns: columns() }), null), history()]);
  const living = services.items.filter((it) => !it.is_deleted), isReplaced = (it) => living.some((one) => one.name === it.name && one.created_at > it.created_at);
  const silent = living.filter((it) => !isReplaced(it) && it.state === "suspect");
  const state = JSON.stringify([safeMode.on, living.map((it) => [it.id, it.state, it.capacity, Boolean(it.drain?.waits)]), pools.items.map((it) => [it.name, it.needed > it.capacity, it.failure_tolerance, it.paused])]);
  return { silent, findings: findingsFor(state), stats, pools: pools.items, services: services.items, missing: missing.items, room: roomOf(stats, pools.items, services), found, safeMode, parked: parked.total, picture, past };
}

/** The observers that wait for anything but a place of a limit, which keeps them waiting by design. */
const waitingOf = (stats) => Math.max(countOf(stats, "waiting") - stats.behind_limits, 0);

function headline({ stats, silent }) {
  const { running, restarting, moving } = stats.health, wanted = running + restarting + countOf(stats, "waiting") + moving;
  const failed = stats.observers.Failed ?? 0;
  if (total(stats) === 0) return "No observers yet";
  if (failed === 0 && running === wanted) return wanted === 0 ? "No observer is meant to run now" : silent.length ? `${counted(running, "observer")} ${running === 1 ? "runs" : "run"}, as far as managers know` : wanted === 1 ? "1 observer runs" : `All ${number(running)} observers run`;
  return `${number(running)} of ${number(wanted + failed)} observers run`;
}

/**
 * Slots and services, as the table of pools shows them. Without permission for pools or services, the statistics count them; those may be a
 * second older. `able`: the services that take observers.
 */
function roomOf(stats, pools, { items, total }) {
  const has = (state) => (items.length && total <= items.length ? items.filter((it) => !it.is_deleted && it.state === state).length : stats.services[state] ?? 0);
  const sum = (name) => pools.reduce((all, it) => all + it[name], 0), active = has("active");
  const slots = pools.length ? { capacity: sum("capacity"), free: sum("free"), services: sum("services") } : { capacity: stats.capacity, free: Math.max(stats.capacity - stats.held, 0), services: null };
  return { ...slots, active, able: active + has("standby") };
}

/** The pool that can lose the fewest services, of those whose observers need slots. */
const weakest = (pools) => pools.filter((it) => it.needed > 0).sort((a, b) => a.failure_tolerance - b.failure_tolerance)[0] ?? null;

/** The failure tolerance as a sentence; nothing while no observer needs a slot. */
function nextFailure(pools) {
  const worst = weakest(pools);
  if (!worst || worst.services === 0) return null;
  if (pools.some((it) => it.needed > it.capacity)) return "losing a service would leave observers waiting";
  const pool = pools.length > 1 ? ` of pool ${worst.name}` : "", lost = worst.failure_tolerance;
  if (lost === 0) return `losing the largest service${pool} would leave observers waiting`;
  return `any ${lost === 1 ? "service" : counted(lost, "service")}${pool} may fail and every observer keeps a slot`;
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
const sumOf = (pools, count) => pools.reduce((all, it) => all + count(it), 0);
const named = (pools) => (pools.length === 1 ? `pool ${pools[0].name} is` : pools.length <= NAMED ? `pools ${pools.slice(0, -1).map((it) => it.name).join(", ")} and ${pools.at(-1).name} are` : `${number(pools.length)} pools are`);

/** The pools whose observers wait, each group as a sentence, and how many observers these are. */
function waits(pools) {
  const bare = withoutService(pools), full = fullOf(pools), paused = pools.filter((it) => it.services > 0 && it.waiting > 0 && it.paused);
  const waiting = (count) => `${number(count)} ${count === 1 ? "waits" : "wait"}`, stranded = sumOf(bare, wantedIn);
  const sentences = [
    bare.length ? `${named(bare).replace(/ is$/, " has").replace(/ are$/, " have")} no service: ${counted(stranded, "observer")} ${stranded === 1 ? "waits" : "wait"}` : null,
    full.length ? `${named(full)} full: ${waiting(sumOf(full, waitingIn))}` : null,
    paused.length ? `${named(paused)} paused: ${waiting(sumOf(paused, (it) => it.waiting))}` : null].filter(Boolean);
  return { sentences, count: stranded + sumOf(full, waitingIn) + sumOf(paused, (it) => it.waiting) };
}

const moving = (count) => (count ? `${number(count)} moving` : null);

/** Why some observers do not run, the free slots, and, while none waits for a slot, the failure tolerance. */
function standing({ stats, pools, room: { capacity, free, active, able } }) {
  const health = stats.health, failed = stats.observers.Failed ?? 0, waiting = waitingOf(stats), behind = stats.behind_limits, now = waits(pools);
  if (able === 0) return [health.running ? "no service takes observers now: those that run continue, and no other starts" : "No service is active: no observer can run."];
  const parts = [health.restarting ? `${number(health.restarting)} restarting` : null, waiting > now.count ? `${number(waiting)} waiting${now.count ? " in all" : ""}` : null, waiting + health.moving > now.count ? moving(health.moving) : null, failed ? `${number(failed)} failed` : null].filter(Boolean);
  const rest = AT_REST.reduce((all, it) => all + countOf(stats, it), 0);
  if (behind) parts.push(`${number(behind)} ${behind === 1 ? "waits" : "wait"} for a limit`);
  const room = `${number(free)} of ${counted(capacity, "slot")} free, ${counted(active, "service")} active`;
  const others = rest ? `${number(rest)} ${rest === 1 ? "other is" : "others are"} not meant to run now` : null;
  return [...now.sentences, ...parts, others, room, now.count === 0 ? nextFailure(pools) : null].filter(Boolean);
}

function warnings({ stats, safeMode, parked, silent }) {
  return [
    stats.broker ? null : h("p", { class: "notice", "data-tone": "bad", key: "broker" }, h("strong", {}, "The broker is not connected. "), "Observers keep running; none can start, and no reports arrive."),
    safeMode.on ? h("p", { class: "notice", "data-tone": "wait", key: "safe" }, h("a", { href: "#/safe-mode" }, "Safe mode is on"), `${safeMode.reason ? ` (${safeMode.reason})` : ""}: managers consider no service lost, and republish no observer whose message is missing.`) : null,
    silent.length ? h("p", { class: "notice", "data-tone": "wait", key: "silent" }, h("strong", {}, `${counted(silent.length, "service")} silent: `), silent.slice(0, 5).map((it) => `${it.name}, last heartbeat ${clock(Date.parse(it.last_heartbeat_at))}`).join("; "), `. ${silent.length === 1 ? "Its" : "Their"} observers may not run.`) : null,
    parked ? h("p", { class: "notice", "data-tone": "wait", key: "parked" }, h("a", { href: "#/parked" }, `${counted(parked, "message")} parked`), " because managers could not read or apply them.") : null,
  ].filter(Boolean);
}

function tiles({ stats, past }) {
  const count = (it) => countOf(stats, it);
  const shown = [...TILES, ...RARE.filter(([it]) => count(it) > 0)];
  const tile = (it, filter, line) => h("li", { key: it },
    h("a", { href: `#/observers?${filter}=${it}`, "data-status": it, class: count(it) ? "" : "zero" },
      h("span", { class: "kind" }, h("span", { class: "mark", "data-status": it }), word(it), line ? h("span", { class: "fine end" }, "last 24 h") : null),
      h("span", { class: "amount" }, h("strong", {}, number(count(it))), line ? spark(line, past) : null)), line ? sparkCard(line) : null);
  return h("ul", { class: "legend", key: "tiles", style: { "--tiles": String(shown.length) } }, shown.map(([it, filter]) => tile(it, filter, past ? LINES[it] : undefined)));
}

function incidentsPanel({ picture }) {
  const all = picture.incidents.filter((it) => !isHandover(it)).toReversed(), handovers = picture.incidents.length - all.length;
  return h("section", { class: "panel", key: "incidents" }, h("header", {}, h("h2", {}, "Incidents"), h("a", { class: "quiet end", href: "#/incidents" }, "All incidents")),
    all.length === 0 ? h("p", { class: "fine" }, handovers ? "No service was lost in this time, and no handover took long." : "No observer moved in this time.") : incidentList(all.slice(0, SHOWN)),
    all.length > SHOWN ? h("p", { class: "fine" }, `The newest ${SHOWN} of ${number(all.length)}.`) : null,
    handovers ? h("p", { class: "fine" }, h("a", { href: "#/incidents?show=handovers" }, counted(handovers, "handover"))) : null);
}

const poolsPanel = ({ pools, services, findings }) => {
  const uneven = findings.filter((it) => it.code === "uneven-pool");
  const worst = weakest(pools), cordoned = services.filter((it) => it.state === "cordoned").map((it) => it.name);
  return h("section", { class: "panel across", key: "capacity" }, h("header", {}, h("h2", {}, "Capacity"), h("span", { class: "fine" }, worst ? `Failure tolerance${pools.length > 1 ? ` of pool ${worst.name}` : ""}: ${worst.failure_tolerance ? counted(worst.failure_tolerance, "service") : "none"}` : "no observer needs a slot")), pools.length === 0 ? h("p", { class: "fine" }, "No pool yet: start a service.") :
    table("Capacity by pool", [
      { title: "Pool", cell: (it) => [h("a", { href: `#/pools/${encodeURIComponent(it.name)}` }, it.name), it.paused ? h("span", { class: "bad" }, " paused") : ""] },
      { title: "Services", isExtra: true, class: "n", cell: (it) => number(it.services) },
      { title: "Used", isExtra: true, class: "wide", cell: (it) => bar(it.capacity - it.free, it.capacity, `${number(it.free)} of ${number(it.capacity)} slots free`) },
      { title: "Held", class: "n", cell: (it) => number(it.held) },
      { title: "Free", class: "n", cell: (it) => number(it.free) },
      { title: "Slots", class: "n", cell: (it) => number(it.capacity) },
      { title: "Waiting for a slot", class: "n", cell: (it) => number(waitingIn(it)) },
    ], pools), pools.some((it) => it.held + it.free > it.capacity) ? h("p", { class: "fine" }, "Services that drain or are silent hold observers, too; their slots are not among those shown.") : null,
    cordoned.length ? h("p", { class: "fine", key: "cordoned" }, `Without the free slots of cordoned services: ${cordoned.slice(0, 5).join(", ")}${cordoned.length > 5 ? ` and ${number(cordoned.length - 5)} more` : ""}.`) : null,
    uneven.length ? h("p", { class: "fine", key: "uneven" }, uneven.slice(0, NAMED).map((it) => `${begun(it.what)}. `), h("a", { href: "#/services" }, "Rebalance")) : null);
};

function draw(data, { params }, context) {
  const { stats, picture, services, found } = data;
  return [
    h("header", { class: "hero" }, h("h1", {}, headline(data)), h("p", {}, capital(standing(data).join(" · ")))),
    ...warnings(data),
    isDev() && services.some((it) => !it.is_deleted) ? h("p", { class: "fine", key: "dev" }, "Observers are tasks that never end; services run them. This is ", h("code", {}, "everwatch dev"), ": kill a ", h("a", { href: "#/services" }, "service"), ", and its observers continue on those that have free slots.") : null,
    total(stats) === 0
      ? empty("Create the first observer", "An observer is a task that never ends: a feed to poll, a device to watch, a process to keep alive. Services run observers; when a service dies, its observers continue on other services.",
        may("observers:create") ? h("a", { class: "button primary", href: "#/create" }, "New observer") : null)
      : tiles(data),
    picture && (total(stats) > 0 || picture.lanes.some((it) => it.segments.length)) ? lanesPanel(picture, capacities(services), { spans: spans(params, context), context, groups: groupsOf(picture, services, params, context) }) : null,
    h("div", { class: "panels lead", key: "panels" }, picture ? incidentsPanel(data) : null, problemsPanel(found, data)),
    poolsPanel(data),
  ];
}

const counts = ({ stats, room, picture }) => [COUNTS.observers(total(stats)), room.services === null ? {} : COUNTS.services(room.services), someIncidents(picture?.incidents ?? [])];

export const overview = { name: "overview", title: "Overview", load, draw, counts };
