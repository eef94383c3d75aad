// The audit log: each request that changed something or was refused, newest first.
import { get } from "./api.js";
import { h } from "./dom.js";
import { isGuarded } from "./session.js";
import { empty, number, pager, state, table, time } from "./show.js";

const PAGE = 100;

const load = ({ params }) => get("/v1/audit", { cursor: params.get("cursor"), limit: PAGE });

const outcome = (it) => (it.status === null ? state("no answer") : h("span", { class: "status", "data-state": it.status < 400 ? "done" : it.status < 500 ? "warning" : "failed" }, number(it.status)));

const none = () => isGuarded()
  ? empty("No entries", "Requests that change something, and those that were refused, appear here.")
  : empty("Requests are not recorded", "The audit log records requests only while requests need a token. This manager accepts requests without one, so it cannot say who made them.");

const draw = ({ items, total, next_cursor: next }, route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Audit"), h("p", { class: "total" }, number(total))),
  items.length === 0 ? none() : table("Audit", [
    { title: "When", class: "when", cell: (it) => time(it.at) }, { title: "Principal", cell: (it) => it.principal ?? h("span", { class: "none" }, "nobody") }, { title: "From", cell: (it) => it.actor ?? it.from ?? "" },
    { title: "Verb", cell: (it) => it.verb ?? "" }, { title: "Request", class: "text", cell: (it) => h("code", { title: it.path }, `${it.method} ${it.path}`) }, { title: "Outcome", cell: outcome }, { title: "Created", class: "text", cell: (it) => it.created ?? "" },
  ], items),
  pager(["Newest", "Older"], next, route, context, "Older entries: not live"),
];

export const audit = { name: "audit", title: "Audit", load, draw };
