// Edit in place: the draft of one observer, saved only if no other user has changed the observer meanwhile.
import { Refused, call, get, tagged } from "./api.js";
import { toast } from "./ask.js";
import { mergePatch } from "./definition.js";
import { h } from "./dom.js";
import { draftOf, editor } from "./editor.js";
import { readable } from "./session.js";
import { newestVersion } from "./versions.js";

let draft = null;
/** Whether the entry of the history before this one is the page of the observer. */
let isAfterPage = false;
addEventListener("hashchange", () => { isAfterPage = false; });

/** Opens the editor of the page of an observer; “Back” closes it. Typing starts in its first field, because the keys for pages would leave it. */
export async function openEditor(context) {
  isAfterPage = true;
  await context.set({ edit: "form" }, false);
  document.querySelector("main .sheet :is(input, select, textarea), main #definition")?.focus();
}

const path = (id) => `/v1/observers/${encodeURIComponent(id)}`;

async function begin(id, mode) {
  const { tag } = await tagged(path(id));
  const newest = await newestVersion(id);
  draft = draftOf(newest.definition, newest.definition, { id, tag, version: newest.version, conflict: null, mode });
}

async function save(it, context) {
  const body = mergePatch(draft.before, draft.definition);
  draft.saving = true;
  context.redraw();
  try {
    await call("PATCH", path(it.id), body, { "content-type": "application/merge-patch+json", "if-match": draft.tag });
    draft = null;
    toast("Saved.", "good");
    context.set({ edit: "", tab: "versions" });
    return;
  } catch (error) {
    if (!draft) throw error;
    if (error instanceof Refused && error.status === 412) draft.conflict = error.message;
    else if (error instanceof Refused && error.errors.length) draft.wrong = error.errors;
    else toast(error.message);
  }
  draft.saving = false;
  context.redraw();
}

/** Compares the draft, which stays unchanged, with the stored definition. */
async function rebase(it, context) {
  const { tag } = await tagged(path(it.id));
  const newest = await newestVersion(it.id);
  Object.assign(draft, { before: newest.definition, tag, version: newest.version, conflict: null });
  context.redraw();
}

function conflict(it, context) {
  if (!draft.conflict && it.definition_version === draft.version) return null;
  return h("div", { class: "notice", key: "conflict", role: "alert" }, h("strong", {}, "Another user has changed this observer meanwhile. "), `${draft.conflict ? "The manager did not save your draft." : `Your draft changes version ${draft.version}.`} Compare it with the stored definition, then save it.`,
    h("p", { class: "row" }, h("button", { type: "button", class: "button small", onclick: () => rebase(it, context) }, `Compare with version ${it.definition_version}`)));
}

/** Loads the data of the editor, whose draft stays until it is saved or cancelled; nothing without `edit` in the address. */
export async function loadEdit(it, params) {
  const mode = params.get("edit");
  if (!mode) return null;
  const isOurs = draft?.id === it.id;
  if (!isOurs || (draft.version !== it.definition_version && !hasDraft(it))) await begin(it.id, isOurs ? draft.mode : ["form", "yaml", "json"].includes(mode) ? mode : "form");
  const none = { items: [] };
  const [kinds, pools] = await Promise.all([readable("kinds:read", () => get("/v1/kinds"), none), readable("pools:read", () => get("/v1/pools"), none)]);
  return { kinds: kinds.items, pools: pools.items };
}

/** Whether a draft of this observer waits, because the user has left it. */
export const hasDraft = (it) => draft?.id === it.id && (draft.unreadable !== null || Object.keys(mergePatch(draft.before, draft.definition)).length > 0);

export const editPanel = (it, known, context) => editor(draft, known, {
  title: `Edit ${it.name}`, word: `Save version ${it.definition_version + 1}`, save: () => save(it, context),
  cancel: () => { draft = null; isAfterPage ? history.back() : context.set({ edit: "" }); }, notice: conflict(it, context),
}, context);

export const isEditing = (it) => draft?.id === it.id;
