// Limits: the list, and one with the observers that use its places and those that wait for one.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { asWhole } from "./create-check.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { bar, counted, empty, explained, number, table } from "./show.js";

const PAGE = 100;

const path = (key) => `/v1/limits/${encodeURIComponent(key)}`;
const link = (key) => h("a", { href: `#/limits/${encodeURIComponent(key)}` }, key);
const isGroup = (it) => it.key.endsWith("*");
const use = (it) => isGroup(it) ? `${number(it.used)} in use, at most ${number(it.max)} for each key` : `${number(it.used)} of ${number(it.max)} places in use`;
const gauge = (it) => isGroup(it) ? h("span", { class: "fine" }, use(it)) : bar(it.used, it.max, use(it));

const said = (key, max) => `At most ${counted(Number(max), "observer")} with the key ${key} may run at once.`;
const wrongMax = (max) => { const wrong = max ? asWhole(0, Infinity)(max) : "write a whole number"; return wrong ? { max: wrong } : {}; };

const fieldsFor = ({ max, enforce }) => [
  { name: "max", label: "Maximum running at the same time", placeholder: max === null ? "" : String(max) },
  { name: "enforce", label: "If more observers already run", value: enforce ? "yes" : "", options: [["", "they continue, and no other starts"], ["yes", "managers end those that were created last"]] },
];
const bodyOf = ({ max, enforce }) => ({ max: Number(max), enforce: enforce === "yes" });

/** Asks for a maximum and sets it; `lines` say what follows. */
const set = (key, { max, enforce, lines, title }, context) => askChange({
  title, action: "Set", lines, fields: fieldsFor({ max, enforce }), check: (typed) => wrongMax(typed.max), fieldOf: () => ["max"],
  send: (typed) => call("PUT", path(key), bodyOf(typed)), done: (typed) => said(key, typed.max),
}, context);

function change(it, context) {
  const apart = it.applies !== it.key ? [`The limit ${it.applies} applies now; this sets a limit for ${it.key} alone.`] : [];
  return set(it.key, { max: it.max, enforce: it.enforce, title: `Maximum of ${it.key}`, lines: [`${use(it)}.`, ...apart] }, context);
}

const add = ({ items }, context) => askChange({
  title: "New limit", action: "Create", lines: ["Observers that name the key use a place of the limit while they run. A key with * at its end, such as account-*, sets the limit of each key that begins so."],
  fields: [{ name: "key", label: "Key", placeholder: "account-42" }, ...fieldsFor({ max: null, enforce: false })],
  check: ({ key, max }) => ({ ...(key ? items.some((it) => it.key === key) && { key: `limit ${key} exists: change it on its page` } : { key: "a limit needs a key" }), ...wrongMax(max) }),
  fieldOf: (pointer) => [pointer.startsWith("/max") ? "max" : "key"], send: ({ key, ...typed }) => call("PUT", path(key), bodyOf(typed)), done: ({ key, max }) => said(key, max),
}, context);

async function remove(it, context) {
  if (!await confirm({ title: `Delete limit ${it.key}?`, lines: ["The manager refuses this while an observer names a key of the limit."], action: `Delete ${it.key}` })) return;
  await context.attempt(async () => { await call("DELETE", path(it.key)); location.hash = "#/limits"; }, `Limit ${it.key} deleted.`);
}

const drawAll = ({ items, total }, context) => [
  h("header", { class: "head" }, h("h1", {}, "Limits"), h("p", { class: "total" }, number(total)),
    may("limits:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => add({ items }, context) }, "New limit")) : null),
  explained("A limit says how many observers that name its key may run at once, for example all observers of one account. The others wait for a place."),
  items.length === 0 ? empty("No limits", "Observers can name the key of a limit in their definition.") : table("Limits", [
    { title: "Key", class: "name", cell: (it) => link(it.key) },
    { title: "In use", isExtra: true, class: "progress", cell: gauge },
    { title: "Used", class: "n", cell: (it) => number(it.used) },
    { title: "Maximum", class: "n", cell: (it) => number(it.max) },
    { title: "Waiting", class: "n", cell: (it) => number(it.waiting) },
    { title: "If too many run", isExtra: true, cell: (it) => (it.enforce ? "managers stop the newest" : "all continue") },
  ], items),
  total > items.length ? h("p", { class: "fine" }, `The first ${number(items.length)} of ${counted(total, "limit")} are shown.`) : null,
];

const named = (title, them, total, none) => h("section", { class: "panel", key: title },
  h("header", { class: "row" }, h("h2", {}, title), h("span", { class: "fine" }, number(total))),
  them.length === 0 ? h("p", { class: "fine" }, none) : h("ol", { class: "names" }, them.map((it) => h("li", { key: it.id }, h("a", { href: `#/observers/${encodeURIComponent(it.id)}` }, it.name)))),
  total > them.length && them.length > 0 ? h("p", { class: "fine" }, `The first ${number(them.length)}.`) : null);

const drawOne = (it, context) => [
  h("header", { class: "head" }, h("p", { class: "crumb" }, h("a", { href: "#/limits" }, "Limits")), h("h1", {}, it.key),
    it.applies === it.key ? null : h("span", { class: "fine" }, "limit ", link(it.applies), " applies")),
  h("section", { class: "panel across", key: "use" },
    h("p", { class: "load" }, use(it), h("span", { class: "fine" }, `${counted(it.waiting, "observer")} waiting`)), gauge(it),
    !may("limits:write") ? null : h("div", { class: "row" },
      h("button", { type: "button", class: "button", onclick: () => change(it, context) }, it.applies === it.key ? "Change maximum" : "Set a limit for this key"),
      it.applies === it.key ? h("button", { type: "button", class: "button danger", onclick: () => remove(it, context) }, "Delete") : null)),
  isGroup(it) ? h("p", { class: "fine", key: "group" }, "To see which observers use a key, open the key on the page of one of them.") : h("div", { class: "panels", key: "users" },
    named("In use by", it.users, it.used, "No observer uses a place."), named("Waiting, in order", it.waiters, it.waiting, "No observer waits for a place.")),
];

const load = ({ parts }) => parts[1] ? get(path(parts[1])) : get("/v1/limits", { limit: PAGE });
const draw = (data, { parts }, context) => parts[1] ? drawOne(data, context) : drawAll(data, context);

export const limits = { name: "limits", title: "Limits", load, draw };
