// The fields of a definition, the same for a new observer and for the edit of one.
import { CLEAN, DEFAULTS, ZONE } from "./create-form.js";
import { h } from "./dom.js";
import { control } from "./schema.js";
import { ownNamespace } from "./session.js";
import { coded, complaint } from "./show.js";

const RETRIES = [["", "default: after 1 s, doubling to 1 min, without limit"], ["exponential", "doubling delays"], ["fixed", "the same delay each time"], ["intervals", "these delays, then it fails"]];
const DURING = [["skip", "skip that time"], ["queue", "execute again afterwards"], ["restart", "stop and execute again"]];
/** The values of the form for members with other names; the time zone belongs to the schedule or the windows. */
const VALUES = { start_at: "start", finish_at: "finish", start_within: "within", attempt_timeout: "timeout", time_zone: "schedule", overlap: "forbid" };
const DEFAULT_RETRY = { retry: "exponential", first: "1s", longest: "1m", reset: "5m", attempts: "" };
const PLAIN = { autocomplete: "off", spellcheck: "false" };

/** Managers say what is wrong about a member: the field is the subject. */
const subjected = (label, wrong) => (/^(?:is|has|must|names|needs|matches) /.test(wrong) ? `${label} ${wrong}` : wrong);

/**
 * Draws fields for the values of a draft (see `CLEAN`), with the complaints in `draft.wrong`. `id`: the beginning of the ids; `changed()` runs after an input, `left(pointer)` when the user leaves a field,
 * `redraw()` after one that changes which fields there are. `hidden`: members of the definition that have no field.
 */
class Fields {
  constructor(draft, { id, changed, left, redraw, hidden }) {
    Object.assign(this, { draft, id, changed, left, redraw, hidden });
  }

  has(member) { return !this.hidden.includes(member); }

  /** Keeps what is typed; its complaint goes. */
  keep(name, pointer, read = (target) => target.value) {
    return ({ target }) => {
      this.draft[name] = read(target);
      const isOver = Object.hasOwn(this.draft.wrong, pointer);
      delete this.draft.wrong[pointer];
      this.changed();
      if (isOver) this.redraw();
    };
  }

  line(label, pointer, name, input, hint) {
    const wrong = this.draft.wrong[pointer], id = `${this.id}-${name}`;
    input.id = id;
    input.onblur = () => this.left(pointer);
    input.setAttribute("aria-describedby", `${id}-hint`);
    if (wrong) input.setAttribute("aria-invalid", "true");
    return h("div", { class: "field", key: name }, h("label", { for: id }, label), input, h("p", { id: `${id}-hint`, class: wrong ? "hint bad" : "hint" }, wrong ? complaint(subjected(label, wrong)) : coded(hint)));
  }

  text(label, pointer, [name, value = name], placeholder, hint, more = {}) {
    return this.line(label, pointer, name, h("input", { name, value: this.draft[value], oninput: this.keep(value, pointer), placeholder, ...PLAIN, ...more }), hint);
  }

  choice(label, pointer, [name, value = name], options, hint, onchange = this.keep(value, pointer)) {
    return this.line(label, pointer, name, h("select", { name, onchange }, options.map(([one, text]) => h("option", { value: one, selected: this.draft[value] === one }, text))), hint);
  }

  check(text, name, hint) {
    return h("label", { class: "check", key: name }, h("input", { type: "checkbox", name, checked: this.draft[name], onchange: this.keep(name, `/${name}`, (target) => target.checked) }), h("span", {}, text, h("span", { class: "hint" }, coded(hint))));
  }

  /** The spec of the kind; `useExample` fills in the example of the kind. */
  spec(kind, members, useExample = null) {
    return h("fieldset", { key: `spec-of-${kind}` }, h("legend", {}, `Spec of ${kind}`, useExample && [" ", h("button", { type: "button", class: "link", id: "use-example", onclick: useExample }, "Use the example")]),
      members.length ? members.map((it) => control(it, this.draft.spec, this.draft.wrong[it.name], () => { const isOver = Object.hasOwn(this.draft.wrong, it.name); delete this.draft.wrong[it.name]; this.changed(); if (isOver) this.redraw(); }, () => this.left(it.name))) : h("p", { class: "hint" }, "This kind takes no arguments."));
  }

  namespace(namespaces) {
    const all = [...new Set([...namespaces, this.draft.namespace])].filter(Boolean), own = ownNamespace() ?? "default";
    if (all.length < 2 && !this.draft.namespace) return null;
    return this.choice("Namespace", "/namespace", ["namespace"], [["", own], ...all.filter((it) => it !== own || it === this.draft.namespace).map((it) => [it, it])], "the part of the deployment that it belongs to; its name is unique there");
  }

  placement(pools) {
    const named = [...new Set([...pools.map((it) => it.name), this.draft.pool])].filter((it) => it && it !== "default");
    const options = [["", "default"], ...named.map((it) => [it, it])];
    return h("fieldset", { key: "placement" }, h("legend", {}, "Placement"),
      this.line("Pool", "/pool", "pool", h("select", { name: "pool", onchange: this.keep("pool", "/pool") }, options.map(([value, text]) => h("option", { value, selected: (this.draft.pool === "default" ? "" : this.draft.pool) === value }, text))), "the group of services that may run it"),
      this.has("labels") ? this.text("Labels", "/labels", ["labels"], "team=a, region=eu", "key=value, comma-separated") : null,
      this.check("Queue when full", "queue", "it waits for a slot when the pool is full; otherwise, the manager refuses it (`on_full`)"));
  }

  /** Its place among others. */
  policies() {
    return this.folded("policies", ["Policies", "priority, weight, limits, overlap"], ["priority", "weight", "limits", "overlap"],
      this.text("Priority", "/priority", ["priority"], "0", "-100 to 100; free slots go to the highest priority first", { type: "number", min: -100, max: 100, step: 1 }),
      this.text("Weight", "/weight", ["weight"], "1", "the number of slots that it takes", { type: "number", min: 1, max: 1000, step: 1 }),
      this.has("limits") ? this.text("Limits", "/limits", ["limits"], "account-42", "keys, separated by commas; it starts when each of these limits has a free place") : null,
      this.check("Never overlap", "forbid", "if its service is lost, the observer starts elsewhere only after its previous run has certainly ended (`overlap`)"));
  }

  /** What happens after an error of its code, and how it stops. */
  failing() {
    const { draft } = this, choose = (event) => { draft.retry = event.target.value; this.changed(); this.redraw(); };
    const attempts = (counted) => this.text("Attempts", "/retry/attempts", ["attempts"], "no limit", `maximum number of attempts in one run${counted}; empty: no limit`, { type: "number", min: 1, step: 1 });
    const parts = {
      exponential: () => [this.text("First delay", "/retry/first", ["first"], "1s", "before the second attempt; each further delay is twice as long"), this.text("Longest delay", "/retry/max", ["longest"], "60s", "the delays grow to this one and not further"),
        this.text("Reset after", "/retry/reset_after", ["reset"], "5m", "after it has run for this long without an error, the delays begin with the first one again"), attempts(", counted from 1 again after “Reset after”")],
      fixed: () => [this.text("Delay", "/retry/every", ["every"], "5s", "between an error and the next attempt"), attempts("")],
      intervals: () => [this.text("Delays", "/retry/delays", ["delays"], "1s, 10s, 1m", "separated by commas; if empty, it fails at its first error")],
    };
    return this.folded("failing", ["Errors and stops", "retry policy, grace period"], ["retry", "grace"],
      this.has("retry") ? this.choice("Retry policy", "/retry", ["retry"], RETRIES, "when its code starts again after an error", choose) : null,
      this.has("retry") && Object.hasOwn(parts, draft.retry) ? parts[draft.retry]() : null,
      this.text("Grace period", "/grace", ["grace"], "10s", "time between telling its code to stop and aborting it, at most 1h"));
  }

  /** Fields that most observers leave at their defaults: shown if one of them has a value or a complaint, or on request. */
  folded(key, [title, about], members, ...fields) {
    const clean = CLEAN(), hasDefaultRetry = Object.entries(DEFAULT_RETRY).every(([name, value]) => this.draft[name] === value);
    const isDefault = (it, value) => value === clean[VALUES[it] ?? it] || value === String(DEFAULTS[it]) || (it === "retry" && hasDefaultRetry);
    const isSet = members.some((it) => !isDefault(it, this.draft[VALUES[it] ?? it]));
    const isWrong = Object.keys(this.draft.wrong).some((pointer) => members.includes(pointer.split("/")[1]));
    return h("details", { class: "fold", key, open: isSet || isWrong }, h("summary", {}, title, " ", h("span", { class: "hint" }, about)), h("div", {}, fields));
  }

  times() {
    const zone = `in the time zone of this browser, ${ZONE}`, schedule = this.has("schedule"), windows = this.has("windows"), at = { type: "datetime-local", step: 1 };
    return this.folded("times", ["Times", "start, finish, schedule, windows, time limits"], ["start_at", "finish_at", "schedule", "windows", "start_within", "attempt_timeout", "time_zone"],
      this.has("start_at") ? this.text("Start", "/start_at", ["start"], undefined, `${zone}; if empty, at once`, at) : null,
      this.has("finish_at") ? this.text("Finish", "/finish_at", ["finish"], undefined, "it ends at this time; if empty, it has no end", at) : null,
      schedule ? this.text("Schedule", "/schedule", ["schedule"], "0 3 * * *", "cron expression of the times at which it executes; not together with windows") : null,
      schedule ? this.choice("If running", "/if_running", ["running"], DURING, "what happens if a time of the schedule comes while the previous execution still runs") : null,
      windows ? this.text("Windows", "/windows", ["windows"], "mon-fri 09:30-16:00; sat 10:00-12:00", "it runs only within these hours; if empty, always") : null,
      schedule || windows ? this.text("Time zone", "/time_zone", ["zone"], "UTC", "of the schedule or the windows, such as Europe/Berlin; if empty, UTC") : null,
      this.text("Start within", "/start_within", ["within"], "10m", "it fails if it still waits for a slot after this time; if empty, it waits as long as it must"),
      this.text("Attempt timeout", "/attempt_timeout", ["timeout"], "30m", "time after which its service stops an attempt, such as 30s or 1h 30m; if empty, no limit"));
  }
}

/** The members of the definition that the console knows; others are misspelt. */
export const MEMBERS = ["name", "namespace", "kind", "spec", "pool", "labels", "retry", "overlap", "grace", "on_full", "priority", "weight", "limits", "start_at", "finish_at", "windows", "schedule", "start_within", "attempt_timeout", "desired"];

/** The places that have a field, beside those of the spec. */
const POINTERS = ["/name", "/namespace", "/kind", "/pool", "/grace", "/retry", "/retry/first", "/retry/max", "/retry/reset_after", "/retry/every", "/retry/delays", "/retry/attempts", "/labels", "/priority", "/weight", "/limits", "/start_at", "/finish_at", "/start_within", "/attempt_timeout", "/schedule", "/windows", "/time_zone"];

/** The field that writes the member at this place; null if it has none. */
export function fieldAt(pointer, members) {
  const name = pointer.startsWith("/spec/") ? pointer.slice("/spec/".length).split("/")[0] : pointer.endsWith("/time_zone") ? "/time_zone"
    : ["/labels", "/limits", "/schedule", "/windows", "/retry/delays"].find((it) => pointer.startsWith(it)) ?? pointer;
  return POINTERS.includes(name) || members.some((it) => it.name === name) ? name : null;
}

export const fieldsOf = (draft, { id, changed = () => {}, left = () => {}, redraw, hidden = [] }) => new Fields(draft, { id, changed, left, redraw, hidden });
