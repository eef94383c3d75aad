// Rollouts: the list, and one with its progress, its members and what a person can ask of it.
import { call, get } from "./api.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { startRollout } from "./start.js";
import { bar, counted, empty, explained, fact, number, observerLink, pager, spaced, state, table, time, timed } from "./show.js";
import { toYaml } from "./yaml.js";

const LISTED = 50, PAGE = 100;
const MEMBER_STATES = ["pending", "changed", "done", "skipped", "failed", "reverting", "reverted"];

/** The fields of a selector, as the dialog names them. */
const SELECTED = { label_selector: "Labels", labels: "Labels", kind: "Kind", pool: "Pool", namespace: "Namespace", q: "Part of the name", status: "Status", health: "Health" };

const path = (key) => `/v1/rollouts/${encodeURIComponent(key)}`;
const link = (it) => h("a", { href: `#/rollouts/${encodeURIComponent(it.id)}` }, it.name);
const over = (it) => ["Completed", "Reverted", "Cancelled"].includes(it.state);
/** The members that need no more work, in the direction in which the rollout goes. */
const ready = ({ counts, state }) => counts.skipped + (state === "Reverting" || state === "Reverted" ? counts.reverted : counts.done);
const told = (it) => MEMBER_STATES.filter((name) => it.counts[name] > 0).map((name) => `${number(it.counts[name])} ${name}`).join(", ");
const progress = (it) => bar(ready(it), it.members, `${number(ready(it))} of ${counted(it.members, "observer")} ready`, false);

async function ask(verb, it, context) {
  const questions = {
    revert: [`This restores the former definitions of the observers that ${it.name} has changed. Observers that a user has edited since then stay as they are.`],
    cancel: [`${it.name} changes no more observers. Those that it has changed stay changed.`],
  };
  const titles = { revert: "Revert", cancel: "Cancel rollout" };
  const lines = questions[verb];
  if (lines && !await confirm({ title: `${titles[verb]} ${it.name}?`, lines, action: `${titles[verb]} ${it.name}` })) return;
  const done = { pause: "is paused", resume: "goes on", revert: "is being reverted", cancel: "is cancelled" };
  await context.attempt(() => call("POST", `${path(it.id)}/${verb}`), `Rollout ${it.name} ${done[verb]}.`);
}

function buttons(it, context) {
  if (!may("rollouts:write")) return null;
  const button = (verb, word, danger) => h("button", { type: "button", key: verb, class: danger ? "button danger" : "button", onclick: () => ask(verb, it, context) }, word);
  const shown = { Running: ["pause", "revert", "cancel"], Paused: ["resume", "revert", "cancel"], Reverting: ["cancel"] }[it.state] ?? [];
  const words = { pause: "Pause", resume: "Resume", revert: "Revert", cancel: "Cancel rollout" };
  return shown.length ? h("div", { class: "row", key: "buttons" }, shown.map((verb) => button(verb, words[verb], verb === "revert"))) : null;
}

const drawAll = ({ items, total }) => [
  h("header", { class: "head" }, h("h1", {}, "Rollouts"), h("p", { class: "total" }, number(total)), may("rollouts:write") ? h("div", { class: "row end" }, h("button", { type: "button", class: "button primary", key: "start", onclick: startRollout }, "New rollout")) : null),
  explained("A rollout makes the same change to many observers, a few at a time. It continues while the changed observers are healthy; if one fails, the rollout pauses or reverts the change."),
  items.length === 0 ? empty("No rollouts", ["Start one here, or on a terminal with: ", h("code", {}, "everwatch rollout start")]) : table("Rollouts", [
    { title: "Name", class: "name", cell: link },
    { title: "State", cell: (it) => state(it.state) },
    { title: "Progress", class: "progress", cell: progress },
    { title: "Observers", isExtra: true, class: "n", cell: (it) => number(it.members) },
    { title: "Failed", isExtra: true, class: "n", cell: (it) => number(it.counts.failed) },
    { title: "Started", isExtra: true, class: "n when", cell: (it) => time(it.created_at) },
    { title: "Reason", class: "text", isSecond: true, cell: (it) => timed(it.reason) },
  ], items),
  total > items.length ? h("p", { class: "fine" }, `The newest ${number(items.length)} of ${counted(total, "rollout")} are shown.`) : null,
];

async function loadOne({ parts, params }) {
  const [it, members] = await Promise.all([get(path(parts[1])), get(`${path(parts[1])}/members`, { state: params.get("state"), cursor: params.get("cursor"), limit: PAGE })]);
  return { it, members };
}

function membersPanel({ it, members }, route, context) {
  const { params } = route, now = params.get("state") ?? "";
  return h("section", { class: "panel across", key: "members" },
    h("header", { class: "row" }, h("h2", {}, "Observers"), h("span", { class: "fine" }, told(it)),
      h("label", { class: "row end" }, h("span", { class: "fine" }, "State"), h("select", { name: "state", onchange: (event) => context.set({ state: event.target.value, cursor: "" }) },
        h("option", { value: "", selected: !now }, "any"), MEMBER_STATES.map((name) => h("option", { value: name, selected: name === now }, name))))),
    members.items.length === 0 ? h("p", { class: "fine" }, "No observer has this state.") : table("Observers", [
      { title: "Observer", class: "name", cell: observerLink },
      { title: "State", cell: (row) => state(row.state) },
      { title: "Version", class: "n", cell: (row) => row.changed_to === null ? String(row.version) : `${row.version} → ${row.changed_to}` },
      { title: "Changed", isExtra: true, class: "n when", cell: (row) => time(row.changed_at) },
      { title: "Runs since", isExtra: true, class: "n when", cell: (row) => time(row.runs_since) },
      { title: "Reason", class: "text", isSecond: true, cell: (row) => timed(row.reason) },
    ], members.items),
    params.get("cursor") || members.next_cursor ? pager(["First", "Next"], members.next_cursor, route, context) : null);
}

function drawOne(data, route, context) {
  const { it } = data;
  return [
    h("header", { class: "head" }, h("p", { class: "crumb" }, h("a", { href: "#/rollouts" }, "Rollouts")), h("h1", {}, it.name), state(it.state)),
    it.reason ? h("p", { class: "why", key: "why" }, timed(it.reason)) : null,
    h("section", { class: "panel across", key: "progress" },
      h("p", { class: "load" }, h("strong", {}, number(ready(it))), ` of ${counted(it.members, "observer")} ready`, it.counts.failed ? h("span", { class: "fine bad" }, `${number(it.counts.failed)} failed`) : null),
      progress(it), buttons(it, context)),
    h("div", { class: "panels", key: "facts" },
      h("section", { class: "panel" }, h("h2", {}, "Rules"), h("dl", { class: "facts" },
        fact("Maximum in progress", number(it.max_parallel)), fact("Healthy after", spaced(it.healthy_for)), fact("Timeout", spaced(it.timeout)), fact("On failure", it.on_failure),
        fact("Started", time(it.created_at)), fact("By", it.by ?? "unknown"), over(it) ? fact("Ended", time(it.ended_at)) : null)),
      h("section", { class: "panel" }, h("h2", {}, "Patch"), h("pre", { tabindex: "0" }, toYaml(it.patch)),
        h("dl", { class: "facts" }, Object.entries(it.selector).map(([name, value]) => fact(SELECTED[name] ?? name, typeof value === "string" ? value : JSON.stringify(value)))))),
    membersPanel(data, route, context),
  ];
}

export const rollouts = { name: "rollouts", title: "Rollouts", load: () => get("/v1/rollouts", { limit: LISTED }), draw: drawAll };
export const rollout = { name: "rollout", title: "Rollout", load: loadOne, draw: drawOne };
