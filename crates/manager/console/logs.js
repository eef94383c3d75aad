// The log of one observer, live while its page is visible: search, streams, runs, wrap, download, follow.
import { clockMs, exact } from "./clock.js";
import { h, patch } from "./dom.js";
import { Tail, runOf } from "./log-tail.js";
import { ENDED as RUN_ENDED } from "./runs.js";
import { counted, dated, number } from "./show.js";

const DRAW_MS = 200;
const SHOWN = 1000;
const RUNS = 50;
const NEAR_END = 24;
/** The most notes about runs between two lines. */
const TURNS = 5;
/** For this time after an input, in ms, a scroll of the pane comes from the user. */
const TOUCH_MS = 1000;
const ENDED = ["Completed", "Failed", "Deleted"];
const STREAMS = [["", "All"], ["stdout", "stdout"], ["stderr", "stderr"], ["log", "log"]];

let tail = null, timer = null, touchedAt = -Infinity;
/** The runs to choose from, the newest first. */
let runs = [];
const view = { follow: true, wrap: true, stream: "", run: "", find: "" };

function leave() {
  tail?.close();
  tail = null;
  Object.assign(view, { follow: true, run: "", find: "", stream: "" });
}
addEventListener("hashchange", () => { if (tail && location.hash.split("?")[0] !== tail.hash) leave(); });
// A hidden tab would keep one of the browser's few connections to this manager.
document.addEventListener("visibilitychange", () => { if (document.hidden) tail?.close(); });

const level = ({ text }) => (/^\s*(?:\[?(?:error|fatal|panic|critical)\b|.{0,40}\b(?:ERROR|FATAL)\b)/i.test(text) ? "error" : /^\s*(?:\[?warn|.{0,40}\bWARN\b)/i.test(text) ? "warn" : undefined);

function chosen() {
  const find = view.find.toLowerCase();
  const rows = view.run ? tail.rowsOf(view.run) : tail.rows;
  return rows.filter((it) => it.stream === "note" ? !find : (!view.stream || it.stream === view.stream) && (!find || it.text.toLowerCase().includes(find)));
}

function marked(text) {
  if (!view.find) return text;
  const parts = [], find = view.find.toLowerCase(), lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(find); at >= 0; at = lower.indexOf(find, from)) {
    parts.push(text.slice(from, at), h("mark", {}, text.slice(at, at + find.length)));
    from = at + find.length;
  }
  return [...parts, text.slice(from)];
}

function lines() {
  const all = chosen();
  if (all.length === 0) return [h("p", { key: "none", "data-stream": "note" }, tail.rows.length || view.run ? "No line matches." : "No output yet.")];
  const older = all.length > SHOWN || (!view.run && tail.rows.length >= SHOWN) ? [h("p", { key: "older", "data-stream": "note" }, `— the newest ${number(Math.min(all.length, SHOWN))} lines; older ones are not shown`)] : [];
  return [...older, ...parted(all.slice(-SHOWN)).map((it) => (it.stream === "note" ? h("p", { key: it.id, "data-stream": "note" }, "— ", dated(it.text)) :
    h("p", { key: it.id, "data-stream": it.stream, "data-level": level(it), title: `${exact(it.at)} · run ${runOf(it)}` }, h("span", { class: "at" }, clockMs(it.at)), h("span", { class: "from" }, it.stream), h("span", { class: "said" }, marked(it.text)))))];
}

const generationOf = (epoch) => epoch.split(".")[0];

/** The beginning of a run as a note: how the former run ended, and where this one runs. A resume, a change or a restart begins a generation. */
function turn(before, { epoch, on }) {
  const isSame = generationOf(before.epoch) === generationOf(epoch);
  const where = !on ? `run ${epoch}` : `${before.on === on ? `runs again${on}` : isSame ? `moved to${on.slice(" on".length)}` : `started${on}`} (epoch ${epoch})`;
  return `${before.ended ? `run ${before.epoch} ended: ${RUN_ENDED[before.ended] ?? before.ended} · ` : ""}${where}`;
}

/** The notes between the lines of two runs: one for each run that began between them, also for those that wrote no line. */
function turns(before, run) {
  const [from, to] = [before, run].map((epoch) => runs.findIndex((it) => it.epoch === epoch));
  if (from < 0 || to < 0 || from <= to) return [turn(runs[from] ?? { epoch: before }, runs[to] ?? { epoch: run })];
  const all = runs.slice(to, from + 1).reverse(), notes = all.slice(1).map((it, at) => turn(all[at], it));
  return notes.length <= TURNS ? notes : [`${number(notes.length - TURNS)} runs without a line`, ...notes.slice(-TURNS)];
}

/** A note of the stream about the beginning of a run. */
const TURN = /^(?:moved to|runs again on|started on) .* \(epoch (\d+\.\d+)\)$/;
/** A note about lines that are missing at its place. Any other note says what holds until the next line. */
const LOSS = /are not kept any more$/;

/** The rows with notes between the lines of two runs, unless the stream has one there, and without what no longer holds. A search shows lines only. */
function parted(rows) {
  if (view.find) return rows;
  const begun = ({ stream, text }) => (stream === "note" ? TURN.exec(text)?.[1] ?? null : null);
  const last = rows.findLastIndex((it) => runOf(it) !== null || begun(it) !== null);
  let former = null;
  return rows.filter((it, at) => at > last || it.stream !== "note" || begun(it) !== null || LOSS.test(it.text)).flatMap((it) => {
    const run = runOf(it), next = run ?? begun(it);
    if (next === null) return [it];
    const isNew = former !== null && next !== former, isKnown = runs.some((one) => one.epoch === next);
    const notes = isNew && (run !== null || isKnown) ? turns(former, next).map((text, at) => ({ id: `run-${it.id}-${at}`, stream: "note", text })) : [];
    former = next;
    return run === null ? (notes.length ? notes : [it]) : [...notes, it];
  });
}

const box = () => document.getElementById("logs");

function stick() {
  const pane = box();
  if (pane && view.follow) pane.scrollTop = pane.scrollHeight;
}

/** How many lines match the search. */
const found = () => (view.find && tail ? `${number(chosen().length)} of ${counted(tail.rows.length, "line")}` : "");

function show() {
  timer = null;
  const pane = box();
  if (!pane || !tail || pane.dataset.key !== tail.id) return;
  patch(pane, lines());
  document.getElementById("log-found").textContent = found();
  stick();
}

function scrolled(event) {
  const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
  const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
  // Only the user stops following; a redrawn page or a dialog does not.
  const follow = atEnd ? true : performance.now() - touchedAt < TOUCH_MS ? false : view.follow;
  if (follow === view.follow) return;
  view.follow = follow;
  document.getElementById("log-follow")?.setAttribute("aria-pressed", String(follow));
}

function download(name) {
  const text = parted(chosen()).map((it) => (it.stream === "note" ? `# ${it.text}` : `${it.at} ${it.stream} ${it.text}`)).join("\n");
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/plain" }));
  h("a", { href: url, download: `${name}.log` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** The address names the run, so that it can be sent. */
function turnToRun(run) {
  if (run === view.run) return;
  view.run = run;
  if (run && run !== runs[0]?.epoch) tail.read(run);
}

function tools(it, context) {
  const set = (changes) => { Object.assign(view, changes); context.redraw(); show(); };
  const choose = (run) => context.set({ run });
  const toggle = (id, text, on, run) => h("button", { type: "button", class: "quiet", id, "aria-pressed": String(on), onclick: run }, text);
  return h("div", { class: "log-tools", key: "tools" },
    h("input", { type: "search", "aria-label": "Search in the lines", placeholder: "Search", value: view.find, autocomplete: "off", spellcheck: "false", oninput: (event) => set({ find: event.target.value }) }),
    h("span", { class: "fine", id: "log-found", role: "status" }, found()),
    h("span", { class: "seg", role: "group", "aria-label": "Stream" }, STREAMS.map(([stream, text]) => h("button", { type: "button", class: "quiet", key: stream || "all", "aria-pressed": String(view.stream === stream), onclick: () => set({ stream }) }, text))),
    h("span", { class: "seg end" },
      runs.length > 1 ? h("select", { "aria-label": "Run", class: "small", onchange: (event) => choose(event.target.value) }, h("option", { value: "", selected: !view.run }, "All runs"), runs.map(({ epoch, on }) => h("option", { value: epoch, selected: epoch === view.run }, `Run ${epoch}${on}`))) : null,
      toggle("log-wrap", "Wrap", view.wrap, () => set({ wrap: !view.wrap })), h("button", { type: "button", class: "quiet", onclick: () => download(it.name) }, view.find || view.stream ? "Download these" : "Download"),
      toggle("log-follow", "Follow", view.follow, () => set({ follow: !view.follow }))));
}

/** The lines of this observer, kept up to date until the page is left; `known` are its runs, the newest first. */
export function logs(it, known, params, context) {
  if (tail?.id !== it.id) leave();
  if (!tail) {
    tail = new Tail(it.id, () => { timer ??= setTimeout(show, DRAW_MS); });
    tail.hash = location.hash.split("?")[0];
  }
  runs = known.slice(0, RUNS).map((run) => ({ epoch: run.epoch_string, ended: run.ended, on: run.service ? ` on ${run.service.name}` : "" }));
  turnToRun(params.get("run") ?? "");
  tail.open(ENDED.includes(it.status));
  requestAnimationFrame(stick);
  const touched = () => { touchedAt = performance.now(); };
  return h("section", { class: "panel log-panel", key: "logs" }, tools(it, context),
    h("div", { class: view.wrap ? "logs" : "logs unwrapped", id: "logs", key: it.id, tabindex: "0", role: "region", "aria-label": `Logs, ${counted(Math.min(tail.rows.length, SHOWN), "line")}`, onscroll: scrolled, onwheel: touched, ontouchmove: touched, onpointerdown: touched, onkeydown: touched }, lines()));
}
