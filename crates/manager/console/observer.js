// One observer: where it stands and why, where it ran before, what happened to it.
import { get } from "./api.js";
import { ACTIONS, actOn } from "./observers.js";
import { h } from "./dom.js";
import { logs } from "./logs.js";
import { asker, duration, health, number, table, time, what } from "./show.js";
import { timesPanel, windowsText } from "./times.js";
import { SHOWN, versionsPanel } from "./versions.js";

const EVENTS = 50;
const RUNS = 30;

async function load({ parts }) {
  const path = `/v1/observers/${encodeURIComponent(parts[1])}`;
  const [it, runs, events] = await Promise.all([get(path), get(`${path}/runs`), get(`${path}/events`, { limit: EVENTS })]);
  const versions = it.definition_version > 1 ? await get(`${path}/versions`, { limit: SHOWN }) : { items: [], total: 0 };
  const schedule = it.schedule ? await get(`${path}/schedule`, { next: 5 }) : null;
  return { it, runs: runs.items, events, schedule, versions };
}

/** Only what makes sense now. */
function possible({ status: now, schedule }) {
  const by = { Scheduled: [...(schedule ? ["trigger"] : []), "pause", "delete"], Created: ["pause", "delete"], Processing: ["pause", "restart", "move", "delete"], Paused: ["resume", "delete"], Failed: [...(schedule ? ["trigger"] : []), "retry", "restart", "delete"], Completed: ["restart", "delete"] };
  return by[now] ?? [];
}

const retryText = (it) => ({
  exponential: () => `${it.first} doubling to ${it.max}${it.attempts ? `, ${it.attempts} attempts` : ", without limit"}`,
  fixed: () => `every ${it.every}${it.attempts ? `, ${it.attempts} attempts` : ", without limit"}`,
  intervals: () => `after ${(it.delays ?? []).join(", ")}`,
})[it.kind]?.() ?? it.kind;

const scheduleText = ({ cron, time_zone: zone, if_running: during, jitter }) => [h("code", {}, cron), ` in ${zone}${during === "skip" ? "" : `, if running: ${during}`}${jitter ? `, jitter ${jitter}` : ""}`];

function facts(it) {
  const labels = Object.entries(it.labels);
  const all = [
    ["Kind", it.kind],
    it.namespace === "default" ? null : ["Namespace", it.namespace],
    ["Pool", h("a", { href: `#/observers?pool=${encodeURIComponent(it.pool)}` }, it.pool)],
    ["Service", it.service ? h("a", { href: `#/observers?service=${it.service.id}` }, it.service.name) : "none"],
    [it.status === "Processing" ? "Running since" : "Last started", time(it.started_at)],
    ["Created", time(it.created_at)],
    it.start_at ? ["May start", time(it.start_at)] : null,
    it.windows ? ["Windows", windowsText(it.windows)] : null,
    it.closes_at ? ["Window closes", time(it.closes_at)] : null,
    it.schedule ? ["Schedule", scheduleText(it.schedule)] : null,
    it.schedule && it.next_start_at ? ["Next execution", time(it.next_start_at)] : null,
    it.last_execution ? ["Last execution", [time(it.last_execution.ended_at), it.last_execution.error ? ` failed: ${it.last_execution.error}` : " completed", it.last_execution.scheduled_for ? [", for ", time(it.last_execution.scheduled_for)] : ", started by a request"]] : null,
    it.finish_at ? ["Finishes", time(it.finish_at)] : null,
    it.start_within ? ["Start within", it.start_within] : null,
    it.attempt_timeout ? ["Attempt timeout", it.attempt_timeout] : null,
    it.priority ? ["Priority", number(it.priority)] : null,
    it.weight > 1 ? ["Weight", `${number(it.weight)} slots`] : null,
    it.limits.length ? ["Limits", it.limits.map((key) => h("a", { class: "tag", href: `#/limits/${encodeURIComponent(key)}` }, key))] : null,
    ["Changed", time(it.modified_at)],
    ["Generation", number(it.generation)],
    ["Redelivered", `${number(it.acquisitions)}×`],
    ["Status", it.status],
    ["Reason code", it.reason_code ? h("code", {}, it.reason_code) : "none"],
    ["Attempt", number(it.attempt)],
    ["Restarts", number(it.restarts)],
    ["Restart policy", retryText(it.retry)],
    ["Overlap", it.overlap === "forbid" ? "forbidden" : "allowed"],
    ["Stop timeout", it.grace],
    ["Labels", labels.length ? labels.map(([key, value]) => h("a", { class: "tag", href: `#/observers?label=${encodeURIComponent(`${key}=${value}`)}` }, `${key}=${value}`)) : "none"],
    ["Id", h("code", {}, it.id)],
  ].filter((fact) => fact !== null);
  return h("dl", { class: "facts" }, all.map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
}

const ENDED = { handed_over: "handed over", stopped: "stopped", completed: "completed", failed: "failed", lost: "its service was lost" };

/** Newest first, like the events below: a line for each run and for the time between two. */
function timeline(runs, it) {
  const line = (run, at) => {
    const runsNow = at === 0 && !run.ended && it.status === "Processing" && it.service?.id === run.service?.id;
    const end = run.ended_at;
    const how = run.ended ? ENDED[run.ended] ?? run.ended : runsNow ? (it.health === "restarting" ? "restarting" : "runs now") : "end not reported";
    const lasted = end ? duration(Math.max(Date.parse(end) - Date.parse(run.started_at), 0)) : null;
    return h("li", { key: String(run.epoch), "data-now": runsNow ? "yes" : undefined, "data-lost": run.ended === "lost" ? "yes" : undefined },
      h("p", {}, h("strong", {}, run.service?.name || "a service"), " ", h("span", { class: "how" }, how)),
      h("p", { class: "fine" }, "started ", time(run.started_at), lasted ? `, ran for ${lasted}` : "", run.attempts > 1 ? `, ${number(run.attempts)} attempts` : "",
        run.gap_ms !== null ? `, after a gap of ${duration(run.gap_ms)}` : "", ` · epoch ${run.generation}.${run.acquisitions}`));
  };
  const shown = runs.slice(0, RUNS);
  const waits = { Created: it.waiting ? " for a slot" : " in the queue of its pool", Scheduled: " for its start" };
  return h("ol", { class: "timeline" },
    waits[it.status] ? h("li", { key: "waits" }, h("p", {}, h("strong", {}, "Waits"), h("span", { class: "how" }, waits[it.status]))) : null,
    shown.map(line),
    runs.length > RUNS ? h("li", { key: "older" }, h("p", { class: "fine" }, `${number(runs.length - RUNS)} older runs`)) : null,
    h("li", { key: "created" }, h("p", {}, h("strong", {}, "Created")), h("p", { class: "fine" }, time(it.created_at), `, kind ${it.kind} in pool ${it.pool}`)));
}

function draw({ it, runs, events, schedule, versions }, _route, context) {
  const gone = it.status === "Deleted";
  return [
    h("header", { class: "head" }, h("p", { class: "crumb" }, h("a", { href: "#/observers" }, "Observers"), " /"), h("h1", {}, it.name), health(it),
      h("div", { class: "row end" }, possible(it).map((name) => h("button", { type: "button", key: name, class: ACTIONS[name].danger ? "button danger" : "button", onclick: () => actOn(name, [it], context) }, ACTIONS[name].word)))),
    it.reason ? h("p", { class: "why" }, it.reason) : null,
    it.progress ? h("p", { class: "why" }, it.progress) : null,
    it.last_error && !gone ? h("p", { class: "notice", "data-tone": "bad" }, h("strong", {}, "Last error: "), h("code", {}, it.last_error)) : null,
    h("div", { class: "panels" },
      h("section", { class: "panel" }, h("h2", {}, "Runs"), timeline(runs, it)),
      h("section", { class: "panel" }, h("h2", {}, "Facts"), facts(it)),
      timesPanel(it, schedule),
      h("section", { class: "panel across" }, h("h2", {}, "Logs"), logs(it)),
      h("section", { class: "panel across" }, h("h2", {}, "Spec"), h("pre", { tabindex: "0", role: "region", "aria-label": "Spec" }, JSON.stringify(it.spec, null, 2))),
      versionsPanel(it, versions, context),
      h("section", { class: "panel across" }, h("h2", {}, "Recent events"), table("Recent events", [
        { title: "When", class: "when", cell: (event) => time(event.at) },
        { title: "Event", cell: (event) => what(event.type) },
        { title: "Service", cell: (event) => event.service?.name ?? "" },
        { title: "Cause", class: "text", cell: (event) => event.text },
        { title: "By", cell: (event) => asker(event.by) },
        { title: "Gap", class: "n", cell: (event) => event.gap_ms === null ? "" : duration(event.gap_ms) },
      ], events.items), events.total > EVENTS ? h("p", { class: "fine" }, `The last ${EVENTS} of ${number(events.total)}. `, h("a", { href: `#/events?observer=${it.id}` }, "All events")) : null)),
  ];
}

export const observer = { name: "observer", title: "Observer", load, draw };
