// Pools: the used slots of each, and whether managers admit observers to it.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { COUNTS } from "./nav.js";
import { rowActions } from "./row-actions.js";
import { may } from "./session.js";
import { bar, counted, empty, explained, number, state, table } from "./show.js";

const path = (name) => `/v1/pools/${encodeURIComponent(name)}`;

async function pause(it, context) {
  const paused = !it.paused;
  const sure = !paused || await confirm({ title: `Pause pool ${it.name}?`, lines: ["No more observers get a slot of this pool until you resume it. Those that have one keep it."], action: `Pause ${it.name}`, danger: false });
  if (sure) await context.attempt(() => call("PUT", path(it.name), { paused }), `Pool ${it.name} ${paused ? "is paused" : "gives slots to observers again"}.`);
}

async function remove(it, context) {
  const lines = ["This also deletes the work queue of the pool. The manager refuses to delete a pool that has services or observers, or that the configuration of the manager names (manager.pools)."];
  if (await confirm({ title: `Delete pool ${it.name}?`, lines, action: `Delete ${it.name}` })) await context.attempt(async () => { await call("DELETE", path(it.name)); location.hash = "#/pools"; }, `Pool ${it.name} deleted.`);
}

/** The actions `{ text, run(context), isDanger }` that the state of a pool allows. */
export const poolActions = (it) => [
  { text: it.paused ? "Resume" : "Pause", run: (context) => pause(it, context) },
  it.services === 0 ? { text: "Delete", run: (context) => remove(it, context), isDanger: true } : null].filter(Boolean);

/** The buttons of a pool. */
export const actions = (it, context) => rowActions(`pool ${it.name}`, poolActions(it).map((one) => ({ ...one, label: `${one.text} pool ${it.name}`, run: () => one.run(context) })));

const TYPES = [["shared", "shared: its observers run on all of its services"], ["single", "single: its observers all run on one service, and the others stand by"]];

const create = (items, context) => askChange({
  title: "New pool", lines: ["Services name the pool to which they belong; a pool also appears with its first service or observer."], action: "Create", check: ({ name }) => (!name ? { name: "a pool needs a name" } : items.some((it) => it.name === name) ? { name: `pool ${name} exists` } : {}), fieldOf: () => ["name"],
  fields: [{ name: "name", label: "Name", placeholder: "exchange" }, { name: "type", label: "Type", value: "shared", options: TYPES, hint: "you cannot change the type later" }],
  send: ({ name, type }) => call("PUT", path(name), { single: type === "single" }), done: ({ name }) => `Pool ${name} created.`,
}, context);

const draw = ({ items }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Pools"), h("p", { class: "total" }, number(items.length)),
    may("pools:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => create(items, context) }, "New pool")) : null),
  explained("A pool is a group of services that divide a set of observers among themselves; each service and each observer belongs to exactly one pool. In a single pool, one service runs all observers, and the others stand by to take over."),
  items.length === 0 ? empty("No pools", "A pool appears with its first service or observer.") : table("Pools", [
    { title: "Pool", class: "name", cell: (it) => h("a", { href: `#/pools/${encodeURIComponent(it.name)}` }, it.name) },
    { title: "Admission", cell: (it) => state(it.paused ? "paused" : "open") },
    { title: "Type", isExtra: true, cell: (it) => (it.single ? "single" : "shared") },
    { title: "Services", isExtra: true, class: "n", cell: (it) => number(it.services) },
    { title: "Used", isExtra: true, class: "progress", cell: (it) => bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`) },
    { title: "Held", class: "n", cell: (it) => `${number(it.held)} of ${number(it.capacity)}` },
    { title: "Needed", isExtra: true, class: "n", cell: (it) => number(it.needed) },
    { title: "Waiting for a slot", isExtra: true, class: "n", cell: (it) => number(it.waiting) },
    { title: "Running", isExtra: true, class: "n", cell: (it) => number(it.health.running ?? 0) },
    { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => (may("pools:write") ? actions(it, context) : "") },
  ], items),
  items.some((it) => it.needed > it.capacity) ? h("p", { class: "notice", key: "short" }, items.filter((it) => it.needed > it.capacity).map((it) => `Pool ${it.name} needs ${counted(it.needed - it.capacity, "slot")} more. `)) : null,
];

export const pools = { name: "pools", title: "Pools", load: () => get("/v1/pools"), draw, counts: ({ total }) => [COUNTS.pools(total)] };
