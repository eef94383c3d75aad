// Namespaces: the parts of the deployment that belong to teams, with their quotas.
import { call, get } from "./api.js";
import { askForm, confirm } from "./ask.js";
import { h } from "./dom.js";
import { may, readable } from "./session.js";
import { bar, number, smallButton, table } from "./show.js";
import { newToken } from "./tokens.js";

const path = (name) => `/v1/namespaces/${encodeURIComponent(name)}`;
const QUOTAS = [["observers", "Observers that are not deleted"], ["running", "Observers that have a slot at the same time"], ["creates_per_minute", "Creates in a minute"]];

async function load() {
  const [page, roles] = await Promise.all([get("/v1/namespaces"), readable("roles:read", () => get("/v1/roles"), { items: [] })]);
  return { ...page, roles: roles.items.map((it) => it.name) };
}

const wrong = (typed) => (typed.name === "" ? "A namespace needs a name." : QUOTAS.some(([name]) => typed[name] && !/^[1-9]\d*$/.test(typed[name])) ? "A quota is a whole number of 1 or more; empty means no quota." : null);

async function edit(it, context) {
  const quotas = QUOTAS.filter(([name]) => name !== "running" || it?.name !== "default");
  const typed = await askForm({ title: it ? `Namespace ${it.name}` : "New namespace", action: it ? "Save" : "Create", check: wrong, fields: [
    ...(it ? [] : [{ name: "name", label: "Name", placeholder: "team-a", hint: "1 to 63 of a-z 0-9 -" }]),
    ...quotas.map(([name, label]) => ({ name, label, value: it?.quotas[name] ? String(it.quotas[name]) : "", placeholder: "no quota" })),
    { name: "pools", label: "Pools that it may use", value: it?.pools?.join(", ") ?? "", placeholder: "every pool", hint: "comma-separated" }] });
  if (!typed) return;
  const name = it?.name ?? typed.name, pools = typed.pools.split(/[\s,]+/).filter(Boolean);
  const body = { quotas: Object.fromEntries(quotas.filter(([quota]) => typed[quota]).map(([quota]) => [quota, Number(typed[quota])])), ...(pools.length && { pools }) };
  await context.attempt(() => call("PUT", path(name), body), `Namespace ${name} saved.`);
}

async function remove(it, context) {
  if (await confirm({ title: `Delete namespace ${it.name}?`, lines: ["The manager refuses this while the namespace has observers."], action: `Delete ${it.name}` })) await context.attempt(() => call("DELETE", path(it.name)), `Namespace ${it.name} deleted.`);
}

const used = (count, most) => (most ? [`${number(count)} of ${number(most)}`, bar(count, most, `${number(count)} of ${number(most)}`)] : number(count));

const actions = (it, roles, context) => [
  may("tokens:write") ? smallButton("New token", `New token for ${it.name}`, () => newToken(roles, context, it.name)) : null,
  may("namespaces:write") ? smallButton("Edit", `Edit ${it.name}`, () => edit(it, context)) : null,
  may("namespaces:write") && it.name !== "default" ? smallButton("Delete", `Delete ${it.name}`, () => remove(it, context), true) : null];

const draw = ({ items, total, roles }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Namespaces"), h("p", { class: "total" }, number(total)), may("namespaces:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => edit(null, context) }, "New namespace")) : null),
  table("Namespaces", [
    { title: "Namespace", class: "name", cell: (it) => it.name }, { title: "Observers", class: "n", cell: (it) => used(it.observers, it.quotas.observers) },
    { title: "With a slot", class: "n", cell: (it) => (it.running === null ? "–" : used(it.running, it.quotas.running)) },
    { title: "Creates left", class: "n", cell: (it) => (it.creates_left === null ? "no quota" : `${number(it.creates_left)} of ${number(it.quotas.creates_per_minute)}`) },
    { title: "Pools", class: "text", cell: (it) => it.pools?.join(", ") ?? "every pool" }, { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => actions(it, roles, context) },
  ], items),
];

export const namespaces = { name: "namespaces", title: "Namespaces", load, draw };
