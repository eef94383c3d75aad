// The navigation: pages grouped by task, with counts; only pages that the session may read.
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { isHandover } from "./incident-text.js";
import { may, readable } from "./session.js";
import { number, observersIn } from "./show.js";

/** `key` is the letter after `g`; `words`: what users may also type for the page. */
export const PAGES = [
  { group: "Look", path: "", title: "Overview", key: "h", needs: "status:read" },
  { group: "Look", path: "observers", title: "Observers", key: "o", needs: "observers:read" },
  { group: "Look", path: "services", title: "Services", words: "svc", key: "s", needs: "services:read" },
  { group: "Look", path: "topology", title: "Topology", key: "t", needs: "services:read" },
  { group: "Look", path: "incidents", title: "Incidents", key: "i", needs: "events:read" },
  { group: "Look", path: "events", title: "Events", key: "e", needs: "events:read" },
  { group: "Configure", path: "pools", title: "Pools", key: "p", needs: "pools:read" },
  { group: "Configure", path: "kinds", title: "Kinds", key: "k", needs: "kinds:read" },
  { group: "Configure", path: "limits", title: "Limits", key: "l", needs: "limits:read" },
  { group: "Configure", path: "rates", title: "Rates", key: "r", needs: "rates:read" },
  { group: "Configure", path: "batches", title: "Batches", key: "b", needs: "batches:read" },
  { group: "Configure", path: "rollouts", title: "Rollouts", key: "u", needs: "rollouts:read" },
  { group: "Configure", path: "namespaces", title: "Namespaces", key: "n", needs: "namespaces:read" },
  { group: "Operate", path: "doctor", title: "Doctor", key: "d", needs: "status:read" },
  { group: "Operate", path: "safe-mode", title: "Safe mode", key: "m", needs: "safe-mode:read" },
  { group: "Operate", path: "parked", title: "Failed and parked", key: "f", needs: "parked:read" },
  { group: "Operate", path: "tokens", title: "Tokens", key: "w", needs: "tokens:read" },
  { group: "Operate", path: "roles", title: "Roles", key: "y", needs: "roles:read" },
  { group: "Operate", path: "audit", title: "Audit", key: "a", needs: "audit:read" },
];

const FAST_MS = 2000;
const SLOW_MS = 30000;
let counts = {}, bad = {}, fastAt = -Infinity, slowAt = -Infinity, opened;
/** What the page that is open has told: it wins over an answer to the navigation, which may be older. */
let told = { counts: {}, bad: {} };
/** When the newest incident that is counted began. */
let newestIncident = "";

/** The counts of a page, as the navigation shows them. */
export const COUNTS = {
  observers: (count) => ({ counts: { observers: count } }),
  services: (count) => ({ counts: { services: count } }),
  pools: (total) => ({ counts: { pools: total } }),
  kinds: (total) => ({ counts: { kinds: total } }),
  /** Notes need no action. */
  findings: (all) => ({ counts: { doctor: all.filter((it) => it.severity !== "info").length || null }, bad: { doctor: all.some((it) => it.severity === "critical") } }),
  /** Handovers are no incidents. */
  incidents: (all) => ({ counts: { incidents: all.filter((it) => !isHandover(it)).length || null }, newest: newestOf(all) }),
  waits: (count) => ({ counts: { parked: count || null }, bad: { parked: count > 0 } }),
  safeMode: (on) => ({ counts: { "safe-mode": on ? "on" : "off" }, bad: { "safe-mode": on } }),
};
const sum = (all) => all.reduce((total, it) => total + it, 0);
const newestOf = (all) => all.reduce((newest, it) => (it.since > newest ? it.since : newest), "");

function keep({ counts: more = {}, bad: worse = {}, newest = newestIncident }) {
  counts = { ...counts, ...more };
  bad = { ...bad, ...worse };
  newestIncident = newest;
}

/** The page shows some of the incidents: if one of them is not counted yet, the navigation soon counts again. */
export function someIncidents(all) {
  if (newestOf(all) > newestIncident && performance.now() - slowAt > FAST_MS) slowAt = -Infinity;
  return {};
}

/** The page has read what these counts say: the navigation shows the same. */
export function tellCounts(all) {
  told = { counts: Object.assign({}, ...all.map((it) => it.counts)), bad: Object.assign({}, ...all.map((it) => it.bad)) };
  all.forEach(keep);
  drawNav(opened);
}

/** A page has asked the doctor: the navigation shows the same. */
export function noteFindings(all) {
  keep(COUNTS.findings(all));
  drawNav(opened);
}

async function fast() {
  const [stats, parked, safe, pools] = await Promise.all([
    readable("status:read", () => get("/v1/stats"), null), readable("parked:read", () => get("/v1/parked", { limit: 1 }), null),
    readable("safe-mode:read", () => get("/v1/safe-mode"), null), readable("pools:read", () => get("/v1/pools"), null)]);
  if (stats) [COUNTS.observers(observersIn(stats)), COUNTS.services(sum(Object.values(stats.services)))].forEach(keep);
  if (pools) keep(COUNTS.pools(pools.total));
  if (safe) keep(COUNTS.safeMode(safe.on));
  keep(COUNTS.waits((parked?.total ?? 0) + (stats?.observers.Failed ?? 0)));
}

async function slow() {
  const [kinds, doctor, timeline] = await Promise.all([
    readable("kinds:read", () => get("/v1/kinds"), null), readable("status:read", () => get("/v1/doctor"), null),
    readable("events:read", () => get("/v1/timeline", { since: "24h", columns: 1 }), null)]);
  if (kinds) keep(COUNTS.kinds(kinds.total));
  if (timeline) keep(COUNTS.incidents(timeline.incidents));
  keep(COUNTS.findings(doctor?.items ?? []));
}

/** Marks the page that is open. */
export function drawNav(open) {
  if (open !== opened) told = { counts: {}, bad: {} };
  opened = open;
  const shown = { ...counts, ...told.counts }, alarming = { ...bad, ...told.bad };
  const groups = [...new Set(PAGES.map((it) => it.group))];
  const link = (it) => h("a", { key: it.path || "overview", href: `#/${it.path}`, "aria-current": it.path === open ? "page" : undefined },
    h("span", {}, it.title), shown[it.path] === undefined || shown[it.path] === null ? null : h("b", { class: alarming[it.path] ? "bad" : undefined }, typeof shown[it.path] === "number" ? number(shown[it.path]) : shown[it.path]));
  patch(document.getElementById("nav"), groups.flatMap((group) => {
    const pages = PAGES.filter((it) => it.group === group && may(it.needs));
    return pages.length === 0 ? [] : [group ? h("h2", { key: `group-${group}` }, group) : null, ...pages.map(link)].filter(Boolean);
  }));
}

/** Reads the counts again if they are old, at most as often as the page refreshes. */
export async function recount(open) {
  const now = performance.now(), work = [];
  if (now - fastAt >= FAST_MS) { fastAt = now; work.push(fast()); }
  if (now - slowAt >= SLOW_MS) { slowAt = now; work.push(slow()); }
  const done = await Promise.allSettled(work);
  if (done.some((it) => it.status === "fulfilled")) drawNav(open());
}

/** After a login or a logout. */
export function forgetCounts() {
  counts = {};
  bad = {};
  told = { counts: {}, bad: {} };
  newestIncident = "";
  fastAt = slowAt = -Infinity;
}
