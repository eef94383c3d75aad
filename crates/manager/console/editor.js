// Edits a definition as a form, as YAML or as JSON; the three share one draft, which the manager checks while the user types.
import { toast } from "./ask.js";
import { complaints } from "./create-check.js";
import { body, formOf, membersOf, mergedInto } from "./create-form.js";
import { MEMBERS, fieldAt, fieldsOf } from "./definition-fields.js";
import { changed, diffView, linesOf } from "./diff.js";
import { h } from "./dom.js";
import { ordered } from "./definition.js";
import { dryRuns, readablePart, without } from "./dry-run.js";
import { nearest } from "./match.js";
import { follow, gutter, unhide } from "./numbered.js";
import { lineOfMistake, linesOfMembers } from "./positions.js";
import { fits } from "./schema.js";
import { complaint, counted, number } from "./show.js";
import { fromYaml, toYaml } from "./yaml.js";

const CHECK_MS = 500;
export const MODES = { form: "Form", yaml: "YAML", json: "JSON" };
/** `before` is null for a new observer. */
export const draftOf = (before, definition, more = {}) => ({ before, definition: ordered(definition), mode: "form", text: null, values: null, hidden: [], shown: new Set(), own: {}, wrong: [], made: null, unreadable: null, saving: false, kinds: [], lines: null, ...more });

const written = (draft) => (draft.mode === "json" ? `${JSON.stringify(draft.definition, null, 2)}\n` : toYaml(draft.definition));

/** What the user may have meant by the name of an unknown member. */
function meant(name, { kind }, kinds) {
  const near = nearest(name, MEMBERS), { members, isWhole } = membersOf(kinds.find((it) => it.name === kind));
  const inSpec = near || isWhole ? null : nearest(name, members.map((it) => it.name));
  return near ? `; did you mean \`${near}\`?` : inSpec ? `; did you mean \`${inSpec}\` of the spec?` : `; known: ${MEMBERS.join(", ")}`;
}

/** Why a kind cannot be used that no service offers. */
function notOffered(kind, kinds) {
  const names = kinds.map((it) => it.name), near = nearest(kind, names);
  return `no service offers kind \`${kind}\`${near ? `; did you mean \`${near}\`?` : names.length ? `; kinds: ${names.join(", ")}` : ""}`;
}

/** Members that no definition has. */
const unknown = (definition, kinds) => Object.keys(definition).filter((name) => !MEMBERS.includes(name)).map((name) => ({ pointer: `/${name}`, detail: `is an unknown field${meant(name, definition, kinds)}` }));

/** What is wrong with members that the manager judges only when the observer is created. It may know more time zones than the browser. */
const plainly = (definition) => Object.entries(complaints(formOf(definition, []).values)).filter(([pointer]) => pointer !== "/time_zone").map(([pointer, detail]) => ({ pointer, detail }));

/** Whether the manager creates this observer although its pool has no slot: it is to wait for one, or needs none yet. */
const canWait = (it) => it.on_full === "queue" || it.desired === "paused" || Boolean(it.start_at || it.schedule || it.windows);

/** What happens if the pool of a new observer has no slot for it. */
function fullNotice(it, { name, free: unused, pending }) {
  const weight = it.weight ?? 1, free = Math.max(unused - pending, 0);
  if (!Number.isInteger(weight) || free >= weight) return null;
  const lacks = free === 0 ? `Pool ${name} has no free slot. ` : `Pool ${name} has ${counted(free, "free slot")}, and the observer needs ${number(weight)}. `;
  return h("p", { class: "notice", key: "pool", id: "pool-notice" }, h("strong", {}, lacks), it.on_full === "queue" ? "The observer waits until one is free." : "The manager refuses to create the observer; with “Queue when full” (on_full: queue), it waits until one is free.");
}

/** What happens if the pool has no service, or no slot for a new observer; `isNew`: whether the observer is yet to be created. */
export function poolNotice({ pool = "default", ...rest }, pools, isNew) {
  if (typeof pool !== "string" || pool === "" || pools.length === 0) return null;
  const known = pools.find((it) => it.name === pool && it.services > 0);
  if (known) return isNew && (rest.on_full === "queue" || !canWait(rest)) ? fullNotice(rest, known) : null;
  const others = pools.filter((it) => it.services > 0).map((it) => it.name);
  return h("p", { class: "notice", key: "pool", id: "pool-notice" }, h("strong", {}, `No service of pool ${pool} runs. `), `${isNew && !canWait(rest) ? "The manager refuses to create the observer; with “Queue when full” (on_full: queue), it waits until one does." : "The observer waits until one does."}${others.length ? ` Pools with services: ${others.join(", ")}.` : ""}`);
}

/** What the console itself refuses: with a better hint than the manager, or at once. */
function ownWrong(definition, kinds) {
  const { kind } = definition;
  const unoffered = typeof kind === "string" && kinds.length && !kinds.some((it) => it.name === kind) ? [{ pointer: "/kind", detail: notOffered(kind, kinds) }] : [];
  return [...(kind ? [] : [{ pointer: "/kind", detail: "is missing: name the kind of the observer" }]), ...unoffered, ...unknown(definition, kinds), ...plainly(definition)];
}

const trial = dryRuns(CHECK_MS);

/** Checks a draft that was kept, whose complaints were not. */
export function checkAgain(draft, kinds, context) {
  draft.kinds = kinds;
  if (draft.text === null) return check(draft, context);
  return typed(draft, draft.text, context);
}

/** The request that creates or replaces the observer. */
const request = ({ before, id }) => (before === null ? ["POST", "/v1/observers"] : ["PUT", `/v1/observers/${encodeURIComponent(id)}`]);

/** Asks the manager about what the console does not refuse. If the manager does not answer, the complaints of the console stay. */
function check(draft, context) {
  const at = draft.definition, own = ownWrong(at, draft.kinds), bad = new Set(own.map((it) => it.pointer.split("/")[1]));
  const [method, path] = request(draft);
  trial.ask(method, path, without(at, bad), ({ errors, made }) => {
    // The text may have become unreadable since.
    if (at !== draft.definition || draft.saving || draft.unreadable !== null) return;
    draft.made = made;
    draft.wrong = [...own, ...(errors ?? []).filter((it) => !bad.has(it.pointer.split("/")[1]))];
    context.redraw();
  });
}

function change(draft, definition, context) {
  draft.definition = definition;
  Object.assign(draft, { unreadable: null, made: null });
  check(draft, context);
  context.redraw();
}

/** The value of a text in JSON; the complaint names the line, as that about YAML does. */
function fromJson(text) {
  let value;
  try { value = JSON.parse(text); } catch (error) {
    const line = /line (\d+) column \d+/.exec(error.message)?.[1], said = error.message.replace(/ (?:in JSON )?at (?:position|line) .*$/, "");
    throw new Error(`${line ? `line ${line}: ` : ""}this is not JSON: ${said.slice(0, 1).toLowerCase()}${said.slice(1)}`);
  }
  // The browser takes the last of two members with one name.
  try { fromYaml(text); } catch (error) { if (error.message.endsWith(" occurs twice")) throw new Error(error.message.replace(/^line \d+: /, "")); }
  return value;
}

function typed(draft, text, context) {
  Object.assign(draft, { text, isTyped: true });
  try {
    const value = draft.mode === "json" ? fromJson(text) : fromYaml(text);
    if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("a definition is a map, such as name: hello");
    change(draft, value, context);
  } catch (error) {
    // The manager has judged an earlier text.
    Object.assign(draft, { unreadable: error.message, wrong: [], made: null });
    context.redraw();
  }
}

function choose(draft, mode, context) {
  if (draft.unreadable) return draft.mode === mode ? undefined : toast(`Correct ${draft.mode === "form" ? "the fields" : "the text"} before you switch to ${MODES[mode]}${draft.mode === "form" ? "." : `: ${draft.unreadable}`}`);
  Object.assign(draft, { mode, values: null, text: null });
  if (mode !== "form") draft.text = written(draft);
  context.redraw();
}

/** The lines of the text with complaints. */
function wrongLines(draft, text) {
  const unread = /^line (\d+): /.exec(draft.unreadable ?? "");
  if (draft.unreadable !== null) return unread ? [{ line: Number(unread[1]), said: draft.unreadable }] : [];
  if (draft.lines?.text !== text || draft.lines.mode !== draft.mode) draft.lines = { text, mode: draft.mode, of: linesOfMembers(draft.mode, text) };
  return draft.wrong.map((it) => ({ line: lineOfMistake(draft.lines.of, it), said: `${it.pointer} ${it.detail}`.replaceAll("`", "") }));
}

/** Selects a line of the text. */
function showLine(line) {
  const area = document.getElementById("definition"), lines = area.value.split("\n"), from = lines.slice(0, line - 1).reduce((sum, it) => sum + it.length + 1, 0);
  area.focus();
  area.setSelectionRange(from, from + lines[line - 1].length);
  area.scrollTop = Math.max(line - 4, 0) * (area.scrollHeight / lines.length);
}

function textArea(draft, context) {
  const text = draft.text ?? written(draft);
  return h("div", { class: "field", key: draft.mode },
    h("label", { for: "definition" }, `Definition as ${MODES[draft.mode]}`),
    h("div", { class: "numbered" }, gutter(text, wrongLines(draft, text), document.getElementById("definition")?.scrollTop),
      h("textarea", { id: "definition", rows: "22", wrap: "off", spellcheck: "false", value: text, "aria-invalid": draft.unreadable || draft.wrong.length ? "true" : undefined, "aria-describedby": "definition-hint", oninput: (event) => { unhide(event); typed(draft, event.target.value, context); }, onscroll: follow })),
    h("p", { id: "definition-hint", class: draft.unreadable ? "hint bad" : "hint", role: "status" }, draft.unreadable ?? "The same fields as in the API and in the files of everwatch observer apply."));
}

/** Asks the manager about the fields that can be read, so that the user sees all mistakes at once. */
function judge(draft, definition, known, context) {
  const { own } = draft, [method, path] = request(draft);
  trial.ask(method, path, readablePart(definition, own, known), ({ errors }) => {
    if (draft.own !== own || draft.saving) return;
    const isOther = ({ pointer }) => { const name = fieldAt(pointer, known.members); return name !== null && !Object.hasOwn(own, name); };
    draft.wrong = (errors ?? []).filter(isOther);
    context.redraw();
  });
}

/** Reads the draft from the fields; what no field shows stays unchanged. */
function read(draft, kind, context) {
  const { values, hidden } = draft, { members, isWhole } = membersOf(kind), unread = {};
  const made = body(values, shownOf(draft, members), isWhole, unread);
  draft.own = { ...complaints(values), ...unread };
  const next = mergedInto(draft.definition, made, { hidden, members: isWhole ? [] : shownOf(draft, members) });
  if (Object.keys(draft.own).length === 0) return change(draft, next, context);
  // The manager is asked only about fields that can be read. What it said about a field that has changed since does not hold any more.
  const isSame = ({ pointer }) => { const member = pointer.split("/")[1]; return JSON.stringify(next[member]) === JSON.stringify(draft.definition[member]); };
  Object.assign(draft, { unreadable: "see the fields", wrong: draft.wrong.filter(isSame) });
  judge(draft, next, { members, isWhole }, context);
  context.redraw();
}

/** The fields of the spec that can show their values. */
const shownOf = (draft, members) => members.filter((it) => draft.shown.has(it.name));

/** Fills the values of the form from the definition. */
function fill(draft, kind) {
  const { values, lost } = formOf(draft.definition, kind ? [kind] : []), { members } = membersOf(kind);
  const fixed = ["name", "namespace", "kind", "spec"];
  Object.assign(draft, { values, own: {}, hidden: lost.filter((it) => !fixed.includes(it)), shown: new Set(members.filter((it) => kind === undefined || fits(it, draft.definition.spec?.[it.name])).map((it) => it.name)) });
}

function form(draft, kinds, pools, context) {
  const kind = kinds.find((it) => it.name === draft.definition.kind);
  if (draft.values === null) fill(draft, kind);
  const { members } = membersOf(kind), shown = shownOf(draft, members), others = members.filter((it) => !shown.includes(it)).map((it) => it.name);
  // The complaints of the manager stand at the fields, too.
  const judged = Object.fromEntries(draft.wrong.map((it) => [fieldAt(it.pointer, shown), it.detail]).filter(([name]) => name !== null));
  draft.values.wrong = { ...judged, ...draft.own };
  const fields = fieldsOf(draft.values, { id: "edit", hidden: draft.hidden, changed: () => read(draft, kind, context), redraw: () => context.redraw() });
  const rest = [...draft.hidden, ...others.map((it) => `${it} of the spec`)];
  return h("div", { class: "sheet", key: "form" }, fields.spec(draft.definition.kind ?? "no kind", shown), fields.placement(pools), fields.policies(), fields.failing(), fields.times(),
    rest.length ? h("p", { class: "hint" }, `The form has no field for ${rest.join(", ")}: to change that, switch to YAML.`) : null);
}

/** The complaints without a field; all of them beside a text, each with its line. */
function others(draft) {
  const isForm = draft.mode === "form", wrong = isForm ? draft.wrong.filter((it) => fieldAt(it.pointer, [...draft.shown].map((name) => ({ name }))) === null) : draft.wrong;
  if (wrong.length === 0) return null;
  const at = isForm || draft.unreadable !== null ? [] : wrongLines(draft, draft.text ?? written(draft)), placed = wrong.map((it, index) => ({ ...it, line: at[index]?.line ?? null }));
  return h("div", { class: "notice", "data-tone": "bad", key: "wrong", role: "status" }, h("strong", {}, "The definition is not valid: "),
    h("ul", { class: "plain" }, placed.sort((a, b) => (a.line ?? 0) - (b.line ?? 0)).map((it) => h("li", { key: `${it.pointer} ${it.detail}` },
      it.line ? [h("button", { type: "button", class: "link line-of", onclick: () => showLine(it.line) }, `line ${it.line}`), " "] : null, h("code", {}, it.pointer), " ", complaint(it.detail)))));
}

/** What saving does to the run, as the manager says; null if the run continues. */
function effect({ before, made }) {
  if (!made) return null;
  const text = { "restart-requested": made.pool !== before.pool ? `Saving ends the run; the observer then waits for a slot of pool ${made.pool}.` : "Saving restarts the observer. It may then run on another service.", pausing: "Saving ends the run and pauses the observer." }[made.reason_code];
  return text ? h("p", { class: "fine", key: "effect" }, text) : null;
}

const firstMistake = () => h("button", { type: "button", class: "link", onclick: () => document.querySelector("main [aria-invalid=true]")?.focus() }, "Go to the first mistake");

/** The definition that saving stores: the manager fills in the defaults of members that the draft leaves out. */
function stored({ before, definition, made, wrong }) {
  if (before === null || made === null || wrong.length) return definition;
  const names = MEMBERS.filter((name) => (Object.hasOwn(definition, name) || Object.hasOwn(before, name)) && made[name] !== null && made[name] !== undefined);
  return Object.fromEntries(names.map((name) => [name, made[name]]));
}

/** `save()` sends the draft; `word` is the label of its button. `notice` appears above the editor. The page of a new observer has its own switch of modes. */
export function editor(draft, { kinds, pools = [] }, { title, word, save, cancel, notice }, context) {
  const all = linesOf(draft.before, stored(draft)), count = changed(all);
  draft.kinds = kinds;
  const blocked = draft.saving || draft.unreadable !== null || draft.wrong.length > 0 || (draft.before !== null && count === 0);
  return h("div", { class: "panels lead", key: "editor" },
    h("section", { class: "panel" }, h("header", {}, h("h2", {}, title),
      draft.before === null ? null : h("span", { class: "seg end", role: "group", "aria-label": "Edit as" }, Object.entries(MODES).map(([mode, text]) => h("button", { type: "button", class: "quiet", key: mode, "aria-pressed": String(draft.mode === mode), onclick: () => choose(draft, mode, context) }, text)))),
      draft.mode === "form" ? form(draft, kinds, pools, context) : textArea(draft, context)),
    h("section", { class: "panel review" }, h("header", {}, h("h2", {}, draft.before ? "Changes" : "New definition"), h("span", { class: "fine end" }, draft.before && draft.unreadable === null ? (count === 0 ? "none yet" : counted(count, "line")) : "")),
      notice ?? null, others(draft), draft.wrong.some((it) => it.pointer === "/pool") ? null : poolNotice(draft.definition, pools, draft.before === null),
      draft.unreadable === null ? diffView(all, "Changes") : h("p", { class: "fine", key: "unreadable" }, draft.mode === "form" ? ["The changes appear here once the fields are correct. ", firstMistake()] : draft.before ? "The changes appear here once the text is correct." : "It appears here once the text is correct."),
      draft.unreadable === null && draft.mode === "form" && draft.wrong.length ? h("p", { class: "fine warn", key: "invalid" }, "Not valid yet. ", firstMistake()) : null,
      draft.before === null ? null : effect(draft),
      h("p", { class: "row" }, h("button", { type: "button", class: "button primary", id: "save", disabled: blocked, onclick: save }, draft.saving ? "Saving…" : word), h("button", { type: "button", class: "button", onclick: cancel }, "Cancel"))));
}
