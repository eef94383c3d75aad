// A new observer from a definition: typed as YAML or JSON, taken over from the form, or cloned from another observer.
import { Refused, call, get } from "./api.js";
import { toast } from "./ask.js";
import { h } from "./dom.js";
import { checkAgain, draftOf, editor } from "./editor.js";
import { readable } from "./session.js";
import { observerPath } from "./show.js";
import { newestVersion } from "./versions.js";

/** Where the browser keeps the text of this tab, so that a reload does not lose it. */
const KEY = "new-definition";
/** How many similar names a clone avoids at most. */
const SIMILAR = 200;
let draft = null;

/** The definition that a new observer begins with: that of the observer with the id `from`, or an example. */
export async function startOf(from) {
  if (!from) return { kind: "ticker", name: "hello", spec: { every: "1s" } };
  const { definition } = await newestVersion(from);
  return { ...definition, name: await freeName(definition) };
}

/** The name of a clone: the first one that no observer of the page of similar names has. */
async function freeName({ name, namespace }) {
  const wanted = `${name}-copy`, similar = await readable("observers:read", () => get("/v1/observers", { q: wanted, namespace, limit: SIMILAR }), { items: [] });
  const taken = new Set(similar.items.map((it) => it.name));
  let number = 1;
  const made = () => (number === 1 ? wanted : `${wanted}-${number}`);
  while (taken.has(made())) number += 1;
  return made();
}

/** Begins a text with this definition. */
export function startText(definition, mode, params) {
  draft = draftOf(null, definition, { from: params.get("from") ?? "", mode });
}

export function dropText() {
  draft = null;
  try { sessionStorage.removeItem(KEY); } catch { /* nothing is kept there */ }
}

function keepText({ from, mode, text, definition, isTyped }) {
  try { sessionStorage.setItem(KEY, JSON.stringify({ from, mode, text, definition, isTyped })); } catch { /* a full store keeps the text until a reload */ }
}

/** The text that this tab kept, if it began in the same way. */
function heldText(from) {
  try {
    const held = JSON.parse(sessionStorage.getItem(KEY));
    return held?.from === from ? draftOf(null, held.definition, { ...held, isKept: true, isUnchecked: true }) : null;
  } catch { return null; }
}

/** Where a user goes who creates nothing: back to the observer with the id `from`, which was to be cloned, or to the list. */
export const leaveTo = (from) => { location.hash = from ? `#/observers/${encodeURIComponent(from)}` : "#/observers"; };

export const textDraft = () => draft;

/** The mode of a text for a new observer that the user has typed, left, and not changed to the form; null if there is none. */
export function keptMode() {
  draft ??= heldText("");
  if (!draft?.isTyped || draft.from !== "") return null;
  draft.isKept = true;
  return draft.mode;
}

/** The form shows the definition of the text. */
export function takeOverText() {
  draft.isTyped = false;
  keepText(draft);
}

export async function loadText(params, mode) {
  const from = params.get("from") ?? "";
  draft = draft?.from === from ? draft : heldText(from) ?? draftOf(null, await startOf(from), { from, mode });
  if (draft.mode !== mode && draft.unreadable === null) Object.assign(draft, { mode, text: null });
}

async function send(forget, context) {
  draft.saving = true;
  context.redraw();
  try {
    const made = await call("POST", "/v1/observers", draft.definition);
    dropText();
    forget();
    location.hash = `#/${observerPath(made)}`;
    return;
  } catch (error) {
    if (error instanceof Refused && error.errors.length) draft.wrong = error.errors;
    else if (error instanceof Refused && error.code.startsWith("name-")) draft.wrong = [{ pointer: "/name", detail: error.message }];
    else toast(error.message);
  }
  draft.saving = false;
  context.redraw();
}

/** `forget` clears the form, whose values the text may have taken over. */
export function drawText(known, forget, context) {
  keepText(draft);
  if (draft.isUnchecked) {
    draft.isUnchecked = false;
    // Not while the page is drawn.
    queueMicrotask(() => checkAgain(draft, known.kinds, context));
  }
  const discard = async () => { const { from, mode } = draft; draft = draftOf(null, await startOf(from), { from, mode }); context.redraw(); };
  const kept = draft.isKept && (draft.isTyped || draft.text !== null) ? h("p", { class: "notice", "data-tone": "wait", key: "kept" }, "The text is your unsaved draft. ", h("button", { type: "button", class: "button small", onclick: discard }, "Discard the draft")) : null;
  return editor(draft, known, { title: "Definition", word: "Create", save: () => send(forget, context), cancel: () => { const { from } = draft; dropText(); forget(); leaveTo(from); }, notice: kept }, context);
}
