// Dialogs and toasts.
import { h } from "./dom.js";

/** How long a toast stays: that something was done is read at once, and what is wrong takes longer. */
const TOAST_MS = { good: 5000, note: 8000, bad: 8000 };
const TOASTS_MAX = 4;

/** Removes the toasts of refused requests: a later request has succeeded, or the user has gone to another page. */
export function dropComplaints() {
  for (const it of document.querySelectorAll("#toasts [data-tone=bad]")) it.remove();
}

export function toast(text, tone = "bad") {
  const list = document.getElementById("toasts");
  // What was done before is no news, and a complaint is over.
  if (tone === "good") list.replaceChildren();
  const gone = () => item.remove();
  const item = h("div", { class: "toast", "data-tone": tone }, h("p", {}, text),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: gone }, "×"));
  list.append(item);
  while (list.children.length > TOASTS_MAX) list.firstChild.remove();
  setTimeout(gone, TOAST_MS[tone]);
}

/** The element of the dialog, empty. Each dialog has its own, because the browser reports the end of one later, when the next may be open. */
export function newDialog() {
  const former = document.getElementById("dialog");
  const dialog = former.cloneNode(false);
  dialog.removeAttribute("open");
  dialog.dataset.page = pageNow();
  former.replaceWith(dialog);
  return dialog;
}

const pageNow = () => location.hash.split("?")[0];

// A question belongs to the page on which it was asked. What cannot be shown again stays.
addEventListener("hashchange", () => { const dialog = document.getElementById("dialog"); if (dialog?.open && !dialog.oncancel && dialog.dataset.page !== pageNow()) dialog.close(); });

/** Asks before something that cannot be undone; answers whether. */
export function confirm({ title, lines, action, danger = true, more }) {
  const dialog = newDialog();
  return new Promise((resolve) => {
    dialog.replaceChildren(h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      lines.map((line) => h("p", {}, line)),
      more,
      h("p", { class: "row end" },
        h("button", { value: "no", class: "button", type: "submit" }, "Cancel"),
        h("button", { value: "yes", class: danger ? "button danger" : "button primary", type: "submit" }, action))));
    dialog.returnValue = "no";
    dialog.className = more ? "wide" : "";
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
    dialog.showModal();
  });
}

/** Shows content that cannot be shown again. */
export function tell({ title, lines, content }) {
  const dialog = newDialog();
  dialog.className = "wide";
  dialog.onclose = () => dialog.replaceChildren();
  // Escape must not close the dialog: the manager shows this content only once.
  dialog.oncancel = (event) => event.preventDefault();
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), lines.map((line) => h("p", {}, line)), content, h("p", { class: "row end" }, h("button", { class: "button primary" }, "Done"))));
  dialog.showModal();
}
