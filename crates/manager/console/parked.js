// What waits for an operator: failed observers, and messages that no version could read.
import { call, get } from "./api.js";
import { COUNTS } from "./nav.js";
import { actOn } from "./observer-actions.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { rowActions } from "./row-actions.js";
import { may, readable } from "./session.js";
import { counted, explained, number, observerLink, smallButton, table, time } from "./show.js";
import { term } from "./terms.js";

const PAGE = 50;

async function load() {
  const [failed, messages] = await Promise.all([readable("observers:read", () => get("/v1/observers", { status: "Failed", limit: PAGE, sort: "-created_at" }), { items: [], total: 0 }), get("/v1/parked", { limit: PAGE })]);
  return { failed, messages };
}

function discard(it, context) {
  return confirm({ title: `Discard message ${it.id}?`, lines: [it.reason, "This cannot be undone."], action: "Discard 1" })
    .then((yes) => yes && context.attempt(() => call("DELETE", `/v1/parked/${it.id}`), `Message ${it.id} discarded.`));
}

const failedPanel = ({ failed }, context) => h("section", { class: "panel across" },
  h("header", { class: "row" }, h("h2", {}, "Failed observers"), h("span", { class: "fine" }, number(failed.total))),
  failed.items.length === 0 ? h("p", { class: "fine" }, "None. Failed observers appear here with their cause.") : table("Failed observers", [
    { title: "Observer", class: "name", cell: observerLink },
    { title: "Kind", isExtra: true, cell: (it) => it.kind },
    { title: "Attempts", isExtra: true, class: "n", cell: (it) => number(it.attempt) },
    { title: "Since", class: "n when", cell: (it) => time(it.modified_at) },
    { title: "Cause", class: "text", isSecond: true, cell: (it) => h("span", { title: it.last_error || it.reason }, it.reason || it.last_error) },
    { title: h("span", { class: "unseen" }, "Actions"), class: "acts", cell: (it) => !may("observers:operate") ? "" : rowActions(`observer ${it.name}`, [{ text: "Retry", label: `Retry ${it.name}`, run: () => actOn("retry", [it], context) }, { text: "Delete", label: `Delete ${it.name}`, run: () => actOn("delete", [it], context), isDanger: true }]) },
  ], failed.items),
  failed.total > failed.items.length ? h("p", { class: "fine" }, `The newest ${number(failed.items.length)}. `, h("a", { href: "#/observers?status=Failed" }, "All failed observers")) : null);

const messagesPanel = ({ messages }, context) => h("section", { class: "panel across" },
  h("header", { class: "row" }, h("h2", {}, term("Parked messages")), h("span", { class: "fine" }, number(messages.total))),
  messages.items.length === 0 ? h("p", { class: "fine" }, "None. Messages that managers cannot read or apply are kept here unchanged.") : h("ul", { class: "messages" }, messages.items.map((it) =>
    h("li", { key: String(it.id) },
      h("header", { class: "row" }, h("strong", {}, it.reason), h("span", { class: "fine" }, `message ${it.id} from `, h("code", {}, it.queue), " · ", time(it.at)),
        !may("parked:write") ? null : h("span", { class: "row end" }, smallButton("Send back", `Send message ${it.id} back`, () => context.attempt(() => call("POST", `/v1/parked/${it.id}/retry`), `Message ${it.id} sent back to its queue.`)), smallButton("Discard", `Discard message ${it.id}`, () => discard(it, context), { isDanger: true }))),
      h("details", {}, h("summary", {}, "Body", h("span", { class: "unseen" }, ` of message ${it.id}`), it.text === null ? " (base64)" : ""), h("pre", { tabindex: "0" }, it.text ?? it.body))))),
  messages.total > messages.items.length ? h("p", { class: "fine" }, `${counted(messages.items.length, "message")} of ${number(messages.total)} are shown.`) : null);

const draw = (data, _route, context) => [h("header", { class: "head" }, h("h1", {}, "Failed and parked")), explained("Observers that gave up, and messages that no manager could read: a user decides what becomes of them."), failedPanel(data, context), messagesPanel(data, context)];

export const parked = { name: "parked", title: "Failed and parked", load, draw, counts: ({ failed, messages }) => [COUNTS.waits(failed.total + messages.total)] };
