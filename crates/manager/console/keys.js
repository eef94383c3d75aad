// Keys: the palette, the filter, pages after g, rows with j and k; `?` shows them all.
import { newDialog } from "./ask.js";
import { h } from "./dom.js";
import { PAGES } from "./nav.js";
import { may } from "./session.js";

const CHORD_MS = 1200;

const OTHERS = [
  ["Ctrl K or ⌘K", "find a page, a view, an observer, a service; or act: pause orders-1"], ["/", "filter this list, or the list of observers"], ["c", "new observer"],
  ["e", "edit the observer of this page"], ["j and k", "next and previous row, card or box"], ["arrow keys", "in the topology: from observer to observer"], ["Enter or o", "open the row"], ["x", "select the row"], ["?", "this help"], ["Esc", "close"],
];

export function help() {
  const dialog = newDialog();
  const line = (keys, text) => h("div", {}, h("span", {}, text), h("kbd", {}, keys));
  dialog.className = "wide";
  dialog.onclose = () => { dialog.className = ""; };
  dialog.replaceChildren(h("div", { class: "stack" },
    h("h2", { id: "dialog-title" }, "Keys"),
    h("div", { class: "keys" }, OTHERS.map(([keys, text]) => line(keys, text))),
    h("h3", {}, "Go to a page"),
    h("div", { class: "keys" }, PAGES.filter((it) => may(it.needs)).map((it) => line(`g ${it.key}`, it.title))),
    h("p", { class: "fine" }, "Times are relative; the exact time appears on hover, in UTC or local time as the switch at the top says."),
    h("form", { method: "dialog", class: "row end" }, h("button", { class: "button" }, "Close"))));
  dialog.showModal();
}

/** Rows of tables, entries of lists, and cards. */
const ROWS = "main tbody tr, main .incident-list > li, main .cards > li, main .boxes > li";
/** The row that has the focus: redrawing the page keeps it. */
const row = () => document.activeElement?.closest(ROWS);

function step(by) {
  const rows = [...document.querySelectorAll(ROWS)];
  if (rows.length === 0) return;
  const next = rows[Math.min(Math.max(rows.indexOf(row()) + by, 0), rows.length - 1)];
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a") ?? next.querySelector("button, input"))?.focus({ preventScroll: true });
}

/** Listens to keys. Answers what opens the help. */
export function listen({ palette, go }) {
  let chordAt = -Infinity;
  const filter = () => { const field = document.getElementById("search"); field ? field.focus() : go("#/observers"); };
  const plain = {
    "/": filter, "?": help, j: () => step(1), k: () => step(-1), c: () => may("observers:create") && go("#/create"),
    e: () => document.querySelector("[data-action=edit]")?.click(), x: () => row()?.querySelector("input[type=checkbox]")?.click(), o: () => row()?.querySelector("a")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    // A dialog is answered first; the focus may be outside of it.
    const asks = document.querySelector("dialog[open]") !== null;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); if (!asks) palette(); return; }
    if (asks || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const chord = performance.now() - chordAt < CHORD_MS;
    chordAt = -Infinity;
    if (chord) {
      const page = PAGES.find((it) => it.key === event.key && may(it.needs));
      if (page) { event.preventDefault(); go(`#/${page.path}`); }
      return;
    }
    if (event.key === "g") { chordAt = performance.now(); return; }
    if (!Object.hasOwn(plain, event.key)) return;
    event.preventDefault();
    plain[event.key]();
  });
  return help;
}
