// Roles: the verbs that each permits, and their scopes.
import { call, get } from "./api.js";
import { askForm, confirm } from "./ask.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { number, smallButton } from "./show.js";
import { fromYaml, toYaml } from "./yaml.js";

const SAMPLE = { grants: [{ verbs: ["observers:read", "observers:operate"], pools: ["default"] }] };

function readGrants(text) {
  try {
    const value = fromYaml(text);
    return Array.isArray(value?.grants) ? null : "Write “grants:” and a list of grants below it.";
  } catch (error) { return error.message; }
}

async function edit(it, context) {
  const answer = await askForm({ title: it ? `Role ${it.name}` : "New role", action: it ? "Save" : "Create", check: ({ name, grants }) => (name ? readGrants(grants) : "A role needs a name."),
    fields: [{ name: "name", label: "Name", value: it?.name ?? "", placeholder: "on-call" }, { name: "grants", label: "Grants, as YAML", rows: 12, value: toYaml(it ? { grants: it.grants } : SAMPLE), hint: "verbs: resource:action, resource:*, *:action or *; pools, kinds and namespaces restrict them" }] });
  if (answer) await context.attempt(() => call("PUT", `/v1/roles/${encodeURIComponent(answer.name)}`, fromYaml(answer.grants)), `Role ${answer.name} saved.`);
}

async function remove(it, context) {
  if (await confirm({ title: `Delete role ${it.name}?`, lines: ["Tokens with this role then permit nothing."], action: `Delete ${it.name}` })) await context.attempt(() => call("DELETE", `/v1/roles/${encodeURIComponent(it.name)}`), `Role ${it.name} deleted.`);
}

const where = (grant) => ["namespaces", "pools", "kinds"].filter((name) => grant[name]).map((name) => `${name}: ${grant[name].join(", ")}`).join(" · ") || "everywhere";

const panel = (it, context) => h("section", { class: "panel", key: it.name },
  h("header", {}, h("h2", {}, it.name), h("span", { class: "fine" }, it.built_in ? "built in" : ""), it.built_in || !may("roles:write") ? null : h("span", { class: "row end" }, smallButton("Edit", `Edit ${it.name}`, () => edit(it, context)), smallButton("Delete", `Delete ${it.name}`, () => remove(it, context), true))),
  it.grants.map((grant, at) => h("div", { key: String(at) }, h("p", { class: "fine" }, where(grant)), h("p", {}, grant.verbs.map((verb) => h("span", { class: "tag" }, verb))))));

const draw = ({ items }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Roles"), h("p", { class: "total" }, number(items.length)), may("roles:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => edit(null, context) }, "New role")) : null),
  ...items.map((it) => panel(it, context)),
];

export const roles = { name: "roles", title: "Roles", load: () => get("/v1/roles"), draw };
