// One service: its lane, its observers, its state, and the orders for it.
import { get } from "./api.js";
import { h } from "./dom.js";
import { capacities, incidentList } from "./incidents.js";
import { isHandover } from "./incident-text.js";
import { columns, lanesPanel } from "./lanes.js";
import { readTimeline } from "./lanes-load.js";
import { note } from "./list-columns.js";
import { someIncidents } from "./nav.js";
import { spans } from "./range.js";
import { endedTable, frozen, isClosed, orders, progress, stalls, vitals } from "./services.js";
import { readable } from "./session.js";
import { bar, causeOf, counted, empty, fact, health, number, observerLink, stateOf, table, time, timed, what } from "./show.js";

const SHOWN = 50;
const EVENTS = 20;

async function load({ parts: [, name], params }) {
  const page = await get("/v1/services", { limit: 1000 });
  const all = page.items.filter((it) => it.name === name || it.id === name).toSorted((a, b) => b.created_at.localeCompare(a.created_at));
  const it = all.find((one) => !one.is_deleted) ?? all[0] ?? null;
  const none = { items: [], total: 0 }, unread = { ...none, isUnread: true };
  const [picture, held, events] = await Promise.all([
    readable("events:read", () => readTimeline(params, () => all, { columns: columns(), service: it?.name ?? name }), null),
    it ? readable("observers:read", () => get("/v1/observers", { service: it.id, limit: SHOWN }), unread) : none,
    it ? readable("events:read", () => get("/v1/events", { service: it.id, limit: EVENTS }), none) : none]);
  return { name, it, former: all.filter((one) => one.is_deleted && one !== it), picture, held, events };
}

/** The service with the slots that its observers take: its heartbeat says them seconds later. Without all of the observers, the heartbeat counts. */
function counting(it, { items, total, isUnread }) {
  if (isUnread || total > items.length || it.is_deleted) return it;
  const held = items.reduce((sum, one) => sum + one.weight, 0), free = it.state === "active" ? Math.max(it.capacity - held, 0) : it.free;
  return { ...it, held, free, drain: it.drain && { ...it.drain, moved: Math.max(it.drain.of - held, 0) } };
}

const factsPanel = (it) => h("section", { class: "panel", key: "facts" }, h("h2", { class: "unseen" }, "Facts"),
  h("p", { class: "load spread" }, h("strong", {}, number(it.held)), ` of ${counted(it.capacity, "slot")}`, h("span", { class: "fine" }, `${isClosed(it) ? "accepts no more" : `${number(it.free)} free`}${it.capacity_set ? ", set by an operator" : ""}${it.weight_max > 1 ? `, maximum weight ${number(it.weight_max)}` : ""}`)),
  bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`),
  it.drain ? progress(it.drain) : null, it.frozen ? frozen() : null, it.stalled.length ? stalls(it) : null, it.unconfirmed ? h("p", { class: "fine warn", key: "unconfirmed" }, timed(it.unconfirmed)) : null,
  h("dl", { class: "facts" }, fact("Pool", h("a", { href: `#/pools/${encodeURIComponent(it.pool)}` }, it.pool)), vitals(it),
    fact("Kinds", it.kinds.map((kind) => h("a", { class: "tag", href: `#/kinds/${encodeURIComponent(kind)}` }, kind))), Object.keys(it.labels).length ? fact("Labels", Object.entries(it.labels).map(([key, value]) => h("span", { class: "tag" }, `${key}=${value}`))) : null));

const heldPanel = (it, held) => h("section", { class: "panel", key: "held" }, h("header", {}, h("h2", {}, "Observers"), h("span", { class: "fine" }, number(held.total)), h("a", { class: "quiet end", href: `#/observers?service=${encodeURIComponent(it.name)}` }, "As a list")),
  held.items.length === 0 ? h("p", { class: "fine" }, "It holds no observer.") : table("Observers of this service", [
    { title: "Observer", class: "name", cell: observerLink }, { title: "Health", cell: health }, { title: "Kind", isExtra: true, cell: (row) => row.kind }, { title: "Last started", isExtra: true, class: "when", cell: (row) => time(row.started_at) }, { title: "Reason", class: "text", isSecond: true, cell: note },
  ], held.items));

const eventsPanel = (events) => h("section", { class: "panel", key: "events" }, h("h2", {}, "Recent events"), events.items.length === 0 ? h("p", { class: "fine" }, "No events are stored.") : table("Recent events", [
  { title: "When", class: "when", cell: (event) => time(event.at) }, { title: "Event", isHead: true, cell: (event) => what(event.type) }, { title: "Observer", class: "name fit", cell: (event) => (event.burst ? counted(event.burst.count, "observer") : event.observer ? observerLink(event.observer) : "") }, { title: "Cause", class: "text", isSecond: true, cell: (event) => causeOf(event) },
], events.items));

function draw({ name, it, former, picture, held, events }, { params }, context) {
  const crumb = h("p", { class: "crumb" }, h("a", { href: "#/services" }, "Services"));
  const lanes = picture ? lanesPanel(picture, capacities(it ? [it] : []), { title: "Observers held", spans: spans(params, context), context }) : null;
  if (!it) return [h("header", { class: "head" }, crumb, h("h1", {}, name)), picture?.lanes.length ? lanes : null, empty("No service of this name is known", "The list shows ended services for a while; the timeline shows them for 24 hours.", h("a", { class: "button", href: "#/services" }, "Services"))];
  return [
    h("header", { class: "head" }, crumb, h("h1", {}, it.name), h("span", { class: "status pill", "data-state": it.state }, stateOf(it)), it.is_deleted ? null : h("div", { class: "row end" }, orders(it, context))),
    lanes, factsPanel(counting(it, held)),
    picture?.incidents.length ? h("section", { class: "panel", key: "incidents" }, h("h2", {}, picture.incidents.every(isHandover) ? "Handovers" : picture.incidents.some(isHandover) ? "Incidents and handovers" : "Incidents"), picture.incidents.some((one) => one.from !== it.name) ? h("p", { class: "fine", key: "others" }, `Those of other services moved observers to ${it.name}.`) : null, incidentList(picture.incidents.toReversed().slice(0, 10))) : null,
    heldPanel(it, held), eventsPanel(events),
    former.length ? h("section", { class: "panel", key: "former" }, h("h2", {}, "Former incarnations"), endedTable(former.slice(0, 20))) : null,
  ];
}

export const service = { name: "service", title: "Service", load, draw, counts: ({ picture }) => [someIncidents(picture?.incidents ?? [])] };
