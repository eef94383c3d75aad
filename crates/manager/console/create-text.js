// A new observer from a definition: typed as YAML or JSON, or cloned from another observer.
import { Refused, call } from "./api.js";
import { toast } from "./ask.js";
import { h } from "./dom.js";
import { draftOf, editor } from "./editor.js";
import { newestVersion } from "./versions.js";

let draft = null;

async function startOf(from) {
  if (!from) return { kind: "ticker", name: "hello", spec: { every: "1s" } };
  const { definition } = await newestVersion(from);
  return { ...definition, name: `${definition.name}-copy` };
}

export async function loadText(params) {
  const from = params.get("from") ?? "";
  if (draft?.from !== from) draft = draftOf(null, await startOf(from), { from, mode: "yaml" });
}

async function send(context) {
  draft.saving = true;
  context.redraw();
  try {
    const made = await call("POST", "/v1/observers", draft.definition);
    draft = null;
    location.hash = `#/observers/${made.id}`;
    return;
  } catch (error) {
    if (error instanceof Refused && error.errors.length) draft.wrong = error.errors;
    else if (error instanceof Refused && error.code.startsWith("name-")) draft.wrong = [{ pointer: "/name", detail: error.message }];
    else toast(error.message);
  }
  draft.saving = false;
  context.redraw();
}

/** The switch beside the title of the page. */
export const asSwitch = (now) => h("span", { class: "seg end", role: "group", "aria-label": "Create from" },
  h("a", { class: now === "form" ? "quiet on" : "quiet", href: "#/create", "aria-current": now === "form" ? "true" : undefined }, "Form"),
  h("a", { class: now === "yaml" ? "quiet on" : "quiet", href: "#/create?as=yaml", "aria-current": now === "yaml" ? "true" : undefined }, "YAML"));

export const drawText = ({ kinds }, context) => editor(draft, kinds, { title: "Definition", word: "Create", save: () => send(context), cancel: () => { draft = null; location.hash = "#/observers"; } }, context);
