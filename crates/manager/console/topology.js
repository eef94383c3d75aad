// Services as boxes, observers as cells; a cell flies when its observer goes elsewhere.
import { get } from "./api.js";
import { h } from "./dom.js";
import { gap, isBound } from "./gap.js";
import { readable } from "./session.js";
import { HEALTHS, bar, counted, empty, number, observerLink, observerName, observerPath, standing, state, table, time, timedText, word } from "./show.js";

const CELLS = 1000;
/** Up to so many slots in all, free ones are drawn too. */
const SLOTS = 1200;
/** Up to this number of observers, each cell is a link. */
const LINKS = 240;
/** Up to this number of observers and free slots, each cell has its name. */
const NAMED = 60;
/** The starts that the page reads, and the most moves among them that it shows. */
const STARTS = 60, MOVES = 8;
const FLIGHTS = 300;
const FLIGHT_MS = 700;
/** A box that ended stays so long, to be seen. */
const FADE_MS = 60000;

async function load({ params }) {
  const [page, services, every, starts] = await Promise.all([
    get("/v1/observers", { q: params.get("q"), status: "Created,Processing,OnDeleting", limit: CELLS }), get("/v1/services", { limit: 1000 }), get("/v1/observers", { q: params.get("q"), limit: 1 }),
    readable("events:read", () => get("/v1/events", { type: "started", limit: STARTS }), null)]);
  const lately = Date.now() - FADE_MS;
  return { items: page.items, total: page.total, every: Math.max(every.total, page.total), services: services.items.filter((it) => !it.is_deleted || Date.parse(it.modified_at) > lately), moves: starts && movesIn(starts.items) };
}

/** The starts of observers that ran on another service before. */
const movesIn = (starts) => starts.filter((it) => it.from && it.service && it.from.id !== it.service.id).slice(0, MOVES);

const serviceLink = (it) => h("a", { href: `#/services/${encodeURIComponent(it.name)}` }, it.name);
const movesPanel = (moves) => h("section", { class: "panel", key: "moves" }, h("header", {}, h("h2", {}, "Latest moves"), h("a", { class: "quiet end", href: "#/incidents" }, "Incidents and handovers")),
  moves.length === 0 ? h("p", { class: "fine" }, "No observer has moved lately.") : table("Latest moves", [
    { title: "When", class: "when", cell: (it) => time(it.at) },
    { title: "Observer", class: "name fit", cell: (it) => (it.burst ? counted(it.burst.count, "observer") : it.observer ? observerLink(it.observer) : "") },
    { title: "From", cell: (it) => serviceLink(it.from) }, { title: "To", cell: (it) => serviceLink(it.service) },
    { title: "Gap", isExtra: true, class: "n", cell: (it) => (it.gap_ms === null ? "" : gap(it.gap_ms, isBound(it))) },
  ], moves));

const said = (it) => `${observerName(it)} · ${word(standing(it))}${it.reason ? ` · ${timedText(it.reason)}` : ""}`;
/** The cell that the keyboard reaches first: one of all, the one that had the focus last. */
let reached = null;
let pointed = "";
addEventListener("hashchange", () => { if (!location.hash.startsWith("#/topology")) { reached = null; pointed = ""; } });

function reach(id, cell) {
  reached = id;
  for (const one of document.querySelectorAll("main a.cell[tabindex='0']")) one.tabIndex = -1;
  cell.tabIndex = 0;
  caption(cell.title);
}

/** Says which observer the pointer or the keyboard is on; a reader of the screen reads the cell itself. */
function caption(text) {
  pointed = text;
  const line = document.getElementById("pointed");
  if (line) line.textContent = text;
}

/** Arrow keys go from cell to cell, also into other boxes. */
function step(event) {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const all = [...document.querySelectorAll("main a.cell")], here = event.currentTarget.getBoundingClientRect();
  const isNext = (it) => { const at = it.getBoundingClientRect(); return by * (at.top - here.top) > here.height / 2; };
  const distance = (it) => { const at = it.getBoundingClientRect(); return Math.hypot((at.left - here.left) / 2, at.top - here.top); };
  const next = /Up|Down/.test(event.key) ? all.filter(isNext).sort((a, b) => distance(a) - distance(b))[0] : all[all.indexOf(event.currentTarget) + by];
  next?.focus();
}

/** If there are few cells, each is a link; the keyboard reaches one of them, and arrow keys the others. */
const cell = (it, isLink, withName) => (isLink ? h("a", { class: withName ? "cell named" : "cell", key: it.id, "data-status": standing(it), title: said(it), "aria-label": said(it), href: `#/${observerPath(it)}`, tabindex: it.id === reached ? "0" : "-1", onfocus: (event) => reach(it.id, event.currentTarget), onpointerenter: (event) => caption(event.currentTarget.title), onkeydown: step }, withName ? [h("span", { class: "mark", "data-status": standing(it) }), h("span", { class: "of" }, observerName(it))] : null) : h("span", { class: "cell", key: it.id, "data-status": standing(it), title: said(it) }));

function cells(label, items, { areLinks, withNames }, free = 0) {
  const open = (event) => { const id = event.target.dataset.key; if (id) location.hash = `#/observers/${id}`; };
  return h("div", { class: "cells", role: areLinks ? "group" : "img", "aria-label": `${label}: ${counted(items.length, "observer")} drawn`, onclick: areLinks ? null : open }, items.map((it) => cell(it, areLinks, withNames)), Array.from({ length: free }, () => h("span", { class: "slot" })));
}

/** How the former process of a service ended, in the box of its present one. */
const ended = (former) => (former ? h("span", { class: "fine" }, `back, ${former.state} `, time(former.modified_at)) : null);

/** What is held is counted from the observers where all are drawn: heartbeats of services say it seconds later. */
function box(service, items, { all, withSlots, areLinks, withNames, former }) {
  const held = all ? items.length : service.held;
  return h("li", { class: "box", key: service.id, "data-state": service.state, "data-name": service.name },
    h("header", {}, h("h2", {}, h("a", { href: `#/services/${encodeURIComponent(service.name)}` }, service.name)), service.state === "active" ? null : state(service.state), ended(former),
      h("span", { class: "fine" }, service.is_deleted ? "" : `${number(held)} / ${number(service.capacity)}`)),
    bar(held, service.capacity, `${number(held)} of ${number(service.capacity)} slots used`),
    cells(service.name, items, { areLinks, withNames }, withSlots && service.state === "active" ? Math.max(service.capacity - items.length, 0) : 0));
}

/** How many observers the page draws, of how many: those that are not meant to run now, such as paused ones, have no cell. */
function countText({ items, total, every }) {
  const of = items.length === every ? counted(every, "observer") : `${number(items.length)} of ${counted(every, "observer")} drawn`;
  const rest = every > total ? ` · ${number(every - total)} scheduled, paused, failed or completed` : "";
  return `${of}${rest}${total > items.length ? " · the bars include observers that are not drawn" : ""}`;
}

function draw({ items, total, every, services, moves }) {
  const of = Map.groupBy(items, (it) => it.service?.id ?? "");
  const known = new Set(services.map((it) => it.id));
  const adrift = items.filter((it) => !known.has(it.service?.id));
  const living = new Set(services.filter((it) => !it.is_deleted).map((it) => it.name));
  // One box for each name: the former process of a service that has started again has none, unless observers are still drawn on it.
  const isFormer = (it) => it.is_deleted && living.has(it.name) && !of.has(it.id);
  const formerOf = (it) => (it.is_deleted ? null : services.filter((one) => one.name === it.name && isFormer(one)).sort((a, b) => b.modified_at.localeCompare(a.modified_at))[0] ?? null);
  const sorted = services.filter((it) => !isFormer(it)).toSorted((a, b) => a.pool.localeCompare(b.pool) || a.name.localeCompare(b.name, "en", { numeric: true }) || a.created_at.localeCompare(b.created_at));
  const slots = services.reduce((sum, it) => sum + (it.is_deleted ? 0 : it.capacity), 0);
  const all = total <= items.length, withSlots = slots <= SLOTS && all;
  const drawn = withSlots ? Math.max(slots, items.length) : items.length;
  const areLinks = items.length <= LINKS, withNames = drawn <= NAMED;
  if (!items.some((it) => it.id === reached)) reached = items[0]?.id ?? null;
  const size = drawn <= 240 ? "few" : drawn <= 600 ? "some" : "many";
  return [
    h("header", { class: "head" }, h("h1", {}, "Topology"), h("p", { class: "total" }, countText({ items, total, every })),
      h("ul", { class: "key" }, HEALTHS.map((it) => h("li", {}, h("span", { class: "cell", "data-status": it }), word(it))))),
    services.length === 0 && total === 0 ? empty("Nothing to draw", "No service runs and no observer exists.") : null,
    areLinks && !withNames ? h("p", { class: "fine", id: "pointed", key: "pointed", "aria-hidden": "true" }, pointed || "Point at a cell, or reach it with the arrow keys, to read what it is.") : null,
    h("ul", { class: "boxes", "data-size": size },
      adrift.length ? h("li", { class: "box adrift", key: "adrift" }, h("header", {}, h("h2", {}, "On no service"), h("span", { class: "fine" }, number(adrift.length))), cells("On no service", adrift, { areLinks, withNames })) : null,
      sorted.map((it) => box(it, of.get(it.id) ?? [], { all, withSlots, areLinks, withNames, former: formerOf(it) }))),
    // Few cells leave room.
    withNames && moves && services.length ? movesPanel(moves) : null,
  ].filter(Boolean);
}

/** Remembers where each cell stood, and lets those in another box fly there. */
function around(main, put) {
  const before = new Map();
  for (const one of main.querySelectorAll(".box .cell")) before.set(one.dataset.key, one);
  const places = new Map([...before].map(([id, one]) => [id, { home: one.closest(".box").dataset.key, at: one.getBoundingClientRect() }]));
  put();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  let flights = 0;
  const moved = [...main.querySelectorAll(".box .cell")].filter((one) => {
    const place = places.get(one.dataset.key);
    return place && place.home !== one.closest(".box").dataset.key;
  });
  const ways = moved.slice(0, FLIGHTS).map((one) => ({ one, from: places.get(one.dataset.key).at, to: one.getBoundingClientRect() }));
  for (const { one, from, to } of ways) {
    one.animate([{ transform: `translate(${from.left - to.left}px, ${from.top - to.top}px) scale(1.3)`, zIndex: 2 }, { transform: "none", zIndex: 2 }],
      { duration: FLIGHT_MS, delay: Math.min(flights++ * 4, 400), easing: "cubic-bezier(.3,.7,.2,1)", fill: "backwards" });
  }
}

export const topology = { name: "topology", title: "Topology", load, draw, around };
