// Namespaces: the parts of the deployment that belong to teams, with their quotas.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { asWhole } from "./create-check.js";
import { h } from "./dom.js";
import { rowActions } from "./row-actions.js";
import { may, readable } from "./session.js";
import { bar, explained, number, table } from "./show.js";
import { newToken } from "./tokens.js";

const path = (name) => `/v1/namespaces/${encodeURIComponent(name)}`;
const QUOTAS = [["observers", "Maximum observers"], ["running", "Maximum observers with a slot at the same time"], ["creates_per_minute", "Maximum observers created per minute"]];

async function load() {
  const [page, roles] = await Promise.all([get("/v1/namespaces"), readable("roles:read", () => get("/v1/roles"), { items: [] })]);
  return { ...page, roles: roles.items.map((it) => it.name) };
}

function wrong(typed, names) {
  const quotas = QUOTAS.map(([name]) => [name, typed[name] ? asWhole(1, Infinity)(typed[name]) : null]).filter(([, found]) => found);
  return { ...(typed.name === "" && { name: "a namespace needs a name" }), ...(names.includes(typed.name) && { name: `namespace ${typed.name} exists` }), ...Object.fromEntries(quotas) };
}

/** The field of a complaint of the manager; those about the address are about the name. */
const fieldOf = (pointer) => { const [, first, second] = pointer.split("/"); return [first === "quotas" ? second : first === "pools" ? "pools" : "name"]; };

function edit(it, names, context) {
  const quotas = QUOTAS.filter(([name]) => name !== "running" || it?.name !== "default");
  const nameOf = (typed) => it?.name ?? typed.name, poolsOf = (typed) => typed.pools.split(/[\s,]+/).filter(Boolean);
  const bodyOf = (typed) => ({ quotas: Object.fromEntries(quotas.filter(([quota]) => typed[quota]).map(([quota]) => [quota, Number(typed[quota])])), ...(poolsOf(typed).length && { pools: poolsOf(typed) }) });
  return askChange({ title: it ? `Namespace ${it.name}` : "New namespace", action: it ? "Save" : "Create", check: (typed) => wrong(typed, names), fieldOf, send: (typed) => call("PUT", path(nameOf(typed)), bodyOf(typed)), done: (typed) => `Namespace ${nameOf(typed)} saved.`, fields: [
    ...(it ? [] : [{ name: "name", label: "Name", placeholder: "team-a", hint: "1 to 63 of a-z 0-9 -" }]),
    ...quotas.map(([name, label]) => ({ name, label, value: it?.quotas[name] ? String(it.quotas[name]) : "", placeholder: "no maximum" })),
    { name: "pools", label: "Pools that it may use", value: it?.pools?.join(", ") ?? "", placeholder: "every pool", hint: "comma-separated" }] }, context);
}

async function remove(it, context) {
  if (await confirm({ title: `Delete namespace ${it.name}?`, lines: ["The manager refuses this while the namespace has observers."], action: `Delete ${it.name}` })) await context.attempt(() => call("DELETE", path(it.name)), `Namespace ${it.name} deleted.`);
}

const used = (count, most) => (most ? [`${number(count)} of ${number(most)}`, bar(count, most, `${number(count)} of ${number(most)}`)] : number(count));

const actions = (it, roles, context) => rowActions(`namespace ${it.name}`, [
  may("tokens:write") ? { text: "New token", label: `New token for ${it.name}`, run: () => newToken(roles, context, it.name) } : null,
  may("namespaces:write") ? { text: "Edit", label: `Edit ${it.name}`, run: () => edit(it, [], context) } : null,
  may("namespaces:write") && it.name !== "default" ? { text: "Delete", label: `Delete ${it.name}`, run: () => remove(it, context), isDanger: true } : null]);

const draw = ({ items, total, roles }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Namespaces"), h("p", { class: "total" }, number(total)), may("namespaces:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => edit(null, items.map((it) => it.name), context) }, "New namespace")) : null),
  explained("A namespace is the part of the deployment that belongs to one team: the names of observers are unique within it, and it can have quotas and roles of its own."),
  table("Namespaces", [
    { title: "Namespace", class: "name", cell: (it) => it.name }, { title: "Observers", class: "n", cell: (it) => used(it.observers, it.quotas.observers) },
    { title: "With a slot", class: "n", cell: (it) => (it.running === null ? "–" : used(it.running, it.quotas.running)) },
    { title: "Creates left this minute", isExtra: true, class: "n", cell: (it) => (it.creates_left === null ? "unlimited" : `${number(it.creates_left)} of ${number(it.quotas.creates_per_minute)}`) },
    { title: "Pools", isExtra: true, class: "text", cell: (it) => it.pools?.join(", ") ?? "every pool" }, { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => actions(it, roles, context) },
  ], items),
];

export const namespaces = { name: "namespaces", title: "Namespaces", load, draw };
