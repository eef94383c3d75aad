// The list: one page at a time by cursor, the filter in the address, actions on what is ticked.
import { get } from "./api.js";
import { h } from "./dom.js";
import { columnMenu, columnsOf, note, whereOf } from "./list-columns.js";
import { SORTED_MAX, sortedPage } from "./list-sort.js";
import { fitting } from "./match.js";
import { COUNTS } from "./nav.js";
import { ACTIONS, actOn, mayDo, possible } from "./observer-actions.js";
import { FILTERS, saveButton, viewsBar } from "./saved-views.js";
import { may, readable } from "./session.js";
import { HEALTHS, RESTS, countOf, counted, empty, number, observerLink, table, word } from "./show.js";

const PAGE = 100;
const TYPING_MS = 150;
/** How many similar names the list suggests at most. */
const SIMILAR_MAX = 3;
const FRESH_PAGE = { cursor: "", page: "" };

/** Ticked observers by id; kept while pages turn. */
const ticked = new Map();
/** Where the pages before this one started. */
const behind = new Map();
// A selection of which the user no longer thinks must not be acted on: it lasts while the list or one observer is open.
addEventListener("hashchange", () => { clearTimeout(typing); if (!/^#\/observers(?:[/?]|$)/.test(location.hash)) ticked.clear(); });
let typing = null;
let working = null;

async function load({ params }) {
  const filter = Object.fromEntries(FILTERS.map((name) => [name, name === "label" ? params.get(name)?.split(",").map((it) => it.trim()).filter(Boolean) : params.get(name)]));
  // A role may permit observers and nothing else: the list then lacks counts and choices.
  const none = { items: [] };
  const [page, stats, kinds, pools, services] = await Promise.all([
    sortedPage(filter, params, PAGE),
    readable("status:read", () => get("/v1/stats"), { observers: {}, health: {} }), readable("kinds:read", () => get("/v1/kinds"), none), readable("pools:read", () => get("/v1/pools"), none),
    readable("services:read", () => get("/v1/services", { state: "active,standby,cordoned,draining,suspect", limit: 1000 }), none)]);
  for (const it of page.items) if (ticked.has(it.id)) ticked.set(it.id, it);
  return { page, counts: await countsOf(filter, stats), similar: await similarTo(filter, page), kinds: kinds.items, pools: pools.items, services: services.items };
}

/** Observers whose names resemble the typed one, if it matches none. */
async function similarTo(filter, page) {
  if (page.total > 0 || !filter.q) return [];
  const { items } = await get("/v1/observers", { ...filter, q: undefined, sort: "name", limit: SORTED_MAX });
  return fitting(items, (it) => it.name, filter.q).slice(0, SIMILAR_MAX).map(({ it }) => it);
}

/** What the list says instead of observers that match the filter. */
function noMatch(typedName, similar) {
  if (similar.length) return ["No observer has such a name. Did you mean ", similar.map((it, at) => [at === 0 ? "" : at === similar.length - 1 ? " or " : ", ", observerLink(it)]), "?"];
  const field = { kind: "Kind", pool: "Pool", service: "Service", namespace: "Namespace", reason: "Reason" }[typedName.split("=")[0]];
  if (field && typedName.includes("=")) return `No observer has such a name. Choose it in the field “${field}”.`;
  return typedName.includes("=") ? "No observer has such a name. To filter by a label, write it in the field “Labels”." : "No observer matches this filter.";
}

/** The parameters that a chip sets. */
const CHIPS = ["health", "status"];

/** How many observers each chip would show, beside the other filters. */
async function countsOf(filter, stats) {
  const others = FILTERS.filter((it) => it !== "sort" && !CHIPS.includes(it) && filter[it]?.length);
  const found = others.length === 0 && may("status:read") ? stats : await get("/v1/observers:counts", Object.fromEntries(others.map((it) => [it, filter[it]])));
  return (it) => countOf(found, it);
}

function choice(label, name, options, params, context) {
  const now = params.get(name) ?? "";
  const all = options.some(([value]) => value === now) || !now ? options : [...options, [now, now]];
  return h("label", { class: "field" }, h("span", {}, label),
    h("select", { name, onchange: (event) => context.set({ [name]: event.target.value, ...FRESH_PAGE }) },
      h("option", { value: "", selected: !now }, "any"),
      all.map(([value, text]) => h("option", { value, selected: value === now }, text))));
}

function typed(label, name, placeholder, params, context, id) {
  const later = (event) => {
    clearTimeout(typing);
    const value = event.target.value.trim();
    typing = setTimeout(() => context.set({ [name]: value, ...FRESH_PAGE }), TYPING_MS);
  };
  return h("label", { class: "field" }, h("span", {}, label),
    h("input", { type: "search", name, id, placeholder, value: params.get(name) ?? "", autocomplete: "off", spellcheck: "false", oninput: later }));
}

function filters({ page, counts, kinds, pools, services }, params, context) {
  const chosen = (name) => (params.get(name) ?? "").split(",").filter(Boolean);
  /** Only observers that are to run have a health: one sort of chip at a time. */
  const toggle = (name, it) => context.set({ health: "", status: "", [name]: (chosen(name).includes(it) ? chosen(name).filter((one) => one !== it) : [...chosen(name), it]).join(","), ...FRESH_PAGE });
  const chip = (name, it, count) => h("button", { key: it, type: "button", class: "chip", "data-status": it, "aria-pressed": String(chosen(name).includes(it)), onclick: () => toggle(name, it) },
    word(it), count === null ? null : h("b", {}, number(count)));
  const namesOf = (read) => [...new Set(page.items.map(read).filter(Boolean))].sort().map((it) => [it, it]);
  const namespaces = namesOf((it) => it.namespace);
  return h("form", { class: "filters", role: "search", "aria-label": "Filter", onsubmit: (event) => event.preventDefault() },
    h("div", { class: "chips", role: "group", "aria-label": "Health and status" },
      HEALTHS.map((it) => chip("health", it, counts(it))), RESTS.map((it) => chip("status", it, counts(it)))),
    h("div", { class: "row fields" },
      typed("Name", "q", "part of a name   /", params, context, "search"),
      choice("Kind", "kind", kinds.map((it) => [it.name, it.name]), params, context),
      namespaces.length > 1 || params.get("namespace") ? choice("Namespace", "namespace", namespaces, params, context) : null,
      choice("Pool", "pool", pools.map((it) => [it.name, it.name]), params, context),
      choice("Service", "service", [...new Set(services.map((it) => it.name))].map((it) => [it, it]), params, context),
      choice("Reason", "reason_code", namesOf((it) => it.reason_code), params, context),
      typed("Labels", "label", "key=value, …", params, context)));
}

/** Whether the action does something for one of the observers. */
function canDo(name, items, page) {
  const now = new Map(page.items.map((it) => [it.id, it]));
  // What is not in this list may have changed since it was selected.
  return items.some((it) => !now.has(it.id) || possible(now.get(it.id)).includes(name));
}

function selection({ page }, context) {
  if (ticked.size === 0) return null;
  const hidden = ticked.size - page.items.filter((it) => ticked.has(it.id)).length;
  const run = async (name) => {
    const items = [...ticked.values()];
    const done = await actOn(name, items, context, (now, of) => { working = `${number(now)} of ${number(of)}`; context.redraw(); });
    working = null;
    // Those that exist stay selected: the next action may take this one back.
    if (done && name === "delete") ticked.clear();
    context.redraw();
  };
  return h("div", { class: "selection", key: "selection", role: "region", "aria-label": "Selection" },
    h("strong", {}, working ?? `${number(ticked.size)} selected${hidden ? `, ${number(hidden)} not in this list` : ""}`),
    Object.entries(ACTIONS).filter(([name]) => name !== "trigger" && mayDo(name) && canDo(name, [...ticked.values()], page)).map(([name, it]) => h("button", { type: "button", key: name, class: it.danger ? "button danger" : "button", disabled: working !== null, onclick: () => run(name) }, it.word)),
    h("button", { type: "button", class: "quiet", onclick: () => { ticked.clear(); context.redraw(); } }, "Clear"));
}

/** Columns of which the newest or the highest is looked for. */
const HIGHEST_FIRST = new Set(["started", "created_at", "restarts", "priority"]);

/** The head of a column that sorts the list. */
function sorted(title, field, params, context) {
  const now = params.get("sort") ?? "name";
  const is = now.replace("-", "") === field;
  const [first, second] = HIGHEST_FIRST.has(field) ? [`-${field}`, field] : [field, `-${field}`], next = now === first ? second : first;
  const button = h("button", { type: "button", class: "sort", "aria-label": `Sort by ${title.toLowerCase()}`, onclick: () => context.set({ sort: next, ...FRESH_PAGE }) },
    title, h("span", { "aria-hidden": "true" }, is ? (now.startsWith("-") ? " ↓" : " ↑") : ""));
  return { title: button, sorted: is ? (now.startsWith("-") ? "descending" : "ascending") : undefined };
}

function rows({ page }, params, context) {
  const all = page.items.length > 0 && page.items.every((it) => ticked.has(it.id));
  const some = page.items.some((it) => ticked.has(it.id));
  const tick = (it, on) => (on ? ticked.set(it.id, it) : ticked.delete(it.id));
  const canAct = Object.keys(ACTIONS).some(mayDo);
  return table("Observers", [
    !canAct ? null : {
      title: h("input", { type: "checkbox", "aria-label": "Select this page", checked: all, indeterminate: some && !all, onchange: (event) => { page.items.forEach((it) => tick(it, event.target.checked)); context.redraw(); } }),
      class: "tick", cell: (it) => h("input", { type: "checkbox", "aria-label": `Select ${it.name}`, checked: ticked.has(it.id), onchange: (event) => { tick(it, event.target.checked); context.redraw(); } }),
    },
    { ...sorted("Name", "name", params, context), class: "name", cell: (it) => [observerLink(it), h("span", { class: "under" }, whereOf(it), note(it))] },
    ...columnsOf(params, page.items).map((it) => ({ isExtra: !params.get("columns") && it.name !== "health", ...(it.sort ? sorted(it.title, it.sort, params, context) : { title: it.title }), class: it.class, cell: it.cell })),
  ].filter(Boolean), page.items, (it) => ({ class: ticked.has(it.id) ? "ticked" : undefined }));
}

function pager({ page }, params, context) {
  const at = page.at ?? (Number(params.get("page") ?? 1) || 1);
  const cursor = params.get("cursor") ?? "";
  const first = (at - 1) * PAGE + 1;
  const turn = (to) => { context.set({ page: to > 1 ? String(to) : "" }, false); scrollTo(0, 0); };
  const next = () => { if (page.isOwn) return turn(at + 1); behind.set(page.next_cursor, cursor); context.set({ cursor: page.next_cursor, page: String(at + 1) }, false); scrollTo(0, 0); };
  const previous = () => { if (page.isOwn) return turn(at - 1); const start = at > 2 ? behind.get(cursor) : ""; context.set(start === undefined ? FRESH_PAGE : { cursor: start, page: start ? String(at - 1) : "" }, false); };
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("span", {}, page.items.length ? `${number(first)}–${number(first + page.items.length - 1)} of ${number(page.total)}` : counted(page.total, "observer")),
    h("button", { type: "button", class: "button", disabled: page.isOwn ? at === 1 : !cursor, onclick: previous }, "Previous"),
    h("button", { type: "button", class: "button", disabled: !page.next_cursor, onclick: next }, "Next"));
}

function draw(data, { params }, context) {
  const filtered = FILTERS.some((it) => it !== "sort" && params.get(it));
  const clear = () => context.set(Object.fromEntries([...FILTERS, "cursor", "page"].map((it) => [it, ""])));
  const nothing = filtered
    ? empty("No matches", noMatch(params.get("q") ?? "", data.similar), h("button", { type: "button", class: "button", onclick: clear }, "Clear the filter"))
    : empty("No observer yet", ["Create one here, or on a terminal with: ", h("code", {}, "everwatch observer create hello --kind ticker")], may("observers:create") ? h("a", { class: "button primary", href: "#/create" }, "New observer") : null);
  return [
    h("header", { class: "head" }, h("h1", {}, "Observers"), h("p", { class: "total", role: "status" }, `${number(data.page.total)}${filtered ? " match" : ""}`), filtered ? h("button", { type: "button", class: "quiet", onclick: clear }, "Clear the filter") : null, saveButton(params, context), data.page.items.length ? columnMenu(params, data.page.items, context) : null),
    viewsBar(params, context),
    filters(data, params, context),
    data.page.isPart ? h("p", { class: "fine", key: "part" }, `This sort covers ${number(SORTED_MAX)} of ${counted(data.page.total, "observer")}, the first ones in the order of their names. Filter the list to sort all that match.`) : null,
    data.page.items.length ? rows(data, params, context) : nothing,
    data.page.items.length ? pager(data, params, context) : null,
    selection(data, context),
  ];
}

/** Without a filter, the list and the navigation count the same. */
const navCounts = ({ page }, { params }) => (FILTERS.some((it) => it !== "sort" && params.get(it)) ? [] : [COUNTS.observers(page.total)]);

export const observers = { name: "observers", title: "Observers", load, draw, counts: navCounts };
