// A form for a new observer, made from what its kind says of its spec.
import { Refused, call, get } from "./api.js";
import { confirm, toast } from "./ask.js";
import { complaints } from "./create-check.js";
import { CLEAN, ZONE, body, formOf, membersOf } from "./create-form.js";
import { drawText, dropText, loadText, startText, textDraft } from "./create-text.js";
import { h } from "./dom.js";
import { MODES } from "./editor.js";
import { control } from "./schema.js";
import { ownNamespace, readable } from "./session.js";
import { empty, observerPath } from "./show.js";

/** Members of the definition that a field of the form writes, beside those of the spec. */
const POINTERS = ["/name", "/namespace", "/kind", "/pool", "/grace", "/retry", "/retry/first", "/retry/max", "/retry/reset_after", "/retry/every", "/retry/delays", "/retry/attempts", "/labels", "/priority", "/weight", "/limits", "/start_at", "/finish_at", "/start_within", "/attempt_timeout", "/schedule", "/windows", "/time_zone"];
let draft = CLEAN();
/** The kind in the address. */
let asked = null;

/** The address names the mode; the form is the usual one. */
const modeOf = (params) => (["yaml", "json"].includes(params.get("as")) ? params.get("as") : "form");

async function load({ params }) {
  if (modeOf(params) !== "form") await loadText(params, modeOf(params));
  if (params.get("kind") && params.get("kind") !== asked) { asked = params.get("kind"); Object.assign(draft, { kind: asked, spec: {}, wrong: {} }); }
  const none = { items: [] };
  const [kinds, pools, namespaces] = await Promise.all([get("/v1/kinds"), readable("pools:read", () => get("/v1/pools"), none), readable("namespaces:read", () => get("/v1/namespaces"), none)]);
  return { kinds: kinds.items, pools: pools.items, namespaces: namespaces.items.map((it) => it.name) };
}

/** The field of the form that writes the member at this place. */
function fieldOf(pointer) {
  if (pointer.startsWith("/spec/")) return pointer.slice(6).split("/")[0];
  if (pointer.endsWith("/time_zone")) return "/time_zone";
  return ["/labels", "/limits", "/schedule", "/windows", "/retry/delays"].find((it) => pointer.startsWith(it)) ?? pointer;
}

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

/** The form is wrong; `others`: complaints that belong to no field. */
class Invalid extends Error {
  constructor(others) {
    super("the form is not valid");
    this.others = others;
  }
}

function invalid(context) {
  context.redraw();
  document.querySelector("[aria-invalid=true]")?.focus();
}

/** From the form to a text: the definition that the form makes. */
function toText(mode, kind, params, context) {
  const { members, isWhole } = membersOf(kind);
  draft.wrong = {};
  const definition = body(draft, members, isWhole, draft.wrong);
  if (Object.keys(draft.wrong).length) return invalid(context);
  startText(definition, mode, params);
  context.set({ as: mode });
}

/** From a text to the form: asks before the form drops what it cannot show. */
async function toForm(kinds, context) {
  const { values, lost } = formOf(textDraft().definition, kinds);
  if (lost.length && !await confirm({ title: "Switch to the form?", lines: [`The form cannot show these fields of the definition completely: ${lost.join(", ")}. It drops what it cannot show.`], action: "Switch to the form" })) return;
  draft = values;
  context.set({ as: "" });
}

/** The switch beside the title of the page. */
function asSwitch(now, kinds, params, context) {
  const choose = (mode) => {
    if (mode === now) return undefined;
    if (mode === "form") return toForm(kinds, context);
    return now === "form" ? toText(mode, kinds.find((it) => it.name === draft.kind), params, context) : context.set({ as: mode });
  };
  // A text that cannot be read has no other form.
  const isStuck = now !== "form" && textDraft().unreadable !== null;
  return h("span", { class: "seg end", role: "group", "aria-label": "Create from" }, Object.entries(MODES).map(([mode, text]) =>
    h("button", { type: "button", class: "quiet", key: mode, "aria-pressed": String(mode === now), disabled: isStuck && mode !== now, onclick: () => choose(mode) }, text)));
}

/** What the schema of the kind says about the spec; nothing if the session may not ask. */
async function judged({ kind, spec }) {
  try { return await call("POST", `/v1/kinds/${encodeURIComponent(kind)}/validate`, { spec }); } catch (error) {
    if (error instanceof Refused) return { errors: [] };
    throw error;
  }
}

/** Creates the observer, unless a field is wrong: then each wrong field says so at once. */
async function send(members, isWhole, context) {
  const unreadable = {};
  const definition = body(draft, members, isWhole, unreadable);
  draft.sending = true;
  try {
    draft.wrong = {};
    const { errors } = await judged(definition);
    const lost = complain({ errors, message: "" }, members).filter(Boolean);
    draft.wrong = { ...draft.wrong, ...complaints(draft), ...unreadable };
    if (Object.keys(draft.wrong).length || lost.length) throw new Invalid(lost);
    const made = await call("POST", "/v1/observers", definition);
    dropText();
    draft = { ...CLEAN(), kind: draft.kind };
    location.hash = `#/${observerPath(made)}`;
    return;
  } catch (error) {
    if (error instanceof Invalid) error.others.forEach((it) => toast(it));
    else if (error instanceof Refused) {
      if (error.code === "name-exists" || error.code === "name-ending") draft.wrong["/name"] = error.message;
      else complain(error, members).forEach((it) => toast(it));
    } else toast(error.message);
  }
  draft.sending = false;
  invalid(context);
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

const keep = (name) => (event) => { draft[name] = event.target.value; };
const typed = (label, pointer, id, name, placeholder, hint, more = {}) => line(label, pointer, id, h("input", { name, value: draft[name], oninput: keep(name), placeholder, autocomplete: "off", spellcheck: "false", ...more }), hint);

/** The namespace, if the deployment has more than one. */
function namespaceLine(namespaces) {
  const all = [...new Set([...namespaces, draft.namespace])].filter(Boolean);
  if (all.length < 2 && !draft.namespace) return null;
  const own = ownNamespace() ?? "default";
  return line("Namespace", "/namespace", "new-namespace", h("select", { name: "namespace", onchange: keep("namespace") }, h("option", { value: "", selected: !draft.namespace }, own),
    all.filter((it) => it !== own || it === draft.namespace).map((it) => h("option", { value: it, selected: it === draft.namespace }, it))), "the part of the deployment that it belongs to; its name is unique there");
}

const RETRIES = [["", "default: 1s, doubling to 1m, without limit"], ["exponential", "doubling delays"], ["fixed", "the same delay each time"], ["intervals", "these delays, then it fails"]];

/** What happens after an error of its code, and how it stops. */
function failing(context) {
  const choose = (event) => { draft.retry = event.target.value; context.redraw(); };
  const attempts = (counted) => typed("Attempts", "/retry/attempts", "new-attempts", "attempts", "no limit", `maximum number of starts in one run${counted}; empty: no limit`, { type: "number", min: 1, step: 1 });
  const parts = {
    exponential: () => [typed("First delay", "/retry/first", "new-first", "first", "1s", "before the second attempt; each further delay is twice as long"), typed("Longest delay", "/retry/max", "new-longest", "longest", "60s", "the delays grow up to this one"),
      typed("Reset after", "/retry/reset_after", "new-reset", "reset", "5m", "after running for this long, the delays are short again"), attempts(", counted again after “Reset after”")],
    fixed: () => [typed("Delay", "/retry/every", "new-every", "every", "5s", "between an error and the next attempt"), attempts("")],
    intervals: () => [typed("Delays", "/retry/delays", "new-delays", "delays", "1s, 10s, 1m", "separated by commas; if empty, it fails at its first error")],
  };
  return h("fieldset", { key: `failing-${draft.retry}` }, h("legend", {}, "Errors and stops"),
    line("Retry policy", "/retry", "new-retry", h("select", { name: "retry", onchange: choose }, RETRIES.map(([value, text]) => h("option", { value, selected: draft.retry === value }, text))), "when its code starts again after an error"),
    Object.hasOwn(parts, draft.retry) ? parts[draft.retry]() : null,
    typed("Grace period", "/grace", "new-grace", "grace", "10s", "time between telling its code to stop and aborting it, at most 1h"));
}

function draw({ kinds, pools, namespaces }, { params }, context) {
  const mode = modeOf(params), title = h("h1", {}, "New observer");
  if (kinds.length === 0) return [h("header", { class: "head" }, title), empty("No services", "Services register the kinds that they offer. Start a service, and its kinds appear here.", h("a", { class: "button", href: "#/services" }, "Services"))];
  const head = h("header", { class: "head" }, title, asSwitch(mode, kinds, params, context));
  if (mode !== "form") return [head, drawText({ kinds }, () => { draft = CLEAN(); }, context)];
  if (!kinds.some((it) => it.name === draft.kind)) draft.kind = (kinds.find((it) => it.name === "ticker") ?? kinds[0]).name;
  const kind = kinds.find((it) => it.name === draft.kind);
  const { members, isWhole } = membersOf(kind);
  const named = [...new Set([...pools.map((it) => it.name), draft.pool])].filter((it) => it && it !== "default");
  const choose = (event) => { draft.kind = event.target.value; draft.spec = {}; draft.wrong = {}; context.redraw(); };
  return [head, h("form", { class: "sheet", novalidate: true, onsubmit: (event) => { event.preventDefault(); send(members, isWhole, context); context.redraw(); } },
    h("fieldset", {}, h("legend", {}, "What"), namespaceLine(namespaces),
      line("Name", "/name", "new-name", h("input", { name: "name", value: draft.name, oninput: keep("name"), autocomplete: "off", spellcheck: "false" }), "letters, digits, - _ . ; if empty, the manager generates a name"),
      line("Kind", "/kind", "new-kind", h("select", { name: "kind", onchange: choose }, kinds.map((it) => h("option", { value: it.name, selected: it.name === draft.kind }, it.name))), `${kind.services === 1 ? "1 service offers" : `${kind.services} services offer`} it`)),
    h("fieldset", { key: `spec-of-${draft.kind}` }, h("legend", {}, `Spec of ${draft.kind}`), members.length ? members.map((it) => control(it, draft.spec, draft.wrong[it.name])) : h("p", { class: "hint" }, "This kind takes no arguments.")),
    h("fieldset", {}, h("legend", {}, "Placement and policies"),
      line("Pool", "/pool", "new-pool", h("select", { name: "pool", onchange: keep("pool") }, h("option", { value: "", selected: !draft.pool }, "default"), named.map((it) => h("option", { value: it, selected: draft.pool === it }, it))), "which services may run it"),
      line("Labels", "/labels", "new-labels", h("input", { name: "labels", value: draft.labels, oninput: keep("labels"), placeholder: "team=a, region=eu", autocomplete: "off", spellcheck: "false" }), "key=value, comma-separated"),
      check("Queue when full", "queue", "otherwise, the manager refuses the observer when the pool is full"),
      line("Priority", "/priority", "new-priority", h("input", { name: "priority", type: "number", min: -100, max: 100, step: 1, value: draft.priority, oninput: keep("priority"), placeholder: "0" }), "-100 to 100; free slots go to the highest priority first"),
      line("Weight", "/weight", "new-weight", h("input", { name: "weight", type: "number", min: 1, max: 1000, step: 1, value: draft.weight, oninput: keep("weight"), placeholder: "1" }), "the number of slots that it takes"),
      line("Limits", "/limits", "new-limits", h("input", { name: "limits", value: draft.limits, oninput: keep("limits"), placeholder: "account-42" }), "keys, separated by commas; it runs while each of these limits has a free place"),
      check("Never overlap", "forbid", "a new run starts only after the previous run has certainly ended")),
    failing(context),
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
