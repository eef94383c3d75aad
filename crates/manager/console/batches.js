// Batches: the list, and one with its progress, its members and what a person can ask of it.
import { call, get } from "./api.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { createBatch } from "./start.js";
import { bar, counted, duration, empty, explained, fact, number, observerLink, pager, state, table, time, timed, word } from "./show.js";

const LISTED = 50, PAGE = 100;
const STATUSES = ["Scheduled", "Created", "Processing", "Paused", "OnDeleting", "Completed", "Failed", "Deleted"];

const path = (key) => `/v1/batches/${encodeURIComponent(key)}`;
const link = (it) => h("a", { href: `#/batches/${encodeURIComponent(it.id)}` }, it.name);
const told = (it) => STATUSES.filter((name) => it.counts[name] > 0).map((name) => `${number(it.counts[name])} ${word(name)}`).join(", ");
const progress = (it) => bar(it.settled, it.members, `${number(it.settled)} of ${counted(it.members, "observer")} ended`, false);
const rate = (it) => it.rate_per_minute === null ? "unknown" : `${it.rate_per_minute} a minute`;

const ORDERS = {
  "retry-failed": { word: "Retry failed", done: "retries its failed observers" },
  cancel: { word: "Cancel batch", done: "is being cancelled", danger: true, lines: (it) => [`This deletes the observers of ${it.name} that have not ended; those that have ended stay. This cannot be undone.`] },
  delete: { word: "Delete batch", done: "is being deleted", danger: true, lines: (it) => [`This deletes ${it.name} and its ${counted(it.members, "observer")} with their results and errors. This cannot be undone.`] },
};

async function ask(verb, it, context) {
  const { word, done, lines } = ORDERS[verb];
  if (lines && !await confirm({ title: `${word} ${it.name}?`, lines: lines(it), action: `${word} ${it.name}` })) return;
  const send = () => verb === "delete" ? call("DELETE", path(it.id)) : call("POST", `${path(it.id)}/${verb}`);
  await context.attempt(send, `Batch ${it.name} ${done}.`);
}

function buttons(it, context) {
  if (!may("batches:write")) return null;
  const retry = it.counts.Failed > 0 ? ["retry-failed"] : [];
  const shown = { Creating: ["cancel"], Incomplete: ["cancel"], Running: [...retry, "cancel"], Completed: [...retry, "delete"], Cancelled: ["delete"] }[it.state] ?? [];
  const button = (verb) => h("button", { type: "button", key: verb, class: ORDERS[verb].danger ? "button danger" : "button", onclick: () => ask(verb, it, context) }, ORDERS[verb].word);
  return shown.length ? h("div", { class: "row", key: "buttons" }, shown.map(button)) : null;
}

const drawAll = ({ items, total }) => [
  h("header", { class: "head" }, h("h1", {}, "Batches"), h("p", { class: "total" }, number(total)), may("batches:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", key: "start", onclick: createBatch }, "New batch")) : null),
  explained("A batch is many observers that are created together, for example one for each report. It completes when each of them has ended."),
  items.length === 0 ? empty("No batches", ["Create one here, or on a terminal with: ", h("code", {}, "everwatch batch create")]) : table("Batches", [
    { title: "Name", class: "name", cell: link },
    { title: "State", cell: (it) => state(it.state) },
    { title: "Progress", class: "progress", cell: progress },
    { title: "Observers", isExtra: true, class: "n", cell: (it) => number(it.members) },
    { title: "Failed", isExtra: true, class: "n", cell: (it) => number(it.counts.Failed) },
    { title: "Time left", isExtra: true, class: "n", cell: (it) => it.time_left ?? "" },
    { title: "Created", isExtra: true, class: "n when", cell: (it) => time(it.created_at) },
    { title: "Reason", class: "text", isSecond: true, cell: (it) => timed(it.reason) },
  ], items),
  total > items.length ? h("p", { class: "fine" }, `The newest ${number(items.length)} of ${number(total)} batches are shown.`) : null,
];

async function loadOne({ parts, params }) {
  const [it, members] = await Promise.all([get(path(parts[1])), get(`${path(parts[1])}/observers`, { status: params.get("status"), cursor: params.get("cursor"), limit: PAGE })]);
  return { it, members };
}

function membersPanel({ it, members }, route, context) {
  const { params } = route, now = params.get("status") ?? "";
  return h("section", { class: "panel across", key: "members" },
    h("header", { class: "row" }, h("h2", {}, "Observers"), h("span", { class: "fine" }, told(it)),
      h("label", { class: "row end" }, h("span", { class: "fine" }, "Status"), h("select", { name: "status", onchange: (event) => context.set({ status: event.target.value, cursor: "" }) },
        h("option", { value: "", selected: !now }, "any"), STATUSES.map((name) => h("option", { value: name, selected: name === now }, word(name)))))),
    members.items.length === 0 ? h("p", { class: "fine" }, "No observer has this status.") : table("Observers", [
      { title: "Number", isExtra: true, class: "n", cell: (row) => String(row.place) },
      { title: "Observer", class: "name", cell: observerLink },
      { title: "Status", cell: (row) => state(row.status) },
      { title: "Result", isExtra: true, class: "text", cell: (row) => row.result === null ? "" : JSON.stringify(row.result) },
      { title: "Error", class: "text", isSecond: true, cell: (row) => row.error },
    ], members.items),
    params.get("cursor") || members.next_cursor ? pager(["First", "Next"], members.next_cursor, route, context) : null);
}

function drawOne(data, route, context) {
  const { it } = data;
  return [
    h("header", { class: "head" }, h("p", { class: "crumb" }, h("a", { href: "#/batches" }, "Batches")), h("h1", {}, it.name), state(it.state)),
    it.reason ? h("p", { class: "why", key: "why" }, timed(it.reason)) : null,
    h("section", { class: "panel across", key: "progress" },
      h("p", { class: "load" }, h("strong", {}, number(it.settled)), ` of ${counted(it.members, "observer")} ended`, it.counts.Failed ? h("span", { class: "fine bad" }, `${number(it.counts.Failed)} failed`) : null),
      progress(it), buttons(it, context)),
    h("section", { class: "panel across", key: "facts" }, h("dl", { class: "facts" },
      fact("Maximum running", it.max_running === null ? "no limit" : number(it.max_running)), it.ended_at ? null : fact("Pace", rate(it)), it.ended_at ? null : fact("Time left", it.time_left ?? "unknown"),
      fact("Created", time(it.created_at)), fact("By", it.by ?? "unknown"), it.ended_at ? [fact("Ended", time(it.ended_at)), fact("Took", duration(Date.parse(it.ended_at) - Date.parse(it.created_at)))] : null)),
    membersPanel(data, route, context),
  ];
}

export const batches = { name: "batches", title: "Batches", load: () => get("/v1/batches", { limit: LISTED }), draw: drawAll };
export const batch = { name: "batch", title: "Batch", load: loadOne, draw: drawOne };
