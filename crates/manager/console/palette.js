// The command palette: finds pages, saved views, observers, services and shortcuts by a part of their names.
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { help } from "./keys.js";
import { PAGES } from "./nav.js";
import { hrefOf, savedViews } from "./saved-views.js";
import { may, readable } from "./session.js";
import { observerPath, standing, word } from "./show.js";

const TYPING_MS = 120;
const FOUND = 8;

const SHORTCUTS = [
  { title: "New observer", hint: "c", needs: "observers:create", run: (it) => it.go("#/create") },
  { title: "Observers that restart after errors", needs: "observers:read", run: (it) => it.go("#/observers?health=restarting") },
  { title: "Observers that failed", needs: "observers:read", run: (it) => it.go("#/observers?status=Failed") },
  { title: "Observers that wait for a slot", needs: "observers:read", run: (it) => it.go("#/observers?health=waiting") },
  { title: "Switch between UTC and local time", run: (it) => it.zone() },
  { title: "Change the theme", run: (it) => it.theme() },
  { title: "Keys and help", hint: "?", run: () => help() },
];

const matches = (text, typed) => typed.toLowerCase().split(/\s+/).every((part) => text.toLowerCase().includes(part));

const pages = (typed) => PAGES.filter((it) => may(it.needs) && matches(`${it.title} ${it.group}`, typed))
  .map((it) => ({ sort: "Pages", title: it.title, hint: `g ${it.key}`, run: (commands) => commands.go(`#/${it.path}`) }));
const shortcuts = (typed) => SHORTCUTS.filter((it) => may(it.needs) && matches(it.title, typed)).map((it) => ({ sort: "Shortcuts", ...it }));
const views = (typed) => (may("observers:read") ? savedViews() : []).filter((it) => matches(`${it.name} saved view`, typed))
  .map((it) => ({ sort: "Views", title: it.name, hint: "saved view", run: (commands) => commands.go(hrefOf(it)) }));

async function things(typed) {
  if (!typed) return [];
  const [observers, services] = await Promise.all([
    readable("observers:read", () => get("/v1/observers", { q: typed, limit: FOUND }), { items: [] }),
    readable("services:read", () => get("/v1/services", { limit: 1000 }), { items: [] })]);
  const named = services.items.filter((it) => !it.is_deleted && matches(it.name, typed)).slice(0, FOUND);
  return [
    ...observers.items.map((it) => ({ sort: "Observers", title: it.name, status: standing(it), hint: `${word(standing(it))} · ${it.kind}`, run: (commands) => commands.go(`#/${observerPath(it)}`) })),
    ...named.map((it) => ({ sort: "Services", title: it.name, hint: `${it.state} · ${it.held} of ${it.capacity}`, run: (commands) => commands.go(`#/services/${encodeURIComponent(it.name)}`) })),
  ];
}

export function openPalette(commands) {
  const dialog = document.getElementById("palette");
  let found = [], at = 0, turn = 0, timer = null;
  const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-label": "Find", placeholder: "Find a page, view, observer or service…", autocomplete: "off", spellcheck: "false" });
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Found" });
  const choose = (it) => { dialog.close(); it.run(commands); };
  const draw = () => {
    const rows = [];
    found.forEach((it, index) => {
      if (it.sort !== found[index - 1]?.sort) rows.push(h("li", { key: `sort-${it.sort}`, class: "sort-of", role: "presentation" }, it.sort));
      rows.push(h("li", { key: `found-${index}`, id: `found-${index}`, role: "option", "aria-selected": String(index === at), onclick: () => choose(it) },
        it.status ? h("span", { class: "mark", "data-status": it.status }) : null, h("span", { class: "name" }, it.title), it.hint ? h("span", { class: "fine" }, it.hint) : null));
    });
    if (rows.length === 0) rows.push(h("li", { key: "none", class: "sort-of", role: "presentation" }, `No results for “${field.value}”. Actions are on the pages of observers and services.`));
    patch(list, rows);
    found.length ? field.setAttribute("aria-activedescendant", `found-${at}`) : field.removeAttribute("aria-activedescendant");
    list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  };
  const search = async () => {
    const mine = ++turn, typed = field.value.trim();
    found = [...pages(typed), ...views(typed), ...shortcuts(typed)];
    at = 0;
    draw();
    const more = await things(typed).catch(() => []);
    if (mine !== turn || !dialog.open) return;
    found = [...more, ...found];
    draw();
  };
  field.oninput = () => { clearTimeout(timer); timer = setTimeout(search, TYPING_MS); };
  field.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && found.length) { event.preventDefault(); at = (at + by + found.length) % found.length; draw(); }
    if (event.key === "Enter" && found[at]) { event.preventDefault(); choose(found[at]); }
  };
  dialog.replaceChildren(field, list, h("footer", {}, h("span", {}, "↑↓ choose"), h("span", {}, "Enter open"), h("span", {}, "Esc close")));
  dialog.onclose = () => { clearTimeout(timer); turn += 1; };
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
  dialog.showModal();
  search();
}
