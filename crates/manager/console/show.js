// How numbers, times and states are written, the same in every view.
import { exact } from "./clock.js";
import { h } from "./dom.js";
import { meaningOf, term } from "./terms.js";

/** The healthy one first; an observer that is not to run now has none. */
export const HEALTHS = ["running", "restarting", "waiting", "moving", "stopping"];
/** What an observer is that has no health. */
export const RESTS = ["Scheduled", "Paused", "Failed", "Completed"];
export const STATUSES = ["Processing", "Scheduled", "Created", "OnDeleting", "Paused", "Failed", "Completed"];
const WORDS = { Processing: "Running", Scheduled: "Scheduled", Created: "Waiting", OnDeleting: "Deleting", Paused: "Paused", Failed: "Failed", Completed: "Completed", Deleted: "Deleted",
  running: "Running", restarting: "Restarting", waiting: "Waiting", moving: "Moving", stopping: "Stopping" };

/** The observers that are not deleted. */
export const observersIn = ({ observers }) => STATUSES.reduce((sum, it) => sum + (observers[it] ?? 0), 0);

const NUMBERS = new Intl.NumberFormat("en");
export const number = (value) => NUMBERS.format(value);
export const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
export const word = (status) => WORDS[status] ?? status;

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

const UNITS = { m: "min" };
/** A duration of a definition, such as 1h30m, as the console writes durations: 1 h 30 min. */
export const spaced = (text) => text.replace(/(\d)\s*([a-z]+)\s*/g, (_, digit, unit) => `${digit} ${UNITS[unit] ?? unit} `).trim();

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(count, 1)) / 10));
  return `${(count / 1024 ** unit).toFixed(unit < 2 ? 0 : 1)} ${units[unit]}`;
}

function ago(at) {
  const ms = Date.now() - Date.parse(at);
  if (Math.abs(ms) < 1500) return "now";
  if (ms < 0) return `in ${duration(-ms)}`;
  // No tenths: a clock that counts along must not flicker.
  return `${ms < 10000 ? `${Math.floor(ms / 1000)} s` : duration(ms)} ago`;
}

/** Relative, with the exact one on hover. */
export function time(at) {
  if (!at) return h("span", { class: "none" }, "–");
  return h("time", { datetime: at, title: exact(at) }, ago(at));
}

/** A sentence of a manager, with its durations as the console writes them. */
const spoken = (text) => text.replace(/(?<=^|[\s(])\d+(?:\.\d+)?(?:ms|[smhd])(?!\w|\.\w)/g, spaced);

const MOMENT = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/;

/** A sentence of a manager, with relative times like all other texts. */
export function timed(text) {
  const found = MOMENT.exec(text ?? "");
  if (!found) return spoken(text ?? "");
  const before = spoken(text.slice(0, found.index)).replace(/ (?:at|since|until) $/, (word) => (word === " at " ? " " : word));
  return [before, time(found[0]), timed(text.slice(found.index + found[0].length))];
}

/** The same as plain text, for a tooltip. */
export function timedText(text) {
  const found = MOMENT.exec(text ?? "");
  if (!found) return spoken(text ?? "");
  return `${spoken(text.slice(0, found.index)).replace(/ (?:at|since|until) $/, (word) => (word === " at " ? " " : word))}${ago(found[0])}${timedText(text.slice(found.index + found[0].length))}`;
}

/** A text with exact times: those of an event may be past. */
export function dated(text) {
  const found = MOMENT.exec(text ?? "");
  if (!found) return text ?? "";
  return [text.slice(0, found.index), h("span", { title: found[0] }, exact(found[0])), dated(text.slice(found.index + found[0].length))];
}

/** The events whose text is that of an observer's code: the console changes no duration in it. */
const OF_CODE = new Set(["errored", "restarted", "refused", "failed"]);
/** Why an event happened. */
export const causeOf = ({ type, text }) => dated(OF_CODE.has(type) ? text : spoken(text ?? ""));

/** What the manager says beside the error of an observer's code; nothing if it says no more than that. */
export function besideError({ reason, last_error: error }) {
  const end = `: ${error}`, said = reason?.endsWith(end) ? reason.slice(0, -end.length) : reason;
  return said && said !== error ? said : null;
}

export function tick() {
  for (const element of document.querySelectorAll("main time")) {
    const text = ago(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** How many observers have this health, or this status. */
export const countOf = ({ health, observers }, name) => health[name] ?? observers[name] ?? 0;
/** Health where there is one, otherwise the status. */
export const standing = (it) => it.health ?? it.status;
const standingText = (it) => [word(standing(it)), it.health === "restarting" && it.restarts > 0 ? h("span", { class: "spare", title: "since it last was healthy" }, `· ${counted(it.restarts, "restart")}`) : null];
export const health = (it) => h("span", { class: "status", "data-status": standing(it), title: timedText(it.reason) || undefined },
  standingText(it));
export const state = (name) => h("span", { class: "status", "data-state": name, title: meaningOf(name) }, word(name));
/** The state of a service; an order that its next heartbeat confirms shows as in progress. */
export const stateOf = (it) => (!it.unconfirmed ? it.state : it.cordoned && it.state === "active" ? "cordoning" : !it.cordoned && it.state === "cordoned" ? "uncordoning" : it.state);
/** The health of an observer as a pill, for the head of its page. */
export const pill = (it) => h("span", { class: "status pill", "data-status": standing(it) }, standingText(it));

/** `isLoad`: whether the bar shows the used part of something, and not progress. */
export function bar(part, whole, label, isLoad = true) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return h("span", { class: isLoad && share >= 1 ? "bar full" : "bar", role: "img", "aria-label": label },
    h("span", { style: { width: `${(share * 100).toFixed(1)}%` } }));
}

/** Who asked for it: the name that was given, else the address. */
export const asker = (by) => by ? h("span", { title: [by.who, by.from, by.with].filter(Boolean).join(" · ") }, by.who ?? by.from ?? "unknown") : "";

/** Formats text between backticks as code. */
export const coded = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));

/** The page that does what a cure of the manager says with a command. */
const CURES = [["everwatch namespace apply", "#/namespaces", "Open Namespaces"], ["everwatch limit set", "#/limits", "Open Limits"]];
/** A complaint, with a link to the page that cures it, if there is one. */
export function complaint(text) {
  const cure = CURES.find(([command]) => text.includes(command));
  return cure ? [...coded(text), " ", h("a", { href: cure[1] }, cure[2])] : coded(text);
}

/** A fact in a list of them: its title and its value. */
export const fact = (title, value) => h("div", { key: title }, h("dt", {}, term(title)), h("dd", {}, value));

/** A button in a row; `label` also says which row it is. It is disabled with the reason `whyNot`. */
export const smallButton = (text, label, onclick, { isDanger = false, whyNot = null } = {}) => h("button", { type: "button", class: isDanger ? "button small danger" : "button small", "aria-label": label, disabled: Boolean(whyNot), title: whyNot ?? undefined, onclick }, text);

/** The buttons below a page of a list: they go to its first page and to the next one. */
export function pager(words, next, { params }, context, note = "") {
  const cursor = params.get("cursor"), [first, further] = words;
  return h("nav", { class: "pager", "aria-label": "Pages" }, h("span", {}, cursor ? note : ""),
    h("button", { type: "button", class: "button", disabled: !cursor, onclick: () => context.set({ cursor: "" }, false) }, first),
    h("button", { type: "button", class: "button", disabled: !next, onclick: () => { context.set({ cursor: next }, false); scrollTo(0, 0); } }, further));
}

const isElsewhere = (it) => it.namespace && it.namespace !== "default";
/** The address of the page of an observer: by its name, or by its id if it is deleted or might be. */
export const observerPath = (it) => `observers/${it.status === undefined || it.status === "Deleted" ? it.id : `${isElsewhere(it) ? `${encodeURIComponent(it.namespace)}/` : ""}${encodeURIComponent(it.name)}`}`;
/** With its namespace, unless that is the usual one. */
export const observerName = (it) => (isElsewhere(it) ? `${it.namespace}/${it.name}` : it.name);
export const observerLink = (it) => h("a", { href: `#/${observerPath(it)}` }, observerName(it));

/** What the things of a page are, for those who do not know. */
export const explained = (text) => h("p", { class: "explained", key: "explained" }, text);

export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), actions.length ? h("p", { class: "row" }, ...actions) : null);
}

export const EVENT_TYPES = [
  "created", "adopted", "scheduled", "waiting", "admitted", "duplicated", "withdrawn", "crash_looping", "messages_refused", "changed",
  "pause_requested", "resume_requested", "restart_requested", "preempted", "delete_requested", "trigger_requested", "republished", "started",
  "restarted", "errored", "handed_over", "refused", "stopped", "completed", "failed", "deleted", "service_registered", "service_suspect",
  "service_lost", "service_gone", "work_queue_created", "safe_mode", "pool_paused", "pool_resumed", "limit_set", "limit_deleted", "rate_set",
  "rate_deleted", "batch_created", "batch_incomplete", "batch_completed", "batch_retried", "batch_cancelling", "batch_cancelled", "batch_deleted",
  "rollout_started", "rollout_paused", "rollout_resumed", "rollout_reverting", "rollout_finished", "rollout_reverted", "rollout_cancelled",
  "republish_capped", "move_requested", "moved_elsewhere", "service_cordoned", "service_uncordoned", "service_draining", "service_drained", "service_resized",
  "rebalanced", "quarantine_capped", "unreadable",
];
/** An event in the words of the API and the CLI. */
export const eventWord = (type) => (type === "crash_looping" ? "crash-looping" : type.replaceAll("_", " "));
const BAD = new Set(["errored", "refused", "failed", "service_suspect", "service_lost", "republish_capped", "crash_looping", "duplicated", "messages_refused", "rollout_reverting", "batch_incomplete"]);
const GOOD = new Set(["started", "completed", "service_registered", "rollout_finished", "batch_completed"]);

export const what = (it) => h("span", { class: "what", "data-tone": BAD.has(it) ? "bad" : GOOD.has(it) ? "good" : "plain" }, eventWord(it));

/** Narrow screens show the column that explains a row (`isSecond`) below its name or its head, and not as a column. */
function secondLines(columns) {
  const why = columns.find((it) => it.isSecond);
  if (!why) return columns;
  const head = columns.find((it) => it.isHead) ?? columns.find((it) => it.class === "name"), both = (it) => ({ ...it, cell: (item) => [it.cell(item), h("span", { class: "under" }, (why.under ?? why.cell)(item))] });
  return columns.map((it) => (it === why ? { ...it, class: `${it.class} spare` } : it === head ? both(it) : it));
}

/** A table whose columns are `{ title, cell(item), class, isHead, isSecond, isExtra, sorted }` (`sorted`: a value of `aria-sort`), of which a phone omits the extra ones (`under(item)`: what it shows of the second one); it scrolls in itself when it is too wide. */
export function table(caption, given, items, rowOf = () => ({})) {
  const columns = secondLines(given).map((it) => (it.isExtra ? { ...it, class: [it.class, "roomy"].filter(Boolean).join(" ") } : it));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((it) => h("th", { scope: "col", class: it.class, "aria-sort": it.sorted }, typeof it.title === "string" ? term(it.title) : it.title)))),
      h("tbody", {}, items.map((item) => h("tr", { key: String(item.id ?? item.name ?? item.key ?? item.epoch), ...rowOf(item) },
        columns.map((it) => h("td", { class: it.class }, it.cell(item))))))));
}
