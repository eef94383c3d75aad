// A form for a new observer, made from what its kind says of its spec.
import { Refused, call, get } from "./api.js";
import { toast } from "./ask.js";
import { asSwitch, drawText, loadText } from "./create-text.js";
import { h } from "./dom.js";
import { collect, control, fields } from "./schema.js";
import { readable } from "./session.js";
import { empty } from "./show.js";

/** Members of the definition that a field of the form writes, beside those of the spec. */
const POINTERS = ["/name", "/kind", "/pool", "/labels", "/priority", "/weight", "/limits", "/start_at", "/finish_at", "/start_within", "/attempt_timeout", "/schedule", "/windows", "/time_zone"];
const WHOLE = [{ name: "spec", shape: "json", required: false, about: "this kind has no schema" }];
const CLEAN = () => ({ name: "", kind: null, pool: "", labels: "", queue: false, forbid: false, priority: "", weight: "", limits: "", start: "", finish: "", within: "", timeout: "", schedule: "", running: "skip", windows: "", zone: ZONE, spec: {}, wrong: {}, sending: false });
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
let draft = CLEAN();
/** The kind in the address. */
let asked = null;

async function load({ params }) {
  if (params.get("as") === "yaml") await loadText(params);
  if (params.get("kind") && params.get("kind") !== asked) { asked = params.get("kind"); Object.assign(draft, { kind: asked, spec: {}, wrong: {} }); }
  const [kinds, pools] = await Promise.all([get("/v1/kinds"), readable("pools:read", () => get("/v1/pools"), { items: [] })]);
  return { kinds: kinds.items, pools: pools.items };
}

function body(members, whole) {
  const spec = collect(members, draft.spec);
  const labels = draft.labels.split(/[,\n]/).map((it) => it.trim()).filter(Boolean).map((it) => {
    if (!it.includes("=")) throw { name: "/labels", message: `“${it}” is not key=value` };
    return [it.slice(0, it.indexOf("=")), it.slice(it.indexOf("=") + 1)];
  });
  return {
    ...(draft.name.trim() && { name: draft.name.trim() }), kind: draft.kind, spec: whole ? spec.spec ?? {} : spec,
    ...(draft.pool && { pool: draft.pool }), ...(labels.length && { labels: Object.fromEntries(labels) }),
    ...(draft.priority.trim() && { priority: numbered(draft.priority.trim()) }), ...(draft.weight.trim() && { weight: numbered(draft.weight.trim()) }), ...(draft.limits.trim() && { limits: draft.limits.split(/[\s,]+/).filter(Boolean) }), ...(draft.timeout.trim() && { attempt_timeout: draft.timeout.trim() }),
    ...(draft.within.trim() && { start_within: draft.within.trim() }),
    ...(draft.schedule.trim() && { schedule: { cron: draft.schedule.trim(), time_zone: draft.zone.trim(), if_running: draft.running } }),
    ...(draft.windows.trim() && { windows: { time_zone: draft.zone.trim(), open: draft.windows.split(/[;\n]/).map((it) => it.trim()).filter(Boolean).map(opening) } }),
    ...(draft.start && { start_at: new Date(draft.start).toISOString() }), ...(draft.finish && { finish_at: new Date(draft.finish).toISOString() }),
    on_full: draft.queue ? "queue" : "reject", overlap: draft.forbid ? "forbid" : "allow",
  };
}

/** One window, as in “mon-fri 09:30-16:00”. */
function opening(text) {
  const parts = /^(?:(\S+)\s+)?(\d\d:\d\d)-(\d\d:\d\d)$/.exec(text);
  if (!parts) throw { name: "/windows", message: `“${text}” is not a window: write days and two times, as in mon-fri 09:30-16:00` };
  return { ...(parts[1] && { days: parts[1] }), from: parts[2], to: parts[3] };
}

/** The field of the form that writes the member at this place. */
function fieldOf(pointer) {
  if (pointer.startsWith("/spec/")) return pointer.slice(6).split("/")[0];
  if (pointer.endsWith("/time_zone")) return "/time_zone";
  return ["/labels", "/limits", "/schedule", "/windows"].find((it) => pointer.startsWith(it)) ?? pointer;
}

/** What the manager can judge: a text that is no number is sent as it is. */
const numbered = (text) => Number.isNaN(Number(text)) ? text : Number(text);

/** Puts each complaint below the field that it is about; answers those without one. */
function complain(error, members) {
  const known = new Set([...POINTERS, ...members.map((it) => it.name)]);
  const lost = [];
  for (const { pointer, detail } of error.errors) {
    const name = fieldOf(pointer);
    known.has(name) ? (draft.wrong[name] = detail) : lost.push(`${pointer} ${detail}`);
  }
  return error.errors.length === 0 ? [error.message] : lost;
}

async function send(members, whole, context) {
  draft.wrong = {};
  draft.sending = true;
  try {
    const made = await call("POST", "/v1/observers", body(members, whole));
    draft = { ...CLEAN(), kind: draft.kind };
    location.hash = `#/observers/${made.id}`;
    return;
  } catch (error) {
    if (error instanceof Refused) {
      if (error.code === "name-exists" || error.code === "name-ending") draft.wrong["/name"] = error.message;
      else complain(error, members).forEach((it) => toast(it));
    } else if (error.name && !(error instanceof Error)) draft.wrong[error.name] = error.message;
    else toast(error.message);
  }
  draft.sending = false;
  context.redraw();
  document.querySelector("[aria-invalid=true]")?.focus();
}

function line(label, pointer, id, input, hint) {
  const wrong = draft.wrong[pointer];
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-hint`);
  if (wrong) input.setAttribute("aria-invalid", "true");
  return h("div", { class: "field" }, h("label", { for: id }, label), input, h("p", { id: `${id}-hint`, class: wrong ? "hint bad" : "hint" }, wrong || hint));
}

const check = (text, name, hint) => h("label", { class: "check" },
  h("input", { type: "checkbox", checked: draft[name], onchange: (event) => { draft[name] = event.target.checked; } }), h("span", {}, text, h("span", { class: "hint" }, hint)));

function draw({ kinds, pools }, { params }, context) {
  const asText = params.get("as") === "yaml";
  const head = h("header", { class: "head" }, h("h1", {}, "New observer"), asSwitch(asText ? "yaml" : "form"));
  if (kinds.length === 0) return [head, empty("No services", "Services register the kinds that they offer. Start a service, and its kinds appear here.", h("a", { class: "button", href: "#/services" }, "Services"))];
  if (asText) return [head, drawText({ kinds }, context)];
  if (!kinds.some((it) => it.name === draft.kind)) draft.kind = (kinds.find((it) => it.name === "ticker") ?? kinds[0]).name;
  const kind = kinds.find((it) => it.name === draft.kind);
  const told = fields(kind.schema), members = told ?? WHOLE;
  const keep = (name) => (event) => { draft[name] = event.target.value; };
  const choose = (event) => { draft.kind = event.target.value; draft.spec = {}; draft.wrong = {}; context.redraw(); };
  return [head, h("form", { class: "sheet", novalidate: true, onsubmit: (event) => { event.preventDefault(); send(members, told === null, context); context.redraw(); } },
    h("fieldset", {}, h("legend", {}, "What"),
      line("Name", "/name", "new-name", h("input", { name: "name", value: draft.name, oninput: keep("name"), autocomplete: "off", spellcheck: "false" }), "letters, digits, - _ . ; if empty, the manager generates a name"),
      line("Kind", "/kind", "new-kind", h("select", { name: "kind", onchange: choose }, kinds.map((it) => h("option", { value: it.name, selected: it.name === draft.kind }, it.name))), `${kind.services === 1 ? "1 service offers" : `${kind.services} services offer`} it`)),
    h("fieldset", { key: `spec-of-${draft.kind}` }, h("legend", {}, `Spec of ${draft.kind}`), members.length ? members.map((it) => control(it, draft.spec, draft.wrong[it.name])) : h("p", { class: "hint" }, "This kind takes no arguments.")),
    h("fieldset", {}, h("legend", {}, "Placement and policies"),
      line("Pool", "/pool", "new-pool", h("select", { name: "pool", onchange: keep("pool") }, h("option", { value: "", selected: !draft.pool }, "default"), pools.filter((it) => it.name !== "default").map((it) => h("option", { value: it.name, selected: draft.pool === it.name }, it.name))), "which services may run it"),
      line("Labels", "/labels", "new-labels", h("input", { name: "labels", value: draft.labels, oninput: keep("labels"), placeholder: "team=a, region=eu", autocomplete: "off", spellcheck: "false" }), "key=value, comma-separated"),
      check("Queue when full", "queue", "otherwise, the manager refuses the observer when the pool is full"),
      line("Priority", "/priority", "new-priority", h("input", { name: "priority", type: "number", min: -100, max: 100, step: 1, value: draft.priority, oninput: keep("priority"), placeholder: "0" }), "-100 to 100; free slots go to the highest priority first"),
      line("Weight", "/weight", "new-weight", h("input", { name: "weight", type: "number", min: 1, max: 1000, step: 1, value: draft.weight, oninput: keep("weight"), placeholder: "1" }), "the number of slots that it takes"),
      line("Limits", "/limits", "new-limits", h("input", { name: "limits", value: draft.limits, oninput: keep("limits"), placeholder: "account-42" }), "keys, separated by commas; it runs while each of these limits has a free place"),
      check("Never overlap", "forbid", "a new run starts only after the previous run has certainly ended")),
    h("fieldset", {}, h("legend", {}, "Times"),
      line("Start", "/start_at", "new-start", h("input", { name: "start_at", type: "datetime-local", step: 1, value: draft.start, oninput: keep("start") }), `in the time zone of this browser, ${ZONE}; if empty, at once`),
      line("Finish", "/finish_at", "new-finish", h("input", { name: "finish_at", type: "datetime-local", step: 1, value: draft.finish, oninput: keep("finish") }), "it ends at this time; if empty, it has no end"),
      line("Schedule", "/schedule", "new-schedule", h("input", { name: "schedule", value: draft.schedule, oninput: keep("schedule"), placeholder: "0 3 * * *", autocomplete: "off", spellcheck: "false" }), "cron expression of the times at which it executes; not together with windows"),
      line("If running", "/if_running", "new-running", h("select", { name: "if_running", onchange: keep("running") }, [["skip", "skip that time"], ["queue", "execute again afterwards"], ["restart", "stop and execute again"]].map(([value, text]) => h("option", { value, selected: draft.running === value }, text))), "at a time of the schedule while an execution is active"),
      line("Windows", "/windows", "new-windows", h("input", { name: "windows", value: draft.windows, oninput: keep("windows"), placeholder: "mon-fri 09:30-16:00; sat 10:00-12:00", autocomplete: "off", spellcheck: "false" }), "it runs only within these hours; if empty, always"),
      line("Time zone", "/time_zone", "new-zone", h("input", { name: "time_zone", value: draft.zone, oninput: keep("zone"), autocomplete: "off", spellcheck: "false" }), "of the schedule or the windows, such as Europe/Berlin"),
      line("Start within", "/start_within", "new-within", h("input", { name: "start_within", value: draft.within, oninput: keep("within"), placeholder: "10m", autocomplete: "off", spellcheck: "false" }), "it fails if it still waits for a slot after this time; if empty, it waits"),
      line("Attempt timeout", "/attempt_timeout", "new-timeout", h("input", { name: "attempt_timeout", value: draft.timeout, oninput: keep("timeout"), placeholder: "30m", autocomplete: "off", spellcheck: "false" }), "time after which its service stops an attempt, such as 30s or 1h 30m; if empty, no limit")),
    h("p", { class: "row" }, h("button", { type: "submit", class: "button primary", disabled: draft.sending }, draft.sending ? "Creating…" : "Create"), h("a", { class: "button", href: "#/observers" }, "Cancel")))];
}

export const create = { name: "create", title: "New observer", load, draw };
