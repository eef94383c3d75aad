// The command palette: finds pages, saved views, observers, services, what to do with them, and shortcuts by a part of their names; one mistake does not matter.
import { get } from "./api.js";
import { h, patch } from "./dom.js";
import { help } from "./keys.js";
import { MISTAKE, fitting, pieces } from "./match.js";
import { PAGES } from "./nav.js";
import { asAction, quickActions } from "./quick-actions.js";
import { hrefOf, savedViews } from "./saved-views.js";
import { rebalance } from "./services.js";
import { isDev, may, readable } from "./session.js";
import { observerName, observerPath, standing, word } from "./show.js";

const TYPING_MS = 120;
const FOUND = 8;
/** An action of fewer letters may be the beginning of another word. */
const WHOLE = 4;
/** How many observers with a similar name the palette reads at most. */
const NEAR = 200;

const logOutButton = () => document.querySelector("#user:not([hidden]) button");

/** `words`: what users may type for it, beside its title. */
const SHORTCUTS = [
  { title: "New observer", hint: "c", needs: "observers:create", run: (it) => it.go("#/create") },
  { title: "Observers that restart after errors", words: "restarting crash looping", needs: "observers:read", run: (it) => it.go("#/observers?health=restarting") },
  { title: "Observers that failed", words: "errors", needs: "observers:read", run: (it) => it.go("#/observers?status=Failed") },
  { title: "Observers that wait", words: "waiting queue", needs: "observers:read", run: (it) => it.go("#/observers?health=waiting") },
  { title: "Rebalance services", words: "spread distribute balance", needs: "services:operate", run: ({ context }) => rebalance(context) },
  { title: "Switch between UTC and local time", words: "time zone timezone clock", run: (it) => it.zone() },
  { title: "Change the theme", words: "dark light mode system", run: (it) => it.theme() },
  { title: "API documentation", words: "docs documentation openapi reference rest help", run: () => { location.href = "/docs/"; } },
  { title: "Log out", words: "logout sign out signout", isPossible: () => logOutButton() !== null, run: () => logOutButton()?.click() },
  { title: "Keys and help", words: "shortcuts keyboard", hint: "?", run: () => help() },
];

/** Where the buttons of the actions are, for those who do not name an observer or a service. */
const ACTIONS = [
  { title: "Pause, resume, restart, retry, move or delete observers", hint: "add a name, or select them in the list", needs: "observers:operate", path: "#/observers" },
  { title: "Clone an observer, or copy its definition as YAML, CLI or curl", hint: "on its page", needs: "specs:read", path: "#/observers" },
  { title: "Revert an observer to a former version", words: "undo rollback", hint: "on its page, Versions", needs: "observers:update", path: "#/observers" },
  { title: "Drain, cordon, uncordon, resize or rebalance services", hint: "add a name, or open the page Services", needs: "services:operate", path: "#/services" },
  { title: "Kill a service, to see its observers move", words: "chaos failover crash", hint: "on its page", needs: "services:operate", path: "#/services", isPossible: isDev },
  { title: "Pause or resume a pool", hint: "add its name, or open the page Pools", needs: "pools:write", path: "#/pools" },
  { title: "Switch safe mode on or off", hint: "on the page Safe mode", needs: "safe-mode:write", path: "#/safe-mode" },
  { title: "Revert, pause or cancel a rollout", hint: "on its page", needs: "rollouts:write", path: "#/rollouts" },
];

const sourced = (sort, all, textOf, entryOf, typed) => fitting(all, textOf, typed).map(({ it, misfit }) => ({ sort, misfit, ...entryOf(it) }));

const pages = (typed) => sourced("Pages", PAGES.filter((it) => may(it.needs)), (it) => `${it.title} ${it.group} ${it.words ?? ""}`, (it) => ({ title: it.title, hint: `g ${it.key}`, run: (commands) => commands.go(`#/${it.path}`) }), typed);
const shortcuts = (typed) => sourced("Shortcuts", SHORTCUTS.filter((it) => may(it.needs) && (it.isPossible?.() ?? true)), (it) => `${it.title} ${it.words ?? ""}`, (it) => it, typed);
const views = (typed) => sourced("Views", may("observers:read") ? savedViews() : [], (it) => `${it.name} saved view`, (it) => ({ title: it.name, hint: "saved view", run: (commands) => commands.go(hrefOf(it)) }), typed);
const actions = (typed) => (typed ? sourced("Actions", ACTIONS.filter((it) => may(it.needs) && (it.isPossible?.() ?? true)), (it) => `${it.title} ${it.words ?? ""}`, (it) => ({ title: it.title, hint: it.hint, run: (commands) => commands.go(it.path) }), typed) : []);

/** Observers whose names contain what is typed; if there are none, those that contain it with one mistake. */
async function observersLike(typed) {
  const read = (q, limit) => get("/v1/observers", { q, limit }).then((page) => page.items);
  const found = await read(typed, FOUND);
  if (found.length || /\s/.test(typed)) return found;
  const near = (await Promise.all(pieces(typed).map((it) => read(it, NEAR)))).flat();
  return [...new Map(near.map((it) => [it.id, it])).values()];
}

/** The form of a new observer for each kind whose name fits, after a word such as “create”. */
async function newOfKind(typed) {
  const asked = typed.match(/^(?:create|new|add)\s+(?:observer\s+)?(.+)$/i)?.[1];
  if (!asked || !may("observers:create")) return [];
  const { items } = await readable("kinds:read", () => get("/v1/kinds"), { items: [] });
  return sourced("Actions", items, (it) => it.name, (it) => ({ title: `New observer of kind ${it.name}`, hint: "opens the form", run: (commands) => commands.go(`#/create?kind=${encodeURIComponent(it.name)}`) }), asked);
}

/** Observers, services, pools and namespaces, and of several words, such as “drain service-1”, what to do with them. */
async function things(typed) {
  const asked = asAction(typed), whole = named(typed);
  if (asked === null) return (await whole).entries;
  const meant = asked.name ? await named(asked.name) : await unnamed(asked.action);
  const found = await whole;
  return [...quickActions(asked.action, meant), ...(found.entries.length ? found : meant).entries];
}

/** What an action without a name concerns: what has its page open, otherwise all services. */
async function unnamed(action) {
  const open = await opened();
  if (action.length < WHOLE || open.observers.length || open.services.length || open.pools.length) return open;
  const { items } = await readable("services:read", () => get("/v1/services", { limit: 1000 }), { items: [] });
  return { ...open, services: items.filter((it) => !it.is_deleted).map((it) => ({ it, misfit: 1 })) };
}

/** The observer, service or pool whose page is open. */
async function opened() {
  const [page, ...parts] = location.hash.replace(/^#\/?/, "").split("?")[0].split("/").map(decodeURIComponent), name = parts.at(-1);
  const { observers, services, pools } = await named(name), isOpen = ({ it }) => it.name === name && (parts.length < 2 || it.namespace === parts[0]);
  return { observers: page === "observers" ? observers.filter(isOpen) : [], services: page === "services" ? services.filter(isOpen) : [], pools: page === "pools" ? pools.filter(isOpen) : [], entries: [] };
}

/** What has such a name: the observers and services as `{ it, misfit }`, and the entries of all. */
async function named(typed) {
  if (!typed) return { observers: [], services: [], pools: [], entries: [] };
  const none = { items: [] };
  const [observers, services, pools, namespaces] = await Promise.all([
    readable("observers:read", () => observersLike(typed), []), readable("services:read", () => get("/v1/services", { limit: 1000 }), none),
    readable("pools:read", () => get("/v1/pools"), none), readable("namespaces:read", () => get("/v1/namespaces"), none)]);
  const fittingObservers = fitting(observers, observerName, typed).slice(0, FOUND), fittingServices = fitting(services.items.filter((it) => !it.is_deleted), (it) => it.name, typed).slice(0, FOUND), fittingPools = fitting(pools.items, (it) => it.name, typed).slice(0, FOUND);
  const page = (path) => (commands) => commands.go(`#/${path}`);
  return { observers: fittingObservers, services: fittingServices, pools: fittingPools, entries: [
    ...fittingObservers.map(({ it, misfit }) => ({ sort: "Observers", misfit, title: observerName(it), status: standing(it), hint: `${word(standing(it))} · ${it.kind}`, run: page(observerPath(it)) })),
    ...fittingServices.map(({ it, misfit }) => ({ sort: "Services", misfit, title: it.name, hint: `${it.state} · ${it.held} of ${it.capacity} slots used`, run: page(`services/${encodeURIComponent(it.name)}`) })),
    ...fittingPools.map(({ it, misfit }) => ({ sort: "Pools", misfit, title: it.name, hint: "pool", run: page(`pools/${encodeURIComponent(it.name)}`) })),
    ...sourced("Namespaces", namespaces.items, (it) => it.name, (it) => ({ title: it.name, hint: "its observers", run: page(`observers?namespace=${encodeURIComponent(it.name)}`) }), typed).slice(0, FOUND),
  ] };
}

/** The groups of entries, the one with the best entry first. What fits only with a mistake stays out beside what fits without one. */
function ranked(all) {
  const best = Math.min(...all.map((it) => it.misfit)), shown = best < MISTAKE ? all.filter((it) => it.misfit < MISTAKE) : all;
  return [...Map.groupBy(shown, (it) => it.sort).values()].sort((a, b) => a[0].misfit - b[0].misfit).flat();
}

function nothingFor(typed) {
  const asked = asAction(typed);
  return asked?.name ? `Nothing is named “${asked.name}”.` : `No results for “${typed}”. Write a part of a name, or an action and a name, such as pause orders-1.`;
}

export function openPalette(commands) {
  const dialog = document.getElementById("palette");
  let found = [], at = 0, turn = 0, timer = null, isSearching = false;
  const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-label": "Find", placeholder: "Find something, or write what to do: pause orders-1", autocomplete: "off", spellcheck: "false" });
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Found" });
  const choose = (it) => { if (it.isOff) return; dialog.close(); it.run(commands); };
  const draw = () => {
    const rows = [];
    found.forEach((it, index) => {
      if (it.sort !== found[index - 1]?.sort) rows.push(h("li", { key: `sort-${it.sort}`, class: "sort-of", role: "presentation" }, it.sort));
      rows.push(h("li", { key: `found-${index}`, id: `found-${index}`, role: "option", "aria-selected": String(index === at), "aria-disabled": it.isOff ? "true" : undefined, onclick: () => choose(it) },
        it.status ? h("span", { class: "mark", "data-status": it.status }) : null, h("span", { class: "name" }, it.title), it.hint ? h("span", { class: "fine" }, it.hint) : null));
    });
    if (rows.length === 0) rows.push(h("li", { key: "none", class: "sort-of", role: "presentation" }, isSearching ? "Searching…" : nothingFor(field.value.trim())));
    patch(list, rows);
    found.length ? field.setAttribute("aria-activedescendant", `found-${at}`) : field.removeAttribute("aria-activedescendant");
    list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  };
  const search = async () => {
    const mine = ++turn, typed = field.value.trim();
    const own = [...pages(typed), ...views(typed), ...actions(typed), ...shortcuts(typed)];
    isSearching = typed !== "";
    found = ranked(own);
    at = 0;
    draw();
    const more = (await Promise.all([things(typed), newOfKind(typed)].map((it) => it.catch(() => [])))).flat();
    if (mine !== turn || !dialog.open) return;
    isSearching = false;
    // What the user has chosen meanwhile stays chosen.
    const chosen = at > 0 ? found[at] : null;
    found = ranked([...more, ...own]);
    at = Math.max(found.indexOf(chosen), 0);
    draw();
  };
  field.oninput = () => { clearTimeout(timer); timer = setTimeout(search, TYPING_MS); };
  field.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && found.length) { event.preventDefault(); at = (at + by + found.length) % found.length; draw(); }
    if (event.key === "Enter" && found[at]) { event.preventDefault(); choose(found[at]); }
  };
  dialog.replaceChildren(field, list, h("footer", {}, h("span", {}, "↑↓ choose"), h("span", {}, "Enter open or run"), h("span", {}, "Esc close")));
  dialog.onclose = () => { clearTimeout(timer); turn += 1; };
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
  dialog.showModal();
  search();
}
