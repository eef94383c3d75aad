// The buttons of a row: beside each other, or behind one button if the screen is narrow.
import { newDialog } from "./ask.js";
import { h } from "./dom.js";
import { smallButton } from "./show.js";

const narrow = matchMedia("(max-width: 768px)");

/** Lists the actions on one thing. */
function openMenu(name, all) {
  const dialog = newDialog();
  const choose = (it) => { dialog.close(); it.run(); };
  const button = (it) => [h("button", { type: "button", class: it.isDanger ? "button danger" : "button", "aria-label": it.label, disabled: Boolean(it.whyNot), onclick: () => choose(it) }, it.text), it.whyNot ? h("p", { class: "hint" }, it.whyNot) : null];
  dialog.replaceChildren(h("form", { method: "dialog", class: "action-menu" }, h("h2", { id: "dialog-title" }, name), all.map(button), h("button", { class: "quiet" }, "Cancel")));
  dialog.className = "";
  dialog.showModal();
}

/** `all`: of each action `text`, `label` (which also names the row), `run()`, `isDanger`, and `whyNot` if the manager would refuse it; what is null is left out. */
export function rowActions(name, all) {
  const shown = all.filter(Boolean);
  if (narrow.matches && shown.length > 1) return smallButton("…", `Actions on ${name}`, () => openMenu(name, shown));
  return shown.map((it) => smallButton(it.text, it.label, it.run, it));
}
