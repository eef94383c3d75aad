// Roles: the verbs that each permits, and their scopes.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { asName } from "./create-check.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { explained, number, smallButton } from "./show.js";
import { fromYaml, toYaml } from "./yaml.js";

const SAMPLE = { grants: [{ verbs: ["observers:read", "observers:operate"], pools: ["default"] }] };

function readGrants(text) {
  try {
    const value = fromYaml(text);
    return Array.isArray(value?.grants) ? null : "write “grants:” and a list of grants below it";
  } catch (error) { return error.message; }
}

const misnamed = (name, names) => (name === "" ? "a role needs a name" : names.includes(name) ? `role ${name} exists` : asName(name));

/** The complaints; a role that exists keeps its name. */
function wrong({ name, grants }, names) {
  const unnamed = name === undefined ? null : misnamed(name, names), unread = readGrants(grants);
  return { ...(unnamed && { name: unnamed }), ...(unread && { grants: unread }) };
}

/** Each complaint of the manager about a grant names its place, as in the text. */
const fieldOf = (pointer) => (pointer.startsWith("/name") ? ["name"] : ["grants", pointer]);

const edit = (it, names, context) => askChange({ title: it ? `Role ${it.name}` : "New role", action: it ? "Save" : "Create", check: (typed) => wrong(typed, names), fieldOf, size: "tall",
  fields: [...(it ? [] : [{ name: "name", label: "Name", placeholder: "on-call" }]), { name: "grants", label: "Grants, as YAML", rows: 12, value: toYaml(it ? { grants: it.grants } : SAMPLE), hint: "verbs: resource:action, resource:*, *:action or *; pools, kinds and namespaces restrict them" }],
  send: ({ name = it?.name, grants }) => call("PUT", `/v1/roles/${encodeURIComponent(name)}`, fromYaml(grants)), done: ({ name = it?.name }) => `Role ${name} saved.` }, context);

async function remove(it, context) {
  if (await confirm({ title: `Delete role ${it.name}?`, lines: ["Tokens that have this role stay valid, but permit nothing."], action: `Delete ${it.name}` })) await context.attempt(() => call("DELETE", `/v1/roles/${encodeURIComponent(it.name)}`), `Role ${it.name} deleted.`);
}

const where = (grant) => ["namespaces", "pools", "kinds"].filter((name) => grant[name]).map((name) => `${name}: ${grant[name].join(", ")}`).join(" · ") || "everywhere";

/** The actions of each resource: a verb is `resource:action`. */
function byResource(verbs) {
  const of = Map.groupBy(verbs, (verb) => (verb === "*" ? "everything" : verb.startsWith("*:") ? "every resource" : verb.split(":")[0]));
  return [...of].map(([resource, all]) => h("div", { key: resource }, h("dt", {}, resource), h("dd", {}, all.map((verb) => h("span", { class: "tag", title: verb }, verb === "*" ? "every action" : verb.split(":")[1] === "*" ? "every action" : verb.split(":")[1])))));
}

const panel = (it, context) => h("section", { class: "panel", key: it.name },
  h("header", {}, h("h2", {}, it.name), h("span", { class: "fine" }, it.built_in ? "built in" : ""), it.built_in || !may("roles:write") ? null : h("span", { class: "row end" }, smallButton("Edit", `Edit ${it.name}`, () => edit(it, [], context)), smallButton("Delete", `Delete ${it.name}`, () => remove(it, context), { isDanger: true }))),
  it.grants.map((grant, at) => h("div", { key: String(at) }, h("p", { class: "fine" }, where(grant)), h("dl", { class: "verbs" }, byResource(grant.verbs)))));

const draw = ({ items }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Roles"), h("p", { class: "total" }, number(items.length)), may("roles:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => edit(null, items.map((it) => it.name), context) }, "New role")) : null),
  explained("A role lists what the holder of a token with this role may do, in which namespaces, pools and kinds."),
  ...items.map((it) => panel(it, context)),
];

export const roles = { name: "roles", title: "Roles", load: () => get("/v1/roles"), draw };
