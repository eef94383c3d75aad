// Events, newest first; the first page is live. The address keeps the filter.
import { get } from "./api.js";
import { exact, shortClock } from "./clock.js";
import { h } from "./dom.js";
import { gap, gapOf, isBound } from "./gap.js";
import { SPANS } from "./lanes-scale.js";
import { askRange } from "./range.js";
import { may, readable } from "./session.js";
import { EVENT_TYPES, asker, causeOf, counted, empty, eventWord, number, observerLink, pager, table, time, what } from "./show.js";

/** The parameters of the address that filter. */
const FILTERS = ["type", "observer", "service", "span", "since", "until"];
const PAGE = 100;
/** The choice of the type that leaves out what an observer repeats that fails again and again. */
const NO_ATTEMPTS = "no-attempts", ATTEMPTS = ["errored", "restarted"];
const SUGGESTED = 20;
const TYPING_MS = 400;
const DAY_MS = 86400000;
const ID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i;
const NONE = { items: [], next_cursor: null, total: null };
let typing = null;
addEventListener("hashchange", () => clearTimeout(typing));

/** The observer that the address names by its id or name; without one of this name, those whose names contain it. */
async function observerOf(key) {
  if (!key) return { id: "", like: [] };
  if (ID.test(key)) return { id: key, like: [] };
  const [name, namespace] = key.split("/").reverse();
  const read = (path, parameters, otherwise) => readable("observers:read", () => get(path, parameters), otherwise);
  const found = await read("/v1/observers", { q: name, namespace, limit: SUGGESTED }, NONE);
  const it = found.items.find((one) => one.name === name) ?? ((found.total ?? 0) > found.items.length ? await read(`/v1/observers/${encodeURIComponent(name)}`, { namespace }, null) : null);
  return { id: it?.id ?? null, like: it ? [] : found.items };
}

async function load({ params }) {
  const [about, services] = await Promise.all([observerOf(params.get("observer")), readable("services:read", () => get("/v1/services", { limit: 1000 }), { items: [] })]);
  const page = { ...NONE, about, services: services.items };
  if (about.id === null) return page;
  const span = params.get("span"), since = Object.hasOwn(SPANS, span ?? "") ? span : params.get("since");
  const filter = { type: params.get("type") === NO_ATTEMPTS ? EVENT_TYPES.filter((it) => !ATTEMPTS.includes(it)).join(",") : params.get("type"), observer: about.id, service: params.get("service"), since, until: params.get("until") };
  return { ...page, ...(await get("/v1/events", { ...filter, cursor: params.get("cursor"), limit: PAGE })) };
}

const field = (label, control) => h("label", { class: "field" }, h("span", {}, label), control);

/** What a type of event is about. */
const groupOf = (type) => GROUPS.find(([, like]) => like.test(type))[0];
const GROUPS = [["Services", /^(service_|rebalanced)/], ["Batches", /^batch_/], ["Rollouts", /^rollout_/], ["Pools, limits and rates", /^(pool|limit|rate)_/], ["Managers", /^(safe_mode|work_queue_created|republish_capped|quarantine_capped|unreadable)/], ["Observers", /./]];

/** Options under the headings of their groups; those without a group first. */
function grouped(all, option) {
  const groups = Map.groupBy(all, ([, , group]) => group ?? ""), names = [...GROUPS.map(([name]) => name)].reverse().filter((it) => groups.has(it));
  return [(groups.get("") ?? []).map(option), names.map((name) => h("optgroup", { label: name, key: name }, groups.get(name).map(option)))];
}

function choice(label, name, any, options, params, context) {
  const now = params.get(name) ?? "", all = !now || options.some(([value]) => value === now) ? options : [...options, [now, name === "type" ? now.split(",").map(eventWord).join(", ") : now]];
  return field(label, h("select", { name, onchange: (event) => context.set({ [name]: event.target.value, cursor: "" }) },
    h("option", { value: "", selected: !now }, any), grouped(all, ([value, text]) => h("option", { value, selected: value === now }, text))));
}

/** Each incarnation of a service has events of its own: those that ended say when they started. */
const serviceName = (it) => (it.is_deleted ? `${it.name}, ${it.state}, started ${exact(it.created_at)}` : it.name);

function observerField({ about, items }, params, context) {
  const later = (event) => {
    clearTimeout(typing);
    const value = event.target.value.trim();
    typing = setTimeout(() => context.set({ observer: value, cursor: "" }), TYPING_MS);
  };
  const given = params.get("observer") ?? "", known = items.find((it) => it.observer?.id === given)?.observer;
  return field("Observer", h("input", { type: "search", name: "observer", id: "search", list: "event-observers", placeholder: "name   /", value: known?.name ?? given, autocomplete: "off", spellcheck: "false", oninput: later }));
}

function spanChoice(params, context) {
  const isRange = Boolean(params.get("since") || params.get("until")), now = isRange ? "range" : params.get("span") ?? "";
  const choose = async (event) => {
    const value = event.target.value;
    if (value !== "range") return context.set({ span: value, since: "", until: "", cursor: "" });
    const list = event.target, span = await askRange();
    // The list has the focus again, so a redraw does not choose for it.
    list.value = span ? value : now;
    if (span) context.set({ ...span, span: "", cursor: "" });
    return undefined;
  };
  const said = (at) => (Date.now() - Date.parse(at) < DAY_MS ? shortClock(at) : exact(at));
  const range = isRange ? `${params.get("since") ? said(params.get("since")) : "start"} to ${params.get("until") ? said(params.get("until")) : "now"}` : "from … to …";
  return field("Time", h("select", { name: "span", onchange: choose }, h("option", { value: "", selected: !now }, "any"),
    Object.entries(SPANS).map(([value, [text]]) => h("option", { value, selected: value === now }, `last ${text}`)), h("option", { value: "range", selected: isRange }, range)));
}

function filters(data, params, context) {
  const services = data.services.toSorted((a, b) => Number(a.is_deleted) - Number(b.is_deleted) || a.name.localeCompare(b.name, "en", { numeric: true }));
  return h("form", { class: "row fields", role: "search", "aria-label": "Filter", onsubmit: (event) => event.preventDefault() },
    choice("Type", "type", "any", [[NO_ATTEMPTS, "any but errors and restarts"], ...EVENT_TYPES.map((it) => [it, eventWord(it), groupOf(it)])], params, context),
    observerField(data, params, context), h("datalist", { id: "event-observers", key: "like" }, data.about.like.map((it) => h("option", { value: it.namespace === "default" ? it.name : `${it.namespace}/${it.name}` }))),
    may("services:read") ? choice("Service", "service", "any", services.map((it) => [it.id, serviceName(it)]), params, context) : null,
    spanChoice(params, context));
}

const serviceLink = ({ service: it }) => (it ? h("a", { href: `#/services/${encodeURIComponent(it.name)}` }, it.name) : "");

/** The second line of an event on a phone: its service, its cause and its gap. */
function under(it) {
  const parts = [it.service ? [it.observer || it.burst ? "on " : "", serviceLink(it)] : null, it.text ? causeOf(it) : null, gapOf(it) === null ? null : ["gap ", gap(gapOf(it), isBound(it))]];
  return parts.filter(Boolean).map((part, at) => [at ? " · " : "", part]);
}

function nothing({ about }, isFiltered, clear) {
  const button = h("button", { type: "button", class: "button", onclick: clear }, "Clear the filter");
  if (about.id === null) return empty("No such observer", about.like.length ? ["Names that contain it: ", about.like.slice(0, 5).map((it, at) => [at ? ", " : "", h("a", { href: `#/events?observer=${it.id}` }, it.name)])] : "No observer has this name, or a name that contains it.", button);
  return isFiltered ? empty("No events", "No event matches the filter.", button) : empty("No events", "Events of observers and services appear here.");
}

function draw(data, route, context) {
  const { items, next_cursor: next, total } = data, { params } = route;
  const isFiltered = FILTERS.some((it) => params.get(it)), clear = () => context.set(Object.fromEntries([...FILTERS, "cursor"].map((it) => [it, ""])));
  return [
    h("header", { class: "head" }, h("h1", {}, "Events"), h("p", { class: "total", role: "status" }, total === null ? "" : `${number(total)}${isFiltered ? " match" : ""}`),
      isFiltered ? h("button", { type: "button", class: "quiet", onclick: clear }, "Clear the filter") : null),
    filters(data, params, context),
    items.length === 0 ? nothing(data, isFiltered, clear) : table("Events", [
      { title: "When", class: "when", cell: (it) => time(it.at) },
      { title: "Event", isHead: true, cell: (it) => what(it.type) },
      { title: "Observer", class: "name fit", cell: (it) => it.burst ? counted(it.burst.count, "observer") : it.observer ? observerLink(it.observer) : "" },
      { title: "Service", isExtra: true, cell: serviceLink },
      { title: "Gap", isExtra: true, class: "n", cell: (it) => (gapOf(it) === null ? "" : gap(gapOf(it), isBound(it))) },
      { title: "Cause", class: "text", isSecond: true, cell: (it) => causeOf(it), under },
      { title: "By", isExtra: true, cell: (it) => asker(it.by) },
    ], items),
    pager(["Newest", "Older"], next, route, context, "Older events: not live"),
  ];
}

export const events = { name: "events", title: "Events", load, draw };
