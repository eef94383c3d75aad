// The navigation: pages grouped by task, with counts; only pages that the session may read.
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { may, readable } from "./session.js";
import { STATUSES, number } from "./show.js";

/** `key` is the letter after `g`. */
export const PAGES = [
  { group: "", path: "", title: "Overview", key: "h", needs: "status:read" },
  { group: "", path: "observers", title: "Observers", key: "o", needs: "observers:read" },
  { group: "", path: "services", title: "Services", key: "s", needs: "services:read" },
  { group: "", path: "topology", title: "Topology", key: "t", needs: "services:read" },
  { group: "", path: "incidents", title: "Incidents", key: "i", needs: "events:read" },
  { group: "", path: "events", title: "Events", key: "e", needs: "events:read" },
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

/** Counts the findings of the doctor: all of them, as its page does. */
function countFindings(found) {
  counts = { ...counts, doctor: found.length || null };
  bad = { ...bad, doctor: found.some((it) => it.severity === "critical") };
}

/** The page of the doctor has read its findings: the navigation shows the same number. */
export function tellFindings(found) {
  countFindings(found);
  drawNav(opened);
}

async function fast() {
  const [stats, parked, safe, pools] = await Promise.all([
    readable("status:read", () => get("/v1/stats"), null), readable("parked:read", () => get("/v1/parked", { limit: 1 }), null),
    readable("safe-mode:read", () => get("/v1/safe-mode"), null), readable("pools:read", () => get("/v1/pools"), null)]);
  const sum = (all) => Object.values(all).reduce((total, it) => total + it, 0);
  const waits = (parked?.total ?? 0) + (stats?.observers.Failed ?? 0);
  counts = { ...counts,
    observers: stats && STATUSES.reduce((total, it) => total + (stats.observers[it] ?? 0), 0), services: stats && sum(stats.services),
    pools: pools?.total, parked: waits || null, "safe-mode": safe && (safe.on ? "on" : "off") };
  bad = { ...bad, parked: waits > 0, "safe-mode": safe?.on === true };
}

async function slow() {
  const [kinds, doctor, timeline] = await Promise.all([
    readable("kinds:read", () => get("/v1/kinds"), null), readable("status:read", () => get("/v1/doctor"), null),
    readable("events:read", () => get("/v1/timeline", { since: "24h", columns: 1 }), null)]);
  counts = { ...counts, kinds: kinds?.total, incidents: timeline?.incidents.length || null };
  countFindings(doctor?.items ?? []);
}

/** Marks the page that is open. */
export function drawNav(open) {
  opened = open;
  const groups = [...new Set(PAGES.map((it) => it.group))];
  const link = (it) => h("a", { key: it.path || "overview", href: `#/${it.path}`, "aria-current": it.path === open ? "page" : undefined },
    h("span", {}, it.title), counts[it.path] === undefined || counts[it.path] === null ? null : h("b", { class: bad[it.path] ? "bad" : undefined }, typeof counts[it.path] === "number" ? number(counts[it.path]) : counts[it.path]));
  patch(document.getElementById("nav"), groups.flatMap((group) => {
    const pages = PAGES.filter((it) => it.group === group && may(it.needs));
    return pages.length === 0 ? [] : [group ? h("h2", { key: `group-${group}` }, group) : null, ...pages.map(link)].filter(Boolean);
  }));
}

/** Reads the counts again if they are old, at most as often as the page refreshes. */
export async function recount(open) {
  const now = performance.now();
  if (now - fastAt < FAST_MS) return;
  fastAt = now;
  const work = [fast()];
  if (now - slowAt > SLOW_MS) { slowAt = now; work.push(slow()); }
  const done = await Promise.allSettled(work);
  if (done.some((it) => it.status === "fulfilled")) drawNav(open());
}

/** After a login or a logout. */
export function forgetCounts() {
  counts = {};
  bad = {};
  fastAt = slowAt = -Infinity;
}
