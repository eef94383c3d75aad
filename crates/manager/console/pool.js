// One pool: its slots, its services, its observers that wait, and the actions on it.
import { get } from "./api.js";
import { h } from "./dom.js";
import { actions } from "./pools.js";
import { may, readable } from "./session.js";
import { bar, counted, fact, health, number, observerLink, state, table, time, timed } from "./show.js";

const SHOWN = 50;
const none = { items: [], total: 0 };

async function load({ parts: [, name] }) {
  const [it, services, waiting] = await Promise.all([get(`/v1/pools/${encodeURIComponent(name)}`), readable("services:read", () => get("/v1/services", { limit: 1000 }), none),
    readable("observers:read", () => get("/v1/observers", { pool: name, health: "waiting,restarting,moving", limit: SHOWN }), none)]);
  return { it, services: services.items.filter((one) => one.pool === name && !one.is_deleted), waiting };
}

const facts = (it) => h("section", { class: "panel", key: "facts" }, h("h2", { class: "unseen" }, "Facts"),
  h("p", { class: "load spread" }, h("strong", {}, number(it.held)), ` of ${counted(it.capacity, "slot")}`, h("span", { class: "fine" }, `${number(it.free)} free`)),
  bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`),
  h("dl", { class: "facts" }, fact("Type", it.single ? "single" : "shared"), fact("Admission", state(it.paused ? "paused" : "open")), fact("Failure tolerance", counted(it.failure_tolerance, "service")),
    fact("Needed", counted(it.needed, "slot")), fact("Waiting for a slot", number(it.waiting)), fact("Running", number(it.health.running ?? 0))));

const servicesPanel = (services) => h("section", { class: "panel", key: "services" }, h("header", {}, h("h2", {}, "Services"), h("span", { class: "fine" }, number(services.length))),
  services.length === 0 ? h("p", { class: "fine" }, "No service of this pool runs.") : table("Services of this pool", [
    { title: "Service", class: "name", cell: (row) => h("a", { href: `#/services/${encodeURIComponent(row.name)}` }, row.name) }, { title: "State", cell: (row) => state(row.state) },
    { title: "Used", isExtra: true, class: "progress", cell: (row) => bar(row.held, row.capacity, `${number(row.held)} of ${number(row.capacity)} slots used`) }, { title: "Held", class: "n", cell: (row) => `${number(row.held)} of ${number(row.capacity)}` },
    { title: "Last heartbeat", isExtra: true, class: "when", cell: (row) => time(row.last_heartbeat_at) },
  ], services.slice(0, SHOWN)), services.length > SHOWN ? h("p", { class: "fine" }, `The first ${number(SHOWN)}.`) : null);

const observersPanel = (it, { items, total }) => h("section", { class: "panel", key: "observers" },
  h("header", {}, h("h2", {}, "Observers that wait, restart or move"), h("span", { class: "fine" }, number(total)), h("a", { class: "quiet end", href: `#/observers?pool=${encodeURIComponent(it.name)}` }, "All observers of the pool")),
  items.length === 0 ? h("p", { class: "fine" }, "All observers of this pool that should run are running.") : table("Observers that wait, restart or move", [
    { title: "Observer", class: "name", cell: observerLink }, { title: "Health", cell: health }, { title: "Reason", class: "text", isSecond: true, cell: (row) => timed(row.reason) },
  ], items), total > items.length ? h("p", { class: "fine" }, `The first ${number(items.length)}.`) : null);

const draw = ({ it, services, waiting }, _route, context) => [
  h("header", { class: "head" }, h("p", { class: "crumb" }, h("a", { href: "#/pools" }, "Pools")), h("h1", {}, it.name), it.paused ? h("span", { class: "status pill", "data-state": "paused" }, "paused") : null,
    may("pools:write") ? h("div", { class: "row end" }, actions(it, context)) : null),
  it.needed > it.capacity ? h("p", { class: "notice", key: "short" }, `Pool ${it.name} needs ${counted(it.needed - it.capacity, "slot")} more.`) : null,
  facts(it), servicesPanel(services), observersPanel(it, waiting),
];

export const pool = { name: "pool", title: "Pool", load, draw, elsewhere: () => ({ text: "Pools", href: "#/pools" }) };
