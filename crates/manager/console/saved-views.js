// Saved views of the list of observers: a name for a filter, a sort order and columns, kept by this browser.
import { askForm } from "./ask-sent.js";
import { confirm, toast } from "./ask.js";
import { h } from "./dom.js";
import { counted } from "./show.js";

const KEY = "views";
const VIEWS_MAX = 30;
const NAME_MAX = 40;
const SEARCH_MAX = 2000;
/** The parameters of the address that the request for the list takes. */
export const FILTERS = ["health", "status", "reason_code", "q", "kind", "namespace", "pool", "service", "label", "sort"];
/** The parameters that a view consists of. */
const PARTS = [...FILTERS, "columns"];

/** The part of the address that a view keeps; empty for the list as it is without a choice. */
function searchOf(params) {
  const kept = new URLSearchParams();
  for (const name of PARTS) if (params.get(name)) kept.set(name, params.get(name));
  return kept.toString();
}

const isView = (it) => typeof it?.name === "string" && it.name.trim() !== "" && it.name.length <= NAME_MAX && typeof it.search === "string" && it.search.length <= SEARCH_MAX;

/** The saved views in the order of their names. Entries that the console could not have written are left out. */
export function savedViews() {
  let held = [];
  try { held = JSON.parse(localStorage.getItem(KEY) ?? "[]"); } catch { /* not written by the console */ }
  const all = Array.isArray(held) ? held.filter(isView).slice(0, VIEWS_MAX) : [];
  return all.map(({ name, search }) => ({ name, search: searchOf(new URLSearchParams(search)) })).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

export const hrefOf = (view) => `#/observers${view.search ? `?${view.search}` : ""}`;

function store(views) {
  try { localStorage.setItem(KEY, JSON.stringify(views)); return true; } catch {
    toast("The browser did not store the view: permit this site to store data, or free some space.");
    return false;
  }
}

const same = (a, b) => a.toLowerCase() === b.toLowerCase();

/** Why a view may not have this name; nothing if it may. */
function wrongName(name, former) {
  if (name.length < 1 || name.length > NAME_MAX) return `A name has 1 to ${NAME_MAX} characters; this one has ${name.length}.`;
  return savedViews().some((it) => it.name !== former && same(it.name, name)) ? `A view “${name}” exists: choose another name, or delete that view first.` : null;
}

const askName = (title, value, action, lines) => askForm({ title, lines, action, check: ({ name }) => wrongName(name, value), fields: [{ name: "name", label: "Name", value, hint: `1 to ${NAME_MAX} characters` }] });

async function save(search, context) {
  if (savedViews().length >= VIEWS_MAX) return toast(`This browser keeps at most ${counted(VIEWS_MAX, "view")}: delete one, then save this one.`);
  if (search.length > SEARCH_MAX) return toast(`The filter is too long to save: it has ${search.length} characters in the address, at most ${SEARCH_MAX} are possible. Shorten the filter.`);
  const typed = await askName("Save this view", "", "Save", ["The view consists of the filter, the sort order and the columns. This browser keeps it."]);
  if (typed && store([...savedViews(), { name: typed.name, search }])) context.redraw();
}

async function rename(view, context) {
  const typed = await askName(`Rename “${view.name}”`, view.name, "Rename", []);
  if (typed && store(savedViews().map((it) => (it.name === view.name ? { ...it, name: typed.name } : it)))) context.redraw();
}

async function remove(view, context) {
  const sure = await confirm({ title: `Delete the view “${view.name}”?`, lines: ["The observers remain."], action: "Delete view" });
  if (sure && store(savedViews().filter((it) => it.name !== view.name))) context.redraw();
}

/** The views as links, and buttons that rename or delete the open one. */
export function viewsBar(params, context) {
  const views = savedViews(), search = searchOf(params);
  const open = views.find((it) => it.search === search);
  if (views.length === 0) return null;
  const button = (word, label, onclick) => h("button", { type: "button", class: "quiet", key: word, "aria-label": label, onclick }, word);
  return h("nav", { class: "views", "aria-label": "Saved views", key: "views" },
    h("span", { class: "fine", key: "title" }, "Views"),
    views.map((it) => h("a", { class: "chip view-chip", key: `view-${it.name}`, href: hrefOf(it), "aria-current": it === open ? "true" : undefined }, it.name)),
    open ? [button("Rename", `Rename the view ${open.name}`, () => rename(open, context)), button("Delete", `Delete the view ${open.name}`, () => remove(open, context))] : null);
}

/** A button that saves the present filter, unless a view has it. */
export function saveButton(params, context) {
  const search = searchOf(params);
  return search === "" || savedViews().some((it) => it.search === search) ? null : h("button", { type: "button", class: "quiet", key: "save-view", onclick: () => save(search, context) }, "Save view");
}
