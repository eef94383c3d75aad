// A form for a new observer, made from what its kind says of its spec.
import { Refused, call, get } from "./api.js";
import { confirm, toast } from "./ask.js";
import { complaints } from "./create-check.js";
import { CLEAN, body, formOf, membersOf } from "./create-form.js";
import { drawText, dropText, keptMode, leaveTo, loadText, startOf, startText, takeOverText, textDraft } from "./create-text.js";
import { fieldAt, fieldsOf } from "./definition-fields.js";
import { ordered } from "./definition.js";
import { dryRuns, judgment, readablePart } from "./dry-run.js";
import { h } from "./dom.js";
import { MODES, poolNotice } from "./editor.js";
import { example, first, givenSpec } from "./kinds.js";
import { fields, fits, typedOf as typedMember } from "./schema.js";
import { may, readable } from "./session.js";
import { empty, observerPath } from "./show.js";
import { toYaml } from "./yaml.js";

/** Where the browser keeps the draft of this tab, so that a reload does not lose it. */
const KEY = "new-observer";
let draft = held() ?? CLEAN();
/** The values that a clone began with: unchanged, they are no draft. */
let begunWith = null;
/** Whether the form shows values of an earlier visit. */
let isKept = !isClean();
/** The kind in the address. */
let asked = null;
const PATH = "/v1/observers", LEFT_MS = 150;
/** The fields that the user has left with something in them, and whether the user has tried to create the observer. */
let left = new Set(), hasSent = false;
/** The complaints that are the manager's. */
let manager = new Set();
const trial = dryRuns(LEFT_MS);

/** The form says nothing until the user leaves a field. */
function unjudged() {
  trial.stop();
  left = new Set();
  manager = new Set();
  hasSent = false;
}

function held() {
  try { return { ...CLEAN(), ...JSON.parse(sessionStorage.getItem(KEY)), wrong: {}, sending: false }; } catch { return null; }
}

/** What the user has typed, as a text to compare. */
function typedOf({ kind: _kind, wrong: _wrong, sending: _sending, ...typed }) {
  return JSON.stringify(typed);
}

function isEmpty() {
  return typedOf(draft) === typedOf(CLEAN());
}

/** Whether nothing would be lost. */
function isClean() {
  return isEmpty() || typedOf(draft) === begunWith;
}

function keepDraft() {
  try { isClean() ? sessionStorage.removeItem(KEY) : sessionStorage.setItem(KEY, JSON.stringify(draft)); } catch { /* a full store keeps the draft until a reload */ }
}

function forget(kind = null) {
  draft = { ...CLEAN(), kind };
  unjudged();
  isKept = false;
  keepDraft();
}
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#/create")) return;
  if (isClean()) forget(draft.kind);
  isKept = !isClean();
});

/** Says that the values are from an earlier visit. */
const kept = (context) => (!isKept ? null : h("p", { class: "notice", "data-tone": "wait", key: "kept" }, "The form shows your unsaved draft. ", h("button", { type: "button", class: "button small", onclick: () => { forget(draft.kind); context.redraw(); } }, "Discard the draft")));

/** The address names the mode; the form is the usual one. */
const modeOf = (params) => (["yaml", "json"].includes(params.get("as")) ? params.get("as") : "form");

/** Fills the form with the definition of another observer. If the form holds a draft or cannot show all of it, the text shows it. */
async function fillFrom(from, kinds) {
  if (!from || draft.from === from) return;
  const { values, lost } = formOf(await startOf(from), kinds);
  if (lost.length || !isClean()) return location.replace(`#/create?as=yaml&from=${encodeURIComponent(from)}`);
  draft = { ...values, from };
  begunWith = typedOf(draft);
  keepDraft();
}

/** The address no longer names the observer that is cloned: what the user has changed of it is a draft. */
function leaveClone() {
  if (isClean()) return forget();
  isKept = true;
}

async function load({ params }) {
  if (!may("observers:create")) throw new Refused(403, { detail: "the role of this session does not permit observers:create", code: "not-permitted" });
  if (modeOf(params) !== "form") await loadText(params, modeOf(params));
  if (params.get("kind") && params.get("kind") !== asked) { asked = params.get("kind"); unjudged(); Object.assign(draft, { kind: asked, spec: {}, wrong: {} }); }
  const none = { items: [] };
  const [kinds, pools, namespaces] = await Promise.all([get("/v1/kinds"), readable("pools:read", () => get("/v1/pools"), none), readable("namespaces:read", () => get("/v1/namespaces"), none)]);
  if (!params.get("from") && draft.from) leaveClone();
  if (modeOf(params) === "form") await fillFrom(params.get("from"), kinds.items);
  // A text that the user has left is the draft, unless the form holds one.
  const isPlain = modeOf(params) === "form" && !params.get("from") && !params.get("kind"), mode = isPlain && isClean() ? keptMode() : null;
  if (mode) location.replace(`#/create?as=${mode}`);
  return { kinds: kinds.items, pools: pools.items, namespaces: namespaces.items.map((it) => it.name) };
}

/** A complaint of the manager, with the value in the quotes of the others. */
function quoting(name, detail) {
  const typed = draft.spec[name];
  if (/^`[^`]*`/.test(detail)) return detail.replace(/^`([^`]*)`/, "“$1”");
  return /^is /.test(detail) && typeof typed === "string" && typed.trim() !== "" && !typed.includes("\n") ? `“${typed.trim()}” ${detail}` : detail;
}

/** Puts each complaint below the field that it is about; answers those without one. */
function complain(error, members) {
  const lost = [];
  for (const { pointer, detail } of error.errors) {
    const name = fieldAt(pointer, members);
    name === null ? lost.push(`${pointer} ${detail}`) : (draft.wrong[name] = quoting(name, detail));
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

/** From the form to a text: the definition that the form makes; if the form is empty, with the example of the kind. */
function toText(mode, kind, params, context) {
  const { members, isWhole } = membersOf(kind);
  draft.wrong = {};
  const definition = body(draft, members, isWhole, draft.wrong);
  if (Object.keys(draft.wrong).length) {
    invalid(context);
    const field = document.querySelector("[aria-invalid=true]"), label = field && document.querySelector(`label[for="${field.id}"]`)?.firstChild.textContent;
    return toast(`Correct ${label ? `“${label}”` : "the form"} before you switch to ${MODES[mode]}: otherwise, its value would be lost.`);
  }
  if (kind && isEmpty()) definition.spec = example(kind, fields(kind.schema)).spec;
  startText(definition, mode, params);
  context.set({ as: mode });
}

/** From a text to the form: asks before the form drops what it cannot show. */
async function toForm(kinds, context) {
  const { values, lost } = formOf(textDraft().definition, kinds);
  if (lost.length && !await confirm({ title: "Switch to the form?", lines: [`The form cannot show these fields of the definition completely: ${lost.join(", ")}. It drops what it cannot show.`], action: "Switch to the form" })) return;
  draft = values;
  takeOverText();
  unjudged();
  keepDraft();
  context.set({ as: "" });
}

/** The switch beside the title of the page. */
function asSwitch(now, kinds, params, context) {
  // A text that cannot be read has no other form.
  const isStuck = now !== "form" && textDraft().unreadable !== null;
  const choose = (mode) => {
    if (mode === now) return undefined;
    if (isStuck) return toast(`Correct the text before you switch to ${MODES[mode]}: ${textDraft().unreadable}`);
    if (mode === "form") return toForm(kinds, context);
    return now === "form" ? toText(mode, kinds.find((it) => it.name === draft.kind), params, context) : context.set({ as: mode });
  };
  return h("span", { class: "seg end", role: "group", "aria-label": "Create from" }, Object.entries(MODES).map(([mode, text]) =>
    h("button", { type: "button", class: "quiet", key: mode, "aria-pressed": String(mode === now), onclick: () => choose(mode) }, text)));
}

/** The definition, what the console itself refuses of it, by the field, and the members that the manager can judge. */
function examined({ members, isWhole }) {
  const unread = {}, definition = body(draft, members, isWhole, unread), own = { ...complaints(draft), ...unread };
  return { definition, own, judged: readablePart(definition, own, { members, isWhole }) };
}

/** What the manager says, by the field. */
function atFields(errors, members) {
  const all = errors.map(({ pointer, detail }) => [fieldAt(pointer, members), detail]).filter(([name]) => name !== null);
  return Object.fromEntries(all.reverse().map(([name, detail]) => [name, quoting(name, detail)]));
}

/** Shows what is wrong with the fields that the user has left, and with all after an attempt to create the observer; `judged` is null if the manager has not said. */
function show(own, judged, context) {
  const said = judged ?? {}, before = JSON.stringify(draft.wrong);
  const names = hasSent ? new Set([...left, ...Object.keys(own), ...Object.keys(said), ...Object.keys(draft.wrong)]) : left;
  // A definition that is not valid may hide what is wrong besides, such as a name that is taken; and only a request that is no dry run says whether the pool has a slot.
  const isOver = (name) => !manager.has(draft.wrong[name]) || (name !== "/pool" && judged !== null && Object.keys(judged).length === 0);
  Object.values(said).forEach((it) => manager.add(it));
  for (const name of names) {
    const found = own[name] ?? said[name];
    if (found) draft.wrong[name] = found;
    else if (isOver(name)) delete draft.wrong[name];
  }
  if (JSON.stringify(draft.wrong) !== before) context.redraw();
}

/** Checks the fields that the user has left, when the user leaves one with something in it. */
async function leave(pointer, known, context) {
  // The browser also reports a field that a redraw removes, in the middle of that.
  await null;
  if (draft.sending) return;
  if (!pointer.startsWith("/") && (draft.spec[pointer] ?? "") === "") left.delete(pointer);
  else left.add(pointer);
  const { own, judged } = examined(known);
  show(own, null, context);
  trial.ask("POST", PATH, judged, ({ errors }) => { if (!draft.sending) show(examined(known).own, errors && atFields(errors, known.members), context); });
}

/** Creates the observer, unless a field is wrong: then each wrong field says so at once. */
async function send(known, context) {
  const { members } = known, { definition, own, judged } = examined(known);
  draft.sending = true;
  hasSent = true;
  trial.stop();
  try {
    draft.wrong = {};
    const errors = (await judgment("POST", PATH, judged)).errors ?? [];
    const lost = complain({ errors, message: "" }, members).filter(Boolean);
    draft.wrong = { ...draft.wrong, ...own };
    if (Object.keys(draft.wrong).length || lost.length) throw new Invalid(lost);
    const question = { title: `Create an observer of kind ${draft.kind}?`, lines: ["You have filled in no field: the manager generates a name, and the other fields have their defaults."], action: "Create it", danger: false };
    if (isEmpty() && !(await confirm(question))) { draft.sending = false; return context.redraw(); }
    const made = await call("POST", PATH, definition);
    dropText();
    forget(draft.kind);
    location.hash = `#/${observerPath(made)}`;
    return;
  } catch (error) {
    if (error instanceof Invalid) error.others.forEach((it) => toast(it));
    else if (error instanceof Refused) {
      if (error.code === "name-exists" || error.code === "name-ending") draft.wrong["/name"] = error.message;
      else if (error.code === "no-capacity" || error.code === "pool-paused") draft.wrong["/pool"] = error.message;
      else complain(error, members).forEach((it) => toast(it));
    } else toast(error.message);
  }
  Object.entries(draft.wrong).filter(([name]) => !Object.hasOwn(own, name)).forEach(([, it]) => manager.add(it));
  draft.sending = false;
  invalid(context);
}

const previewOf = ({ members, isWhole }) => toYaml(ordered(body(draft, members, isWhole, {})));

/** The definition that the form makes, beside it, and the buttons. */
const review = (known, pools) => h("section", { class: "panel review" }, h("header", {}, h("h2", {}, "New definition")),
  noticeOf(known, pools), h("pre", { id: "preview", tabindex: "0", role: "region", "aria-label": "New definition" }, previewOf(known)),
  h("p", { class: "row" }, h("button", { type: "submit", form: "new-form", class: "button primary", disabled: draft.sending }, draft.sending ? "Creating…" : "Create"), h("button", { type: "button", class: "button", onclick: () => { const { from } = draft; forget(); leaveTo(from); } }, "Cancel")),
  // Below the buttons: they must not move while the user presses one.
  Object.keys(draft.wrong).length ? h("p", { class: "fine warn", key: "wrong" }, ["Not valid yet. ", h("button", { type: "button", class: "link", onclick: () => document.querySelector("#new-form [aria-invalid=true]")?.focus() }, "Go to the first mistake")]) : null);

/** What happens because of the pool, if it has no room for the observer. */
const noticeOf = (known, pools) => poolNotice(body(draft, known.members, known.isWhole, {}), pools, true);

/** After an input: the draft is kept, and the definition beside the form and the notice about its pool follow. */
function inputted(known, pools, context) {
  keepDraft();
  if (noticeOf(known, pools)?.textContent !== document.getElementById("pool-notice")?.textContent) context.redraw();
  const preview = document.getElementById("preview");
  if (preview) preview.textContent = previewOf(known);
}

/** Fills in the example of the kind, where the user has typed no spec; null if the kind has none. */
function useExample(kind, members, context) {
  const spec = givenSpec(kind, fields(kind.schema)), shown = members.filter((it) => spec[it.name] !== undefined && fits(it, spec[it.name]));
  if (shown.length === 0) return null;
  return () => {
    for (const it of shown) if ((draft.spec[it.name] ?? "") === "") draft.spec[it.name] = typedMember(it, spec[it.name]);
    keepDraft();
    context.redraw();
  };
}

function draw({ kinds, pools, namespaces }, { params }, context) {
  const mode = modeOf(params), title = h("h1", {}, "New observer");
  if (kinds.length === 0) return [h("header", { class: "head" }, title), empty("No services", "Services register the kinds that they offer. Start a service, and its kinds appear here.", h("a", { class: "button", href: "#/services" }, "Services"))];
  const head = h("header", { class: "head" }, title, asSwitch(mode, kinds, params, context));
  if (mode !== "form") return [head, drawText({ kinds, pools }, forget, context)];
  if (!kinds.some((it) => it.name === draft.kind)) draft.kind = (kinds.find((it) => it.name === "ticker") ?? kinds[0]).name;
  const kind = kinds.find((it) => it.name === draft.kind);
  const { members, isWhole } = membersOf(kind);
  const choose = (event) => { draft.kind = event.target.value; draft.spec = {}; draft.wrong = {}; unjudged(); keepDraft(); context.redraw(); };
  const form = fieldsOf(draft, { id: "new", changed: () => inputted({ members, isWhole }, pools, context), left: (pointer) => leave(pointer, { members, isWhole }, context), redraw: () => context.redraw() });
  return [head, kept(context), h("div", { class: "panels lead", key: "sheet" },
    h("form", { class: "sheet", id: "new-form", novalidate: true, onsubmit: (event) => { event.preventDefault(); send({ members, isWhole }, context); context.redraw(); } },
      h("fieldset", { key: "what" }, h("legend", {}, "What"), form.namespace(namespaces), form.text("Name", "/name", ["name"], undefined, "letters, digits, - _ . ; if empty, the manager generates a name"),
        form.choice("Kind", "/kind", ["kind"], kinds.map((it) => [it.name, it.name]), `${kind.services === 1 ? "1 service offers" : `${kind.services} services offer`} it`, choose)),
      form.spec(draft.kind, members, useExample(kind, members, context)), form.placement(pools), form.policies(), form.failing(), form.times()),
    review({ members, isWhole }, pools))];
}

export const create = { name: "create", title: "New observer", load, draw, focus: "#new-name, #definition" };
