// The services: used slots, last heartbeat, version; cards for few services, a table for many.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm, toast } from "./ask.js";
import { asWhole } from "./create-check.js";
import { h } from "./dom.js";
import { COUNTS } from "./nav.js";
import { isDev, may } from "./session.js";
import { bar, bytes, counted, duration, empty, fact, number, observerLink, state, table, time } from "./show.js";

const CARDS = 12;
const ROWS = 500;
const ORDER = ["suspect", "draining", "cordoned", "active", "standby"];

async function load() {
  const page = await get("/v1/services", { limit: 1000 });
  return { total: page.total, living: page.items.filter((it) => !it.is_deleted), over: page.items.filter((it) => it.is_deleted) };
}

const path = (it) => `/v1/services/${encodeURIComponent(it.name)}`;

/** Nothing, or a whole number. */
const optional = (name, least) => (typed) => { const wrong = typed[name] ? asWhole(least, Infinity)(typed[name]) : null; return wrong ? { [name]: wrong } : {}; };

/** How many slots are free on the other services of its pool that take observers; null if that is not known, or if a standby would take over. */
async function freeBeside(it) {
  const page = await get("/v1/services", { limit: 1000 }).catch(() => null);
  const others = page?.items.filter((one) => !one.is_deleted && one.pool === it.pool && one.id !== it.id) ?? [];
  if (!page || page.total > page.items.length || others.some((one) => one.state === "standby")) return null;
  return others.reduce((sum, one) => sum + (one.state === "active" ? one.free : 0), 0);
}

const room = (it, free) => `The other services of pool ${it.pool} have ${counted(free, "free slot")}`;

/** Whether there is room for the observers that the service would hand over. */
function forecast(it, free) {
  if (free === null || it.held === 0) return [];
  return [free >= it.held ? `${room(it, free)} for the ${number(it.held)} in use here.` : `${room(it, free)}, but ${number(it.held)} ${it.held === 1 ? "is" : "are"} in use here: until there are more, ${counted(it.held - free, "slot")} stay in use here.`];
}

const drain = async (it, context) => askChange({
  title: `Drain ${it.name}?`, action: it.held ? `Drain ${counted(it.held, "observer")}` : "Drain", danger: true,
  lines: [`${it.held ? "The service hands over its observers while other services have room." : "It holds no observer: there is nothing to hand over."} It accepts no more until you uncordon it.`, ...forecast(it, await freeBeside(it))],
  fields: [{ name: "per_second", label: "Maximum observers per second", placeholder: "100" }], check: optional("per_second", 1),
  send: ({ per_second: pace }) => call("POST", `${path(it)}/drain`, pace ? { per_second: Number(pace) } : {}), done: () => `Requested: drain ${it.name}.`,
}, context);

async function resize(it, context) {
  const free = await freeBeside(it);
  const homeless = ({ capacity }) => (free === null || !/^\d+$/.test(capacity) ? 0 : it.held - free - Number(capacity));
  return askChange({
    title: `Capacity of ${it.name}`, action: "Set",
    lines: [`It has ${counted(it.capacity, "slot")}, of which ${number(it.held)} are in use. If you reduce its capacity, it hands over the observers for which it has no slot any more.`, ...(free === null ? [] : [`${room(it, free)}.`])],
    fields: [{ name: "capacity", label: "Slots", placeholder: String(it.capacity), hint: "if empty, the number in its configuration" }], check: optional("capacity", 0), lookAfter: "capacity",
    look: async (typed) => (homeless(typed) > 0 ? { text: `Observers that take ${counted(homeless(typed), "slot")} would run nowhere until there are more slots.`, isDanger: true } : ""),
    send: ({ capacity }) => call("PATCH", path(it), { capacity: capacity ? Number(capacity) : null }), done: () => `Capacity change of ${it.name} requested.`,
  }, context);
}

export async function rebalance(context) {
  const plan = await context.attempt(() => call("POST", "/v1/rebalance:plan", {}));
  if (!plan) return;
  if (plan.pools.length === 0) return toast("The observers are spread in proportion to the capacities: there is nothing to move.", "good");
  const changes = plan.pools.flatMap((pool) => pool.services.filter((it) => it.target !== it.held).map((it) => `${it.name}: ${number(it.held)} to ${number(it.target)}`));
  const moves = plan.pools.reduce((sum, pool) => sum + pool.moves, 0);
  const lines = changes.length > 8 ? [...changes.slice(0, 8), `and ${number(changes.length - 8)} more`] : changes;
  const answer = await confirm({ title: `Move ${counted(moves, "observer")}?`, lines, action: `Move ${number(moves)}`, danger: false });
  if (answer) await context.attempt(() => call("POST", "/v1/rebalance:apply", {}), `Moving ${counted(moves, "observer")}.`);
}

/** What becomes of its observers if the service dies. */
function afterDeath(it, free) {
  if (it.held === 0) return "It holds no observer.";
  if (free === null) return "Its observers continue on other services, as far as these have free slots.";
  if (free >= it.held) return `Its observers continue on the other services. ${room(it, free)} for the ${number(it.held)} in use here.`;
  return `${room(it, free)}, but ${number(it.held)} ${it.held === 1 ? "is" : "are"} in use here: ${free === 0 ? "its observers run" : `observers that take ${counted(it.held - free, "slot")} run`} nowhere until ${it.name} is back.`;
}

/** Only `everwatch dev` can do it. */
async function kill(it, context) {
  const lines = ["Its process ends at once, as if its host had failed. A new process starts a few seconds later.", afterDeath(it, await freeBeside(it))];
  if (await confirm({ title: `Kill ${it.name}?`, lines, action: "Kill", danger: true })) await context.attempt(() => call("POST", `/dev/chaos/${encodeURIComponent(it.name)}/kill?id=${it.id}`), `${it.name} is killed.`);
}

/** Whether a user has ordered that it takes no observers. */
export const isClosed = (it) => Boolean(it.cordoned || it.drain);

/** The actions `{ word, run(context) }` that its state allows and the session permits. */
export function serviceActions(it) {
  if (!may("services:operate")) return [];
  const post = (verb, done) => (context) => context.attempt(() => call("POST", `${path(it)}/${verb}`), done);
  return [
    it.cordoned ? { word: "Uncordon", run: post("uncordon", `Requested: uncordon ${it.name}.`) } : { word: "Cordon", run: post("cordon", `Requested: cordon ${it.name}.`) },
    it.drain ? null : { word: "Drain", run: (context) => drain(it, context) },
    { word: "Resize", run: (context) => resize(it, context) },
    isDev() ? { word: "Kill", danger: true, run: (context) => kill(it, context) } : null,
  ].filter(Boolean);
}

/** The buttons of its actions. */
export function orders(it, context) {
  const all = serviceActions(it);
  return all.length === 0 ? null : h("div", { class: "row" }, all.map(({ word, run, danger }) => h("button", { type: "button", class: danger ? "button danger" : "button", key: word, onclick: () => run(context) }, word)));
}

export function progress({ of, moved, waits }) {
  return h("div", { class: "drain", key: "drain" },
    h("p", { class: "fine" }, `Draining: ${number(moved)} of ${number(of)} handed over`),
    bar(moved, of, `${number(moved)} of ${number(of)} handed over`, false),
    waits ? h("p", { class: "fine warn" }, `Waiting: ${waits}`) : null);
}

/** That its observers stand still, although managers cannot tell yet. */
export const frozen = () => h("p", { class: "fine warn", key: "frozen" }, "Frozen on purpose: its observers stand still, until the broker notices and they move.");

/** The observers whose code blocks a thread of the service. */
export function stalls({ stalled }) {
  return h("p", { class: "fine warn", key: "stalled" }, "Stalled by ",
    stalled.flatMap((it, at) => [at ? ", " : null, observerLink(it), ` for ${duration(it.stalled_ms)}`]));
}

const memory = (it) => (it.resident_bytes == null ? "–" : bytes(it.resident_bytes));
const link = (it) => h("a", { href: `#/services/${encodeURIComponent(it.name)}` }, it.name);

/** How it is, as its heartbeats and its registration say. */
export const vitals = (it) => [
  fact("Last heartbeat", time(it.last_heartbeat_at)), fact("Started", time(it.created_at)), fact("Host", it.host),
  fact("Memory", memory(it)), fact("Loop lag", it.loop_lag_ms == null ? "–" : duration(it.loop_lag_ms)),
  fact("Version", it.version), fact("Incarnation", h("code", { title: it.id }, it.id.slice(0, 8)))];

function card(it, context) {
  return h("li", { class: "card", key: it.id, "data-state": it.state },
    h("header", {}, h("h2", {}, link(it)), state(it.state)),
    h("p", { class: "load" }, h("strong", {}, number(it.held)), ` of ${number(it.capacity)} slots`, h("span", { class: "fine" }, `${isClosed(it) ? "accepts no more" : `${number(it.free)} free`}${it.weight_max > 1 ? `, maximum weight ${number(it.weight_max)}` : ""}`)),
    bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`),
    it.drain ? progress(it.drain) : null,
    it.frozen ? frozen() : null,
    it.stalled.length ? stalls(it) : null,
    it.unconfirmed ? h("p", { class: "fine warn", key: "unconfirmed" }, it.unconfirmed) : null,
    h("dl", { class: "facts" }, fact("Pool", it.pool), vitals(it), fact("Kinds", it.kinds.join(", "))),
    orders(it, context),
    h("a", { class: "more", href: `#/observers?service=${encodeURIComponent(it.name)}` }, "Its observers", h("span", { class: "unseen" }, ` (${it.name})`)));
}

const byName = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true });
const SORTS = {
  name: byName, state: (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || byName(a, b), pool: (a, b) => a.pool.localeCompare(b.pool) || byName(a, b),
  used: (a, b) => a.held / Math.max(a.capacity, 1) - b.held / Math.max(b.capacity, 1) || byName(a, b), heartbeat: (a, b) => a.last_heartbeat_at.localeCompare(b.last_heartbeat_at), version: (a, b) => a.version.localeCompare(b.version) || byName(a, b),
};

/** Sorted as the address says. Unless a column is chosen, problems come first in a table; cards keep their places, so that no button moves under the pointer. */
function arranged(living, params) {
  const name = params.get("sort") ?? (living.length <= CARDS ? "name" : "state"), sort = SORTS[name.replace("-", "")] ?? SORTS.state;
  return living.toSorted((a, b) => (name.startsWith("-") ? sort(b, a) : sort(a, b)));
}

function rows(living, params, context) {
  const now = params.get("sort") ?? "state";
  const head = (title, name) => h("button", { type: "button", class: "sort", "aria-label": `Sort by ${title.toLowerCase()}`, onclick: () => context.set({ sort: now === name ? `-${name}` : name }) },
    title, h("span", { "aria-hidden": "true" }, now === name ? " ↑" : now === `-${name}` ? " ↓" : ""));
  return table("Services", [
    { title: head("Service", "name"), class: "name", cell: link },
    { title: head("State", "state"), cell: (it) => state(it.state) },
    { title: head("Pool", "pool"), isExtra: true, cell: (it) => it.pool },
    { title: head("Used", "used"), isExtra: true, class: "progress", cell: (it) => bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`) },
    { title: "Held", class: "n", cell: (it) => `${number(it.held)} of ${number(it.capacity)}` },
    { title: head("Last heartbeat", "heartbeat"), isExtra: true, class: "when", cell: (it) => time(it.last_heartbeat_at) },
    { title: "Memory", isExtra: true, class: "n", cell: memory },
    { title: head("Version", "version"), isExtra: true, cell: (it) => it.version },
    { title: "Host", isExtra: true, class: "text", cell: (it) => it.host },
  ], living.slice(0, ROWS));
}

function draw({ living, over, total }, { params }, context) {
  const sorted = arranged(living, params), asCards = living.length <= CARDS;
  const late = over.toSorted((a, b) => b.modified_at.localeCompare(a.modified_at)).slice(0, 20);
  return [
    h("header", { class: "head" }, h("h1", {}, "Services"), h("p", { class: "total" }, number(living.length)),
      living.length > 1 && may("services:operate") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button", onclick: () => rebalance(context) }, "Rebalance")) : null),
    living.length === 0 ? empty("No services", ["Observers wait until a service runs them. Start one with: ", h("code", {}, "everwatch run service")]) : asCards ? h("ul", { class: "cards" }, sorted.map((it) => card(it, context))) : rows(sorted, params, context),
    sorted.length > ROWS ? h("p", { class: "fine" }, `${number(ROWS)} of ${counted(sorted.length, "service")} shown.`) : null,
    late.length ? h("section", { class: "panel across" }, h("h2", {}, "Recently ended"), endedTable(late)) : null,
    total > living.length + over.length ? h("p", { class: "fine" }, `The first ${number(living.length + over.length)} of ${counted(total, "service")} shown.`) : null,
  ];
}

export const endedTable = (items) => table("Recently ended", [
  { title: "Name", cell: link },
  { title: "State", cell: (it) => state(it.state) },
  { title: "Ended", class: "when", cell: (it) => time(it.modified_at) },
  { title: "Last heartbeat", isExtra: true, class: "when", cell: (it) => time(it.last_heartbeat_at) },
  { title: "Host", isExtra: true, cell: (it) => it.host },
  { title: "Incarnation", isExtra: true, cell: (it) => h("code", { title: it.id }, it.id.slice(0, 8)) },
], items);

export const services = { name: "services", title: "Services", load, draw, counts: ({ living }) => [COUNTS.services(living.length)] };
