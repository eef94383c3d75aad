// Dialogs and toasts.
import { h } from "./dom.js";

const TOAST_MS = 8000;
const TOASTS_MAX = 4;

export function toast(text, tone = "bad") {
  const list = document.getElementById("toasts");
  const gone = () => item.remove();
  const item = h("div", { class: "toast", "data-tone": tone }, h("p", {}, text),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: gone }, "×"));
  list.append(item);
  while (list.children.length > TOASTS_MAX) list.firstChild.remove();
  setTimeout(gone, TOAST_MS);
}

/** The element of the dialog, empty. Each dialog has its own, because the browser reports the end of one later, when the next may be open. */
export function newDialog() {
  const former = document.getElementById("dialog");
  const dialog = former.cloneNode(false);
  dialog.removeAttribute("open");
  former.replaceWith(dialog);
  return dialog;
}

/** Asks before something that cannot be undone; answers whether, or what was typed where `input` is given. `input.check(text)` says what is wrong with it. */
export function confirm({ title, lines, action, danger = true, input, more }) {
  const dialog = newDialog();
  return new Promise((resolve) => {
    const field = input && h("input", { name: "value", autocomplete: "off", placeholder: input.placeholder ?? "" });
    const said = input?.check && h("p", { class: "bad", role: "alert" });
    const submit = (event) => {
      const wrong = event.submitter?.value === "no" ? null : input?.check?.(field.value.trim());
      if (wrong) { event.preventDefault(); said.textContent = wrong; field.focus(); }
    };
    const form = h("form", { method: "dialog", onsubmit: submit },
      h("h2", { id: "dialog-title" }, title),
      lines.map((line) => h("p", {}, line)),
      more,
      field && h("label", { class: "field" }, h("span", {}, input.label), field), said,
      h("p", { class: "row end" },
        h("button", { value: "no", class: "button", type: "submit", formnovalidate: true }, "Cancel"),
        h("button", { value: "yes", class: danger ? "button danger" : "button primary", type: "submit" }, action)));
    if (field) field.onkeydown = (event) => {
      if (event.key === "Enter") { event.preventDefault(); form.querySelector("button[value=yes]").click(); }
    };
    dialog.replaceChildren(form);
    dialog.returnValue = "no";
    dialog.className = more ? "wide" : "";
    dialog.onclose = () => resolve(dialog.returnValue === "yes" && (field ? { value: field.value.trim() } : true));
    dialog.showModal();
  });
}

/** What is wrong with a text that should be a whole number; nothing if it is one. */
export const notWhole = (text) => (/^\d+$/.test(text) ? null : `“${text}” is not a whole number.`);

/** A form with several fields `{ name, label, value, placeholder, hint, options, rows, type, min, max }`; returns the typed values by name, or nothing if the user cancels. */
export function askForm({ title, lines = [], fields, action, check = () => null }) {
  const dialog = newDialog();
  return new Promise((resolve) => {
    const inputs = new Map(fields.map((it) => [it.name, it.options
      ? h("select", { name: it.name }, it.options.map(([value, text]) => h("option", { value, selected: value === it.value }, text)))
      : it.rows ? h("textarea", { name: it.name, rows: String(it.rows), value: it.value ?? "", spellcheck: "false" })
        : h("input", { name: it.name, type: it.type, min: it.min, max: it.max, value: it.value ?? "", placeholder: it.placeholder ?? "", autocomplete: "off", spellcheck: "false" })]));
    const typed = () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
    const said = h("p", { class: "bad", role: "alert" });
    const submit = (event) => {
      if (event.submitter?.value === "no") return;
      const wrong = check(typed());
      if (wrong) { event.preventDefault(); said.textContent = wrong; }
    };
    dialog.className = "";
    dialog.returnValue = "no";
    dialog.onclose = () => resolve(dialog.returnValue === "yes" ? typed() : null);
    dialog.replaceChildren(h("form", { method: "dialog", onsubmit: submit },
      h("h2", { id: "dialog-title" }, title), lines.map((line) => h("p", {}, line)),
      fields.map((it) => h("label", { class: "field" }, h("span", {}, it.label), inputs.get(it.name), it.hint ? h("span", { class: "hint" }, it.hint) : null)), said,
      h("p", { class: "row end" }, h("button", { value: "no", class: "button", formnovalidate: true }, "Cancel"), h("button", { value: "yes", class: "button primary" }, action))));
    // Enter in a field presses the button of the action, not the first button.
    for (const input of inputs.values()) if (input.tagName === "INPUT") input.onkeydown = (event) => { if (event.key === "Enter") { event.preventDefault(); dialog.querySelector("button[value=yes]").click(); } };
    dialog.showModal();
    inputs.values().next().value?.focus();
  });
}

/** Shows content that cannot be shown again. */
export function tell({ title, lines, content }) {
  const dialog = newDialog();
  dialog.className = "wide";
  dialog.onclose = () => dialog.replaceChildren();
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), lines.map((line) => h("p", {}, line)), content, h("p", { class: "row end" }, h("button", { class: "button primary" }, "Done"))));
  dialog.showModal();
}
