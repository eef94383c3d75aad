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

/** Asks before something that cannot be undone; answers whether, or what was typed where `input` is given. */
export function confirm({ title, lines, action, danger = true, input, more }) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    const field = input && h("input", { name: "value", autocomplete: "off", placeholder: input.placeholder ?? "" });
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      lines.map((line) => h("p", {}, line)),
      more,
      field && h("label", { class: "field" }, h("span", {}, input.label), field),
      h("p", { class: "row end" },
        h("button", { value: "no", class: "button", type: "submit", formnovalidate: true }, "Cancel"),
        h("button", { value: "yes", class: danger ? "button danger" : "button primary", type: "submit" }, action)));
    if (field) field.onkeydown = (event) => {
      if (event.key === "Enter") { event.preventDefault(); dialog.close("yes"); }
    };
    dialog.replaceChildren(form);
    dialog.returnValue = "no";
    dialog.className = more ? "wide" : "";
    dialog.onclose = () => resolve(dialog.returnValue === "yes" && (field ? { value: field.value.trim() } : true));
    dialog.showModal();
  });
}
