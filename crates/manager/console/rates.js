// Rates: how many permits of a key all services together may use, and who waits for them.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { asDuration, asWhole } from "./create-check.js";
import { h } from "./dom.js";
import { rowActions } from "./row-actions.js";
import { may } from "./session.js";
import { bar, counted, empty, explained, number, table } from "./show.js";

const PAGE = 100;

const path = (key) => `/v1/rates/${encodeURIComponent(key)}`;
const said = (it) => `${it.permits} per ${it.per}, burst ${it.burst}`;
const left = (it) => `${number(it.available)} of ${counted(it.at_once, "permit")} available`;

/** The three numbers of a rate, with these values. */
const fieldsFor = ({ permits = "", per = "1m", burst = "" }) => [
  { name: "permits", half: true, label: "Permits", value: String(permits), placeholder: "600", hint: "how many may be used" },
  { name: "per", half: true, label: "Per", value: String(per), hint: "a duration, such as 1s or 1m" },
  { name: "burst", label: "Burst", value: String(burst), placeholder: "50", hint: "how many may be used at once; more than the rate grants in 2 s" },
];
const missing = { permits: "write how many permits may be used", per: "write a duration, such as 1m", burst: "write how many permits may be used at once" };
const CHECKS = { permits: asWhole(1, Infinity), per: asDuration, burst: asWhole(1, Infinity) };
const wrongRate = (typed) => Object.fromEntries(Object.entries(CHECKS).map(([name, check]) => [name, typed[name] ? check(typed[name]) : missing[name]]).filter(([, found]) => found));
/** Complaints about the address are about the key. */
const fieldOf = (pointer) => (pointer ? [pointer.slice(1)] : ["key"]);

const put = (key, { permits, per, burst }) => call("PUT", path(key), { permits: Number(permits), per, burst: Number(burst) });

const change = (it, context) => askChange({
  title: `Rate ${it.key}`, lines: [`${left(it)}${it.waiting ? `; code waits for ${counted(it.waiting, "permit")}` : ""}. The new rate applies at once; permits that were granted stay valid for 2 s.`],
  action: "Set", fields: fieldsFor(it), check: wrongRate, fieldOf, send: (typed) => put(it.key, typed), done: (typed) => `Rate ${it.key}: ${said(typed)}.`,
}, context);

const add = (items, context) => askChange({
  title: "New rate", action: "Create", lines: ["Code that names the key waits until it has a permit. All services together use no more permits than the rate allows."],
  fields: [{ name: "key", label: "Key", placeholder: "openai", hint: "the name that the code uses" }, ...fieldsFor({})],
  check: ({ key, ...typed }) => ({ ...(key ? items.some((it) => it.key === key) && { key: `rate ${key} exists: change it in the list` } : { key: "a rate needs a key" }), ...wrongRate(typed) }),
  fieldOf, send: ({ key, ...typed }) => put(key, typed), done: ({ key, ...typed }) => `Rate ${key}: ${said(typed)}.`,
}, context);

async function remove(it, context) {
  if (!await confirm({ title: `Delete rate ${it.key}?`, lines: ["Code that names the key then gets an error instead of a permit."], action: `Delete ${it.key}` })) return;
  await context.attempt(() => call("DELETE", path(it.key)), `Rate ${it.key} deleted.`);
}

const actions = (it, context) => (may("rates:write") ? rowActions(`rate ${it.key}`, [
  { text: "Change", label: `Change ${it.key}`, run: () => change(it, context) }, { text: "Delete", label: `Delete ${it.key}`, run: () => remove(it, context), isDanger: true }]) : "");

const draw = ({ items, total }, _, context) => [
  h("header", { class: "head" }, h("h1", {}, "Rates"), h("p", { class: "total" }, number(total)),
    may("rates:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => add(items, context) }, "New rate")) : null),
  explained("A rate says how many permits of a key all services together may use in a given duration, for example requests to one host. Code waits until it has a permit."),
  items.length === 0 ? empty("No rates", "Code names the key of a rate when it acquires a permit.") : table("Rates", [
    { title: "Key", class: "name", cell: (it) => it.key },
    { title: "Rate", cell: said },
    { title: "Available", isExtra: true, class: "progress", cell: (it) => bar(it.available, it.at_once, left(it), false) },
    { title: "Permits", isExtra: true, class: "n", cell: (it) => `${number(it.available)} of ${number(it.at_once)}` },
    { title: "Waiting for a permit", isExtra: true, class: "n", cell: (it) => number(it.waiting) },
    { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => actions(it, context) },
  ], items),
  total > items.length ? h("p", { class: "fine" }, `The first ${number(items.length)} of ${counted(total, "rate")} are shown.`) : null,
];

const load = () => get("/v1/rates", { limit: PAGE });

export const rates = { name: "rates", title: "Rates", load, draw };
