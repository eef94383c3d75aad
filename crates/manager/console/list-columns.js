// The columns of the list of observers: which there are, and which of them the address names.
import { h } from "./dom.js";
import { health, number, time, timed, timedText } from "./show.js";

/** Why it is as it is: the last error, the reason, or the progress. */
export const note = (it) => it.last_error && (it.health === "restarting" || it.status === "Failed") ? h("span", { class: "bad", title: it.last_error }, it.last_error) : h("span", { title: timedText(it.reason) || undefined }, it.reason ? timed(it.reason) : it.progress || "");
/** On a narrow screen, which has no column for it: the service, before the reason. */
export const whereOf = (it) => (it.service ? `${it.service.name}${it.reason || it.progress ? " · " : ""}` : null);
const none = () => h("span", { class: "none" }, "–");
const tags = (labels) => Object.entries(labels).map(([key, value]) => h("a", { class: "tag", key, href: `#/observers?label=${encodeURIComponent(`${key}=${value}`)}` }, `${key}=${value}`));

/** In the order of the list. `sort`: the field by which the list can be sorted. */
const COLUMNS = [
  { name: "health", title: "Health", cell: health, sort: "health" },
  { name: "namespace", title: "Namespace", cell: (it) => it.namespace, rare: true, sort: "namespace" },
  { name: "kind", title: "Kind", cell: (it) => it.kind, sort: "kind" },
  { name: "pool", title: "Pool", cell: (it) => it.pool, rare: true, sort: "pool" },
  { name: "priority", title: "Priority", class: "n", cell: (it) => number(it.priority), rare: true, sort: "priority" },
  { name: "service", title: "Service", cell: (it) => it.service ? h("a", { href: `#/services/${encodeURIComponent(it.service.name)}` }, it.service.name) : none(), sort: "service" },
  { name: "restarts", title: "Restarts", class: "n", cell: (it) => number(it.restarts), rare: true, sort: "restarts" },
  { name: "started", title: "Last started", class: "n when", cell: (it) => time(it.started_at), sort: "started" },
  { name: "created", title: "Created", class: "n when", cell: (it) => time(it.created_at), sort: "created_at" },
  { name: "labels", title: "Labels", cell: (it) => tags(it.labels), rare: true },
  { name: "reason", title: "Reason", class: "text spare", cell: note },
];

// The menu closes when the user presses elsewhere.
addEventListener("pointerdown", (event) => {
  for (const it of document.querySelectorAll("details.menu[open]")) if (!it.contains(event.target)) it.open = false;
});
const closed = (event) => {
  if (event.key !== "Escape") return;
  event.currentTarget.open = false;
  event.currentTarget.querySelector("summary").focus();
};

/** The usual columns; the priority is one of them as soon as an observer of the page has one. */
const usual = (items) => COLUMNS.filter((it) => !it.rare || (it.name === "priority" && items.some((one) => one.priority))).map((it) => it.name);

const named = (params) => new Set((params.get("columns") ?? "").split(",").filter(Boolean));

/** The columns that the address names, or the usual ones. */
export function columnsOf(params, items) {
  const wanted = named(params), known = COLUMNS.filter((it) => wanted.has(it.name));
  const shown = new Set(known.length ? known.map((it) => it.name) : usual(items));
  return COLUMNS.filter((it) => shown.has(it.name));
}

/** A menu with a box for each column. */
export function columnMenu(params, items, context) {
  const shown = new Set(columnsOf(params, items).map((it) => it.name));
  const toggle = (name, isOn) => {
    const next = COLUMNS.filter((it) => (it.name === name ? isOn : shown.has(it.name))).map((it) => it.name);
    const isUsual = next.join() === usual(items).join();
    context.set({ columns: isUsual ? "" : next.join() });
  };
  return h("details", { class: "menu end", key: "columns", onkeydown: closed }, h("summary", { class: "quiet" }, "Columns"),
    h("fieldset", {}, h("legend", { class: "unseen" }, "Columns of the list"),
      COLUMNS.map((it) => h("label", { key: it.name }, h("input", { type: "checkbox", checked: shown.has(it.name), disabled: shown.size === 1 && shown.has(it.name), onchange: (event) => toggle(it.name, event.target.checked) }), it.title)),
      named(params).size ? h("button", { type: "button", class: "quiet", key: "usual", onclick: () => context.set({ columns: "" }) }, "Usual columns") : null));
}
