// Rates: how many permits of a key all services together may use, and who waits for them.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { rowActions } from "./row-actions.js";
import { may } from "./session.js";
import { bar, counted, empty, number, table } from "./show.js";

const PAGE = 100;
const FORM = /^(\d+) per (\S+), burst (\d+)$/;

const path = (key) => `/v1/rates/${encodeURIComponent(key)}`;
const said = (it) => `${it.permits} per ${it.per}, burst ${it.burst}`;
const left = (it) => `${number(it.available)} of ${counted(it.at_once, "permit")} available`;

/** Asks for a rate in one line, as the list shows it, and sets it. */
const EXAMPLE = "600 per 1m, burst 50";
const fieldFor = (placeholder) => ({ name: "rate", label: "Permits per time, and burst", placeholder });
const wrongRate = (rate, example) => (FORM.test(rate) ? {} : { rate: rate ? `“${rate}” is not a rate: write it like “${example}”` : `write a rate like “${example}”` });
/** Complaints about the address are about the key. */
const fieldOf = (pointer) => (pointer ? ["rate", pointer.slice(1)] : ["key"]);

function put(key, rate) {
  const [, permits, per, burst] = FORM.exec(rate);
  return call("PUT", path(key), { permits: Number(permits), per, burst: Number(burst) });
}

const set = (key, example, { title, lines }, context) => askChange({
  title, lines, action: "Set", fields: [fieldFor(example)], check: ({ rate }) => wrongRate(rate, example), fieldOf, send: ({ rate }) => put(key, rate), done: ({ rate }) => `Rate ${key}: ${rate}.`,
}, context);

const change = (it, context) => set(it.key, said(it), {
  title: `Rate ${it.key}`, lines: [`${said(it)}. ${left(it)}, ${number(it.waiting)} waited for.`, "The new rate applies at once; permits that were granted stay valid for 2 s."],
}, context);

const add = (items, context) => askChange({
  title: "New rate", action: "Create", lines: ["Code that names the key waits until it has a permit. All services together use no more permits than the rate allows."],
  fields: [{ name: "key", label: "Key", placeholder: "openai" }, { ...fieldFor(EXAMPLE), hint: "the burst is at least 2 s of the rate, and one permit more" }],
  check: ({ key, rate }) => ({ ...(key ? items.some((it) => it.key === key) && { key: `rate ${key} exists` } : { key: "a rate needs a key" }), ...wrongRate(rate, EXAMPLE) }),
  fieldOf, send: ({ key, rate }) => put(key, rate), done: ({ key, rate }) => `Rate ${key}: ${rate}.`,
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
  items.length === 0 ? empty("No rates", "A rate says how many permits of a key all services together may use, for example how many requests a minute to one host.") : table("Rates", [
    { title: "Key", class: "name", cell: (it) => it.key },
    { title: "Rate", cell: said },
    { title: "Available", class: "progress", cell: (it) => bar(it.available, it.at_once, left(it), false) },
    { title: "Permits", class: "n", cell: (it) => `${number(it.available)} of ${number(it.at_once)}` },
    { title: "Waited for", class: "n", cell: (it) => number(it.waiting) },
    { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => actions(it, context) },
  ], items),
  total > items.length ? h("p", { class: "fine" }, `The first ${number(items.length)} of ${counted(total, "rate")} are shown.`) : null,
];

const load = () => get("/v1/rates", { limit: PAGE });

export const rates = { name: "rates", title: "Rates", load, draw };
