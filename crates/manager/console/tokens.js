// Tokens: their roles and expiry; a secret is shown only once.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm, tell } from "./ask.js";
import { copyButton } from "./copy.js";
import { h } from "./dom.js";
import { rowActions } from "./row-actions.js";
import { isGuarded, may, readable, whoName } from "./session.js";
import { empty, number, state, table, time } from "./show.js";

const PAGE = 200;

async function load() {
  const [page, roles] = await Promise.all([get("/v1/tokens", { limit: PAGE }), readable("roles:read", () => get("/v1/roles"), { items: [] })]);
  return { ...page, roles: roles.items.map((it) => it.name) };
}

const once = (made) => tell({ title: `Token ${made.name}`, lines: ["The console cannot show this token again: managers store only a digest of it."],
  content: h("div", { class: "row once" }, h("code", { class: "incident-line", id: "secret" }, made.token), copyButton(made.token, "Copy", "Copy the token")) });

/** Asks for the name, role, namespace and expiry of a token, creates it, and shows it once; `role` is the one that is chosen at first. */
export async function newToken(roles, context, namespace = "", role = null) {
  const names = roles.length ? roles : ["viewer", "operator", "admin"];
  const first = isGuarded() ? [] : ["As soon as a token exists, every request needs one. The first token must have the role admin; log in with it afterwards."];
  const known = await readable("namespaces:read", () => get("/v1/namespaces"), { items: [] }), chosen = isGuarded() ? namespace : "";
  const all = [...new Set([...known.items.map((it) => it.name), chosen])].filter(Boolean);
  const made = await askChange({ title: "New token", lines: first, action: "Create", check: ({ name }) => (name ? {} : { name: "a token needs the name of its owner" }),
    send: (typed) => call("POST", "/v1/tokens", Object.fromEntries(Object.entries(typed).filter(([, value]) => value))), fields: [
    { name: "name", label: "Name", placeholder: "jane", hint: "of the user or the program that gets the token" }, { name: "role", label: "Role", options: names.map((it) => [it, it]), value: isGuarded() ? role ?? names[0] : "admin" },
    { name: "namespace", label: "Namespace", value: chosen, options: [["", "all namespaces"], ...all.map((it) => [it, it])], hint: "where the rights of the role hold" }, { name: "expires_in", label: "Valid for", placeholder: "90d" }] }, context);
  if (made) once(made);
}

async function rotate(it, context) {
  const made = await askChange({ title: `Rotate token ${it.name}?`, lines: ["It gets a new secret, which is shown once."], action: "Rotate", fields: [{ name: "overlap", label: "Keep the current secret valid for", placeholder: "1h" }],
    send: ({ overlap }) => call("POST", `/v1/tokens/${encodeURIComponent(it.id)}/rotate`, overlap ? { overlap } : {}) }, context);
  if (made) once(made);
}

/** Who loses access with the token. */
function lossOf(it, items) {
  if (it.name !== whoName()) return [];
  const isOnly = items.length < PAGE && items.filter((one) => one.valid && one.name === it.name).length === 1;
  return [isOnly ? "You are logged in with this token: your session ends, too." : "You may be logged in with this token: then your session ends, too."];
}

async function revoke(it, items, context) {
  if (await confirm({ title: `Revoke token ${it.name}?`, lines: ["All managers refuse it within 5 s, and streams that were opened with it close.", ...lossOf(it, items)], action: `Revoke ${it.name}` })) await context.attempt(() => call("DELETE", `/v1/tokens/${encodeURIComponent(it.id)}`), `Token ${it.name} revoked.`);
}

const WHY_LAST = "It is the last token that may create tokens: create another one first.";
/** Why one of the tokens cannot be revoked, and the way out. */
function lastNotice({ items, roles }, context) {
  const it = items.find((one) => one.is_last);
  return it && may("tokens:write") ? h("p", { class: "fine", key: "last" }, `Token ${it.name} is the last one that may create tokens, so it cannot be revoked. Create another one first: `, h("button", { type: "button", class: "link", id: "replace-last", onclick: () => newToken(roles, context, "", it.role) }, "New token")) : null;
}

const standing = (it) => state(it.valid ? "valid" : it.revoked_at ? "revoked" : "expired");
const actions = (it, items, context) => (it.valid && may("tokens:write") ? rowActions(`token ${it.name}`, [{ text: "Rotate", label: `Rotate ${it.name}`, run: () => rotate(it, context) }, { text: "Revoke", label: `Revoke ${it.name}`, run: () => revoke(it, items, context), isDanger: true, whyNot: it.is_last ? WHY_LAST : null }]) : "");

const draw = ({ items, total, roles }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Tokens"), h("p", { class: "total" }, number(total)), may("tokens:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", onclick: () => newToken(roles, context) }, "New token")) : null),
  isGuarded() ? null : h("p", { class: "notice", key: "open" }, h("strong", {}, "Requests need no token. "), "Everyone who can reach this manager may do everything. To require tokens, create one with the role admin."),
  items.length === 0 ? empty("No tokens", "A token identifies a user or a program, has a role, and expires.") : table("Tokens", [
    { title: "Name", class: "name", cell: (it) => it.name }, { title: "Role", cell: (it) => it.role }, { title: "Namespace", isExtra: true, cell: (it) => it.namespace ?? "all" }, { title: "State", cell: standing },
    { title: "Created", isExtra: true, class: "when", cell: (it) => time(it.created_at) }, { title: "By", isExtra: true, cell: (it) => it.created_by }, { title: "Expires", isExtra: true, class: "when", cell: (it) => time(it.expires_at) },
    { title: "Former secret until", isExtra: true, class: "when", cell: (it) => (it.previous_until ? time(it.previous_until) : "") }, { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => actions(it, items, context) },
  ], items),
  lastNotice({ items, roles }, context),
];

export const tokens = { name: "tokens", title: "Tokens", load, draw };
