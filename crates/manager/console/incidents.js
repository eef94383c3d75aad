// Incidents: the list of a day, and the page of one.
import { get } from "./api.js";
import { exact } from "./clock.js";
import { copyButton } from "./copy.js";
import { h } from "./dom.js";
import { AT_MOST, gap, isBound } from "./gap.js";
import { gaps, incidentHref, incidentLine, incidentTitle, isHandover, moved, targets, untilOf } from "./incident-text.js";
import { causeGlyph, columns, lanesPanel } from "./lanes.js";
import { earliest } from "./lanes-scale.js";
import { COUNTS, someIncidents } from "./nav.js";
import { lackOf } from "./problems.js";
import { readable } from "./session.js";
import { bar, counted, duration, empty, fact, number, observerLink, table, time } from "./show.js";

const AROUND_MS = 120000;
const MOVED = 500;
const CAUSES = { lost: "The service is lost.", stopped: "The service stopped and handed its observers over.", handed_over: "The service handed observers over and still runs.", unknown: "The service did not hand its observers over, and managers have not yet concluded whether it still runs." };

export const incidentList = (incidents) => h("ul", { class: "incident-list" }, incidents.map((it) => h("li", { key: `${it.from}-${it.since}` },
  causeGlyph(it),
  h("div", {}, h("a", { class: "title", href: incidentHref(it) }, incidentTitle(it)), h("p", { class: "said", title: isBound(it) ? `≤ ${AT_MOST}` : undefined }, `${gaps(it)} · to ${targets(it)}`)),
  h("span", { class: "side-of" }, time(it.since), copyButton(incidentLine(it), "Copy", `Copy ${incidentTitle(it)} as one line`)))));

const newestFirst = (all) => all.toSorted((a, b) => b.since.localeCompare(a.since));

async function load() {
  const picture = await get("/v1/timeline", { since: "24h", columns: 1 });
  const isCut = picture.complete_since !== null && Date.parse(picture.complete_since) > Date.parse(picture.since);
  return { incidents: newestFirst(picture.incidents), completeSince: isCut ? picture.complete_since : null };
}

const NOTHING = {
  incidents: ["No incidents", "When a service is lost, or hands observers over that then run nowhere for 10 s, the moves of its observers appear here with their gaps and overlaps."],
  handovers: ["No handovers", "When a service hands observers over, because of a move, a drain, a rebalance or its stop, the moves appear here with their gaps and overlaps."],
};

function draw({ incidents, completeSince }, { params }, context) {
  const all = { incidents: incidents.filter((it) => !isHandover(it)), handovers: incidents.filter(isHandover) };
  const now = params.get("show") === "handovers" ? "handovers" : "incidents", shown = all[now];
  const chip = (name, text) => h("button", { type: "button", class: "chip plain-chip", key: name, "aria-pressed": String(name === now), onclick: () => context.set({ show: name === "incidents" ? "" : name }) }, text, h("b", {}, number(all[name].length)));
  return [
    h("header", { class: "head" }, h("h1", {}, "Incidents"), h("p", { class: "total" }, number(all.incidents.length)), h("p", { class: "fine" }, "in the last 24 hours")),
    h("div", { class: "chips", role: "group", "aria-label": "Which moves", key: "which" }, chip("incidents", "Incidents"), chip("handovers", "Handovers")),
    shown.length === 0 ? empty(...NOTHING[now]) : h("section", { class: "panel", key: now }, incidentList(shown)),
    completeSince ? h("p", { class: "fine" }, `Events before ${exact(completeSince)} are no longer stored.`) : null,
  ];
}

/** Managers may have heard of a lost service at different times: once its observers run, an incident may begin a little earlier or later, by less than this time, in ms. */
const NEAR_MS = 5000;

/** The incident of an address, which may have been copied while the incident was open. */
function incidentAt(all, at) {
  const off = (one) => Math.abs(Date.parse(one.since) - at), near = all.filter((one) => off(one) < NEAR_MS).toSorted((a, b) => off(a) - off(b));
  return near.find((one) => off(one) === 0) ?? all.findLast((one) => Date.parse(one.since) <= at && at <= untilOf(one)) ?? near[0] ?? null;
}

async function loadOne({ parts: [, from, since] }) {
  const at = Date.parse(since ?? "");
  if (Number.isNaN(at)) return { from, it: null };
  const day = await get("/v1/timeline", { since: "24h", columns: 1, service: from });
  const it = incidentAt(day.incidents.filter((one) => one.from === from), at);
  if (!it) return { from, it: null };
  const until = new Date(Math.min(untilOf(it) + 2 * AROUND_MS, Date.now())).toISOString();
  const [picture, services, pools, starts] = await Promise.all([
    get("/v1/timeline", { since: new Date(Math.max(at - AROUND_MS, earliest())).toISOString(), until, columns: columns(), service: [from, ...Object.keys(it.to)] }),
    readable("services:read", () => get("/v1/services", { limit: 1000 }), { items: [] }), readable("pools:read", () => get("/v1/pools"), { items: [] }), get("/v1/events", { type: "started", details: true, since: new Date(at - 1000).toISOString(), until: new Date(untilOf(it) + 1000).toISOString(), limit: MOVED })]);
  const within = (event) => event.gap_ms !== null && event.from?.name === from;
  const pool = services.items.find((one) => one.name === from)?.pool;
  return { from, it, picture, services: services.items, pool: pools.items.find((one) => one.name === pool), moves: starts.items.filter(within) };
}

/** Why managers concluded that the service is lost, as its event says; the event may not be stored any more. */
function conclusion({ marks }, it) {
  const [since, until] = [Date.parse(it.since) - NEAR_MS, untilOf(it) + AROUND_MS];
  const said = marks.find((one) => one.type === "service_lost" && one.service === it.from && since <= Date.parse(one.since ?? one.at) && Date.parse(one.since ?? one.at) <= until)?.text;
  return it.cause === "lost" && said ? `The service is lost: ${said}.` : CAUSES[it.cause] ?? "";
}

export const capacities = (services) => new Map(services.filter((it) => !it.is_deleted).map((it) => [it.name, it.capacity]));

const flow = (it) => h("section", { class: "panel", key: "flow" }, h("h2", {}, "Moved to"), it.moved === 0 ? h("p", { class: "fine" }, "No service has started any of them yet.") : h("ul", { class: "flow" },
  Object.entries(it.to).sort((a, b) => b[1] - a[1]).map(([name, count]) => h("li", { key: name }, h("a", { href: `#/services/${encodeURIComponent(name)}` }, name), bar(count, Math.max(it.moved, 1), `${number(count)} of ${number(it.moved)}`, false), h("span", { class: "n" }, number(count))))));

/** The observers of an open incident that run nowhere yet. */
function nowhere({ waiting, waiting_observers: named }, pool) {
  if (waiting === 0) return null;
  const more = waiting - named.length, why = pool ? lackOf(pool) : null;
  return [h("h3", {}, `${number(waiting)} ${waiting === 1 ? "runs" : "run"} nowhere yet`),
    h("p", {}, named.flatMap((one, at) => [at ? ", " : null, observerLink(one)]), more > 0 ? `${named.length ? " and " : ""}${number(more)} more` : null),
    h("p", { class: "fine" }, why ? `${why} ` : null, "The page of each says for what it waits. ", h("a", { href: "#/observers?health=waiting,moving" }, "All observers that wait or move"))];
}

const movesPanel = (it, moves, pool) => h("section", { class: "panel", key: "moves" }, h("h2", {}, "Observers"), nowhere(it, pool), moves.length === 0 ? (it.moved ? h("p", { class: "fine" }, "The events of these moves are no longer stored.") : null) : table("Observers that started again", [
  { title: "Observer", class: "name", cell: (event) => (event.observer ? observerLink(event.observer) : "") },
  { title: "To", cell: (event) => [event.service?.name ?? "", event.service?.name === it.from ? h("span", { class: "fine" }, " (the same)") : ""] },
  { title: "Gap", class: "n", cell: (event) => gap(event.gap_ms, isBound(event)) },
  { title: "Overlap", class: "n", cell: (event) => (event.overlap_ms ? duration(event.overlap_ms) : "0") },
], moves.toSorted((a, b) => b.gap_ms - a.gap_ms).slice(0, 50)));

/** The gaps of the moves, as facts; those that are equal are one. */
function gapFacts(it) {
  const told = (ms) => gap(ms, isBound(it)), some = it.waiting ? " of those that run" : "";
  if (it.moved && !it.waiting && it.gap_ms_median === it.gap_ms_max) return [fact(it.moved === 1 ? "Gap" : "Gap of each", told(it.gap_ms_max))];
  return [it.moved ? [fact(`Median gap${some}`, told(it.gap_ms_median)), it.gap_ms_p99 === it.gap_ms_max ? null : fact("p99", told(it.gap_ms_p99))] : null, fact("Longest gap", told(it.gap_ms_max))];
}

function drawOne({ from, it, picture, services, pool, moves }, _route, context) {
  const crumb = h("p", { class: "crumb" }, h("a", { href: "#/incidents" }, "Incidents"), " / ", from);
  if (!it) return [h("header", { class: "head" }, crumb, h("h1", {}, "Incident")), empty("No such incident", `The timeline has no incident of ${from} at this time. It holds the last 24 hours; the events include older moves.`, h("a", { class: "button", href: "#/incidents" }, "Incidents"), h("a", { class: "button", href: "#/events?type=started" }, "Events"))];
  const line = incidentLine(it);
  return [
    h("header", { class: "head" }, crumb, h("h1", {}, incidentTitle(it)), h("p", { class: "total" }, time(it.since))),
    h("p", { class: "why" }, conclusion(picture, it), isBound(it) ? " The gaps are upper bounds, counted from the last sign of life of the service." : ""),
    h("section", { class: "panel across", key: "line" }, h("header", {}, h("h2", {}, "As one line"), h("span", { class: "row end" }, copyButton(line), copyButton(location.href, "Copy link"))), h("p", { class: "incident-line" }, line)),
    h("section", { class: "panel across", key: "facts" }, h("dl", { class: "facts big" }, moved(it).map(({ title, count }) => fact(title, number(count))), gapFacts(it),
      fact("Longest overlap", it.overlap_ms_max ? duration(it.overlap_ms_max) : "0"), fact(it.until ? "All ran again after" : "Open for", gap(Math.max(untilOf(it) - Date.parse(it.since), 0), isBound(it))))),
    lanesPanel(picture, capacities(services), { title: "Timeline of the services involved", context }),
    h("div", { class: "panels", key: "panels" }, movesPanel(it, moves, pool), flow(it)),
    h("p", { class: "fine" }, `${counted(picture.marks.length, "event")} of services in this time. `, h("a", { href: `#/events?type=service_lost,service_suspect,service_gone,service_registered,service_draining,service_drained` }, "Events of services")),
  ];
}

export const incidents = { name: "incidents", title: "Incidents", load, draw, counts: (data) => [COUNTS.incidents(data.incidents)] };
export const incident = { name: "incident", title: "Incident", load: loadOne, draw: drawOne, counts: ({ it }) => [someIncidents(it ? [it] : [])] };
