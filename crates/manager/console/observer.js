// One observer: its health and reason, runs, log, definition, versions and events, and the actions on it.
import { get } from "./api.js";
import { copyButton } from "./copy.js";
import { asCommand, asCurl, ordered } from "./definition.js";
import { ACTIONS, actOn, possible } from "./observer-actions.js";
import { h } from "./dom.js";
import { editPanel, hasDraft, isEditing, loadEdit, openEditor } from "./edit.js";
import { gap, isBound } from "./gap.js";
import { logs } from "./logs.js";
import { runList, stripPanel } from "./runs.js";
import { may, readable } from "./session.js";
import { asker, besideError, causeOf, counted, duration, fact, number, observerPath, pill, spaced, table, time, timed, what } from "./show.js";
import { timesPanel, windowsText } from "./times.js";
import { SHOWN, versionsPanel } from "./versions.js";
import { toYaml } from "./yaml.js";

const EVENTS = 50;
const NEEDS = { logs: "logs:read", definition: "specs:read", versions: "specs:read" };
const allowed = (tab) => may(NEEDS[tab]);
const TABS = { logs: "Logs", runs: "Runs", definition: "Definition", versions: "Versions", events: "Events" };

const ID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i;
/** The address that shows an observer, and its id: a deleted observer has no name. */
let known = { path: null, id: null };

function read(key, namespace) {
  const path = `/v1/observers/${encodeURIComponent(key)}`, none = { items: [], total: 0 };
  return Promise.all([get(path, { namespace }), get(`${path}/runs`, { namespace }), get(`${path}/events`, { namespace, limit: EVENTS }), readable("specs:read", () => get(`${path}/versions`, { namespace, limit: SHOWN }), none)]);
}

/** The address has `[namespace/]name`, or the id. */
async function load({ path, parts: [, first, second], params }) {
  const found = await read(second ?? first, second && first).catch((error) => {
    if (error.status === 404 && known.path === path) return read(known.id);
    throw error;
  });
  const [it, runs, events, versions] = found;
  known = { path: observerPath(it), id: it.id };
  const schedule = it.schedule ? await get(`/v1/observers/${encodeURIComponent(it.id)}/schedule`, { next: 5 }) : null;
  const editing = may("observers:update") && may("specs:read") ? await loadEdit(it, params) : null;
  return { it, runs: runs.items, events, schedule, versions, editing };
}

const retryText = (it) => ({
  exponential: () => `${spaced(it.first)}, doubling to ${spaced(it.max)}${it.attempts ? `, ${counted(it.attempts, "attempt")}` : ", without limit"}`,
  fixed: () => `after ${spaced(it.every)} each time${it.attempts ? `, ${counted(it.attempts, "attempt")}` : ", without limit"}`,
  intervals: () => (it.delays?.length ? `after ${it.delays.map(spaced).join(", ")}` : "none: it fails at its first error"),
})[it.kind]?.() ?? it.kind;

const scheduleText = ({ cron, time_zone: zone, if_running: during, jitter }) => [h("code", {}, cron), ` in ${zone}${during === "skip" ? "" : `, if running: ${during}`}${jitter ? `, jitter ${spaced(jitter)}` : ""}`];
const lastExecution = ({ ended_at: at, error, scheduled_for: due }) => [time(at), error ? ` failed: ${error}` : " completed", due ? [", for ", time(due)] : ", started by a request"];

function facts(it, [last]) {
  const labels = Object.entries(it.labels);
  const all = [
    ["Kind", h("a", { href: `#/kinds/${encodeURIComponent(it.kind)}` }, it.kind)],
    it.namespace === "default" ? null : ["Namespace", it.namespace],
    ["Pool", h("a", { href: `#/pools/${encodeURIComponent(it.pool)}` }, it.pool)],
    ["Service", it.service ? h("a", { href: `#/services/${encodeURIComponent(it.service.name)}` }, it.service.name) : "none"],
    [it.health === "running" ? "Running since" : "Last started", time(it.started_at)],
    ["Completed", "Failed"].includes(it.status) && last?.ended_at ? ["Ended", time(last.ended_at)] : null,
    ["Created", time(it.created_at)],
    ["Epoch", `${it.generation}.${it.acquisitions}`],
    ["Attempt of this run", number(it.attempt)],
    it.restarts ? ["Restarts", number(it.restarts)] : null,
    ["Retry policy", retryText(it.retry)],
    ["Overlap", it.overlap === "forbid" ? "forbidden" : "allowed"],
    ["Grace period", spaced(it.grace)],
    it.start_at ? ["Starts", time(it.start_at)] : null,
    it.windows ? ["Windows", windowsText(it.windows)] : null,
    it.closes_at ? ["Window closes", time(it.closes_at)] : null,
    it.schedule ? ["Schedule", scheduleText(it.schedule)] : null,
    it.schedule && it.next_start_at ? ["Next execution", time(it.next_start_at)] : null,
    it.last_execution ? ["Last execution", lastExecution(it.last_execution)] : null,
    it.finish_at ? ["Finishes", time(it.finish_at)] : null,
    it.start_within ? ["Start within", spaced(it.start_within)] : null,
    it.attempt_timeout ? ["Attempt timeout", spaced(it.attempt_timeout)] : null,
    it.priority ? ["Priority", number(it.priority)] : null,
    it.weight > 1 ? ["Weight", `${number(it.weight)} slots`] : null,
    it.limits.length ? ["Limits", it.limits.map((key) => h("a", { class: "tag", href: `#/limits/${encodeURIComponent(key)}` }, key))] : null,
    labels.length ? ["Labels", labels.map(([key, value]) => h("a", { class: "tag", href: `#/observers?label=${encodeURIComponent(`${key}=${value}`)}` }, `${key}=${value}`))] : null,
    it.reason_code ? ["Reason code", h("code", {}, it.reason_code)] : null,
    ["Id", [h("code", { title: it.id }, `${it.id.slice(0, 8)}…`), copyButton(it.id, "Copy", "Copy the id")]],
  ].filter((fact) => fact !== null);
  return h("section", { class: "panel", key: "facts" }, h("h2", { class: "unseen" }, "Facts"), h("dl", { class: "facts" }, all.map(([title, value]) => fact(title, value))));
}

function definitionPanel({ it, versions }) {
  const newest = versions.items[0]?.definition ?? { name: it.name, kind: it.kind, spec: it.spec };
  return h("section", { class: "panel", key: "definition" }, h("header", {}, h("h2", {}, `Version ${it.definition_version}`),
    h("span", { class: "seg end" }, copyButton(toYaml(ordered(newest)), "Copy YAML"), copyButton(asCommand(newest), "Copy as CLI"), copyButton(asCurl(newest), "Copy as curl"))),
  h("pre", { tabindex: "0", role: "region", "aria-label": "Definition" }, toYaml(ordered(newest))));
}

const eventsPanel = ({ it, events }) => h("section", { class: "panel", key: "events" }, h("h2", {}, "Recent events"), table("Recent events", [
  { title: "When", class: "when", cell: (event) => time(event.at) },
  { title: "Event", isHead: true, cell: (event) => what(event.type) },
  { title: "Service", isExtra: true, cell: (event) => event.service?.name ?? "" },
  { title: "Cause", class: "text", isSecond: true, cell: (event) => causeOf(event) },
  { title: "By", isExtra: true, cell: (event) => asker(event.by) },
  { title: "Gap", isExtra: true, class: "n", cell: (event) => event.gap_ms === null ? "" : gap(event.gap_ms, isBound(event)) },
], events.items), events.total > EVENTS ? h("p", { class: "fine" }, `The last ${EVENTS} of ${number(events.total)}. `, h("a", { href: `#/events?observer=${it.id}` }, "All events")) : null);

function tabs(data, now, context) {
  const shown = Object.entries(TABS).filter(([name]) => allowed(name));
  const counts = { versions: data.versions.total, runs: data.runs.length, events: data.events.total };
  const move = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const names = shown.map(([name]) => name), next = names[(names.indexOf(now) + by + names.length) % names.length];
    context.set({ tab: next });
    document.getElementById(`tab-${next}`)?.focus();
  };
  return h("div", { class: "tabs", role: "tablist", "aria-label": "About this observer", key: "tabs", onkeydown: move }, shown.map(([name, text]) =>
    h("button", { type: "button", role: "tab", key: name, id: `tab-${name}`, "aria-selected": String(name === now), "aria-controls": "tab-panel", tabindex: name === now ? "0" : "-1", onclick: () => context.set({ tab: name === "logs" ? "" : name }) }, text, counts[name] ? [" ", h("small", {}, number(counts[name]))] : null)));
}

/** When an observer completed, and how long its last run took. */
function endedText(it, run) {
  const lasted = run?.ended_at ? ` after ${duration(Math.max(Date.parse(run.ended_at) - Date.parse(run.started_at), 0))}` : "";
  return ["Completed ", time(run?.ended_at ?? it.modified_at), lasted ? `: its last run ended${lasted}` : "", "."];
}

function header(it, context) {
  const gone = it.status === "Deleted" || it.status === "OnDeleting";
  const button = (name) => h("button", { type: "button", key: name, class: ACTIONS[name].danger ? "button danger" : "button", onclick: () => actOn(name, [it], context) }, ACTIONS[name].word);
  return h("header", { class: "head", key: "head" }, h("p", { class: "crumb" }, h("a", { href: "#/observers" }, "Observers"), " / ", h("a", { href: `#/observers?namespace=${encodeURIComponent(it.namespace)}`, title: `Observers of namespace ${it.namespace}` }, it.namespace)), h("h1", {}, it.name), pill(it),
    h("div", { class: "row end" },
      may("observers:update") && may("specs:read") && !gone ? h("button", { type: "button", key: "edit", class: "button", "data-action": "edit", onclick: () => openEditor(context) }, hasDraft(it) ? "Continue editing" : "Edit") : null,
      possible(it).filter((name) => name !== "delete").map(button),
      may("observers:create") && may("specs:read") ? h("a", { key: "clone", class: "button", href: `#/create?from=${it.id}` }, "Clone") : null,
      possible(it).includes("delete") ? button("delete") : null));
}

function draw(data, { params }, context) {
  const { it, runs, schedule, versions, editing } = data;
  const asked = Object.hasOwn(TABS, params.get("tab") ?? "") ? params.get("tab") : "logs";
  const tab = allowed(asked) ? asked : "runs";
  const panel = { logs: () => logs(it, runs, params, context), runs: () => h("section", { class: "panel", key: "runs" }, h("h2", {}, "Runs, newest first"), runList(runs, it)), definition: () => definitionPanel(data), versions: () => versionsPanel(it, versions, params, context), events: () => eventsPanel(data) };
  return [
    header(it, context),
    it.status === "Completed" && !it.reason ? h("p", { class: "why", key: "over" }, endedText(it, runs[0])) : null,
    it.last_error && it.status !== "Deleted" ? h("p", { class: "why", key: "error" }, h("span", { class: "bad" }, it.last_error), besideError(it) ? [" · ", timed(besideError(it))] : "") : it.reason ? h("p", { class: "why", key: "why" }, timed(it.reason)) : null,
    it.progress ? h("p", { class: "why", key: "progress" }, it.progress) : null,
    editing && isEditing(it) ? editPanel(it, editing, context) : null,
    stripPanel(runs, it, params, context),
    facts(it, runs),
    timesPanel(it, schedule),
    tabs(data, tab, context),
    h("div", { id: "tab-panel", role: "tabpanel", key: `panel-${tab}`, "aria-labelledby": `tab-${tab}` }, panel[tab]()),
  ];
}

const nameIn = ([, first, second]) => second ?? (ID.test(first) ? null : first);

/** Where to look for an observer that the manager does not know. */
const elsewhere = ({ parts }) => (nameIn(parts) ? { text: `Find observers like ${nameIn(parts)}`, href: `#/observers?q=${encodeURIComponent(nameIn(parts))}` } : { text: "Events of this observer", href: `#/events?observer=${encodeURIComponent(parts[1])}` });

export const observer = { name: "observer", title: "Observer", load, draw, nameIn, elsewhere, address: ({ it }) => observerPath(it) };
