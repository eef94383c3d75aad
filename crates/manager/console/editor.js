// Edits a definition as a form, as YAML or as JSON; the three share one draft, which the manager checks while the user types.
import { Refused, call } from "./api.js";
import { changed, diffView, linesOf } from "./diff.js";
import { h } from "./dom.js";
import { ordered } from "./definition.js";
import { collect, control, fields, fits, typedOf } from "./schema.js";
import { counted } from "./show.js";
import { fromYaml, toYaml } from "./yaml.js";

const CHECK_MS = 300;
export const MODES = { form: "Form", yaml: "YAML", json: "JSON" };
const TEXTS = [["pool", "Pool", "which services may run it"], ["grace", "Grace period", "time between telling its code to stop and aborting it, such as 10s"], ["attempt_timeout", "Attempt timeout", "time after which its service stops an attempt, such as 30m"]];

/** `before` is null for a new observer. */
export const draftOf = (before, definition, more = {}) => ({ before, definition: ordered(definition), mode: "form", text: null, held: null, rest: null, wrong: [], unreadable: null, saving: false, timer: null, ...more });

const written = (draft) => (draft.mode === "json" ? `${JSON.stringify(draft.definition, null, 2)}\n` : toYaml(draft.definition));

function check(draft, context) {
  clearTimeout(draft.timer);
  draft.timer = setTimeout(async () => {
    const { kind, spec } = draft.definition, at = draft.definition;
    if (!kind) return;
    let wrong = [];
    try {
      const answer = await call("POST", `/v1/kinds/${encodeURIComponent(kind)}/validate`, { spec: spec ?? {} });
      wrong = answer.errors;
    } catch (error) {
      if (!(error instanceof Refused)) return;
      wrong = error.errors.length ? error.errors : [{ pointer: error.status === 404 ? "/kind" : "", detail: error.message }];
    }
    if (at !== draft.definition) return;
    draft.wrong = wrong;
    context.redraw();
  }, CHECK_MS);
}

function change(draft, definition, context) {
  draft.definition = definition;
  draft.unreadable = null;
  check(draft, context);
  context.redraw();
}

function typed(draft, text, context) {
  draft.text = text;
  try {
    const value = draft.mode === "json" ? JSON.parse(text) : fromYaml(text);
    if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("a definition is a map, such as name: hello");
    change(draft, value, context);
  } catch (error) {
    draft.unreadable = error.message;
    context.redraw();
  }
}

function choose(draft, mode, context) {
  if (draft.unreadable) return;
  Object.assign(draft, { mode, held: null, rest: null, text: null });
  if (mode !== "form") draft.text = written(draft);
  context.redraw();
}

const textArea = (draft, context) => h("div", { class: "field", key: draft.mode },
  h("label", { for: "definition" }, `Definition as ${MODES[draft.mode]}`),
  h("textarea", { id: "definition", rows: "22", spellcheck: "false", value: draft.text ?? written(draft), "aria-invalid": draft.unreadable ? "true" : undefined, "aria-describedby": "definition-hint", oninput: (event) => typed(draft, event.target.value, context) }),
  h("p", { id: "definition-hint", class: draft.unreadable ? "hint bad" : "hint", role: "status" }, draft.unreadable ?? "The fields of POST /v1/observers."));

const labelsText = (labels = {}) => Object.entries(labels).map(([name, value]) => `${name}=${value}`).join(", ");
function labelsOf(text) {
  return Object.fromEntries(text.split(/[,\n]/).map((it) => it.trim()).filter(Boolean).map((it) => (it.includes("=") ? [it.slice(0, it.indexOf("=")).trim(), it.slice(it.indexOf("=") + 1).trim()] : [it, ""])));
}

/** Reads the draft from the fields; values that no field can represent stay unchanged. */
function read(draft, members, context) {
  const spec = { ...draft.definition.spec };
  try {
    if (members) { for (const it of members) delete spec[it.name]; Object.assign(spec, collect(members, draft.held)); }
  } catch (error) {
    if (error instanceof Error) throw error;
    draft.unreadable = `${error.name}: ${error.message}`;
    return context.redraw();
  }
  const next = { ...draft.definition, spec };
  for (const [name] of TEXTS) { const value = draft.rest[name]?.trim(); if (value) next[name] = value; else delete next[name]; }
  // A value with a comma would be read as two labels: those that nobody has typed stay as they are.
  if (draft.rest.labels !== labelsText(draft.definition.labels)) {
    const labels = labelsOf(draft.rest.labels);
    if (Object.keys(labels).length) next.labels = labels; else delete next.labels;
  }
  next.overlap = draft.rest.overlap;
  change(draft, ordered(next), context);
}

function form(draft, kinds, context) {
  const { definition, wrong } = draft;
  const described = fields(kinds.find((it) => it.name === definition.kind)?.schema);
  const members = described?.filter((it) => fits(it, definition.spec?.[it.name])) ?? null;
  const others = described?.filter((it) => !members.includes(it)).map((it) => it.name) ?? [];
  draft.held ??= Object.fromEntries((members ?? []).filter((it) => definition.spec?.[it.name] !== undefined).map((it) => [it.name, typedOf(it, definition.spec[it.name])]));
  draft.rest ??= { labels: labelsText(definition.labels), overlap: definition.overlap ?? "allow", ...Object.fromEntries(TEXTS.map(([name]) => [name, definition[name] ?? ""])) };
  const about = (pointer) => wrong.find((it) => it.pointer === pointer || it.pointer.startsWith(`${pointer}/`))?.detail;
  const line = (name, title, hint) => h("div", { class: "field", key: name }, h("label", { for: `edit-${name}` }, title),
    h("input", { id: `edit-${name}`, value: draft.rest[name], autocomplete: "off", spellcheck: "false", "aria-invalid": about(`/${name}`) ? "true" : undefined, "aria-describedby": `edit-${name}-hint`, oninput: (event) => { draft.rest[name] = event.target.value; } }),
    h("p", { id: `edit-${name}-hint`, class: about(`/${name}`) ? "hint bad" : "hint" }, about(`/${name}`) ?? hint));
  return h("div", { class: "sheet", key: "form", oninput: () => read(draft, members, context), onchange: () => read(draft, members, context) },
    h("fieldset", {}, h("legend", {}, `Spec of ${definition.kind ?? "no kind"}`),
      members === null ? h("p", { class: "hint" }, "No living service has sent a schema for this kind: edit the spec as YAML.") : members.length ? members.map((it) => control(it, draft.held, about(`/spec/${it.name}`))) : h("p", { class: "hint" }, "This kind takes no arguments.")),
    h("fieldset", {}, h("legend", {}, "Policies"), line("labels", "Labels", "key=value, comma-separated"), TEXTS.map(([name, text, hint]) => line(name, text, hint)),
      h("div", { class: "field" }, h("label", { for: "edit-overlap" }, "Overlap"), h("select", { id: "edit-overlap", onchange: (event) => { draft.rest.overlap = event.target.value; } },
        [["allow", "allowed"], ["forbid", "forbidden"]].map(([value, text]) => h("option", { value, selected: draft.rest.overlap === value }, text))), h("p", { class: "hint" }, "forbidden: a new run starts only after the previous run has certainly ended"))),
    draft.unreadable ? h("p", { class: "hint bad", role: "status" }, draft.unreadable) : null,
    h("p", { class: "hint" }, `Retry policy, schedule, windows, limits and weight${others.length ? `, and ${others.join(", ")} of the spec` : ""}: as YAML.`));
}

const complaints = (draft) => (draft.wrong.length === 0 ? null : h("div", { class: "notice", "data-tone": "bad", key: "wrong", role: "status" }, h("strong", {}, "The definition is not valid: "),
  h("ul", { class: "plain" }, draft.wrong.map((it) => h("li", { key: it.pointer }, h("code", {}, it.pointer), ` ${it.detail}`)))));

/** `save()` sends the draft; `word` is the label of its button. `notice` appears above the editor. The page of a new observer has its own switch of modes. */
export function editor(draft, kinds, { title, word, save, cancel, notice }, context) {
  const all = linesOf(draft.before, draft.definition), count = changed(all);
  const blocked = draft.saving || draft.unreadable !== null || draft.wrong.length > 0 || (draft.before !== null && count === 0);
  return h("div", { class: "panels lead", key: "editor" },
    h("section", { class: "panel" }, h("header", {}, h("h2", {}, title),
      draft.before === null ? null : h("span", { class: "seg end", role: "group", "aria-label": "Edit as" }, Object.entries(MODES).map(([mode, text]) => h("button", { type: "button", class: "quiet", key: mode, "aria-pressed": String(draft.mode === mode), disabled: draft.unreadable !== null && draft.mode !== mode, onclick: () => choose(draft, mode, context) }, text)))),
      draft.mode === "form" ? form(draft, kinds, context) : textArea(draft, context)),
    h("section", { class: "panel review" }, h("header", {}, h("h2", {}, draft.before ? "Changes" : "New definition"), h("span", { class: "fine end" }, draft.before ? (count === 0 ? "none yet" : counted(count, "line")) : "")),
      notice ?? null, complaints(draft), diffView(all, "Changes"),
      h("p", { class: "row" }, h("button", { type: "button", class: "button primary", id: "save", disabled: blocked, onclick: save }, draft.saving ? "Saving…" : word), h("button", { type: "button", class: "button", onclick: cancel }, "Cancel"))));
}
