// Chooses the view that the address names, and keeps it drawn.
import { Lost, Refused, get } from "./api.js";
import { dropComplaints, toast } from "./ask.js";
import { clock, isUtc, useUtc } from "./clock.js";
import { h, patch } from "./dom.js";
import { listen } from "./keys.js";
import { Live } from "./live.js";
import { PAGES, drawNav, forgetCounts, recount, tellCounts } from "./nav.js";
import { openPalette } from "./palette.js";
import { coded, duration, empty, tick } from "./show.js";
import { PAIRS, VIEWS } from "./views.js";
import { loginForm, showUser } from "./login.js";
import { may, noteDev } from "./session.js";

const main = document.getElementById("main");

let route, view, data, turn = 0;

function read() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const part = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  return { path, parts: path.split("/").map(part), params: new URLSearchParams(search) };
}

const context = {
  redraw: () => draw(),
  refresh: () => live.now(),
  /** Sets or drops parameters of the address, in place of the present entry of the history or as a new one; the view follows. Resolves when it is drawn. */
  set(changes, replace = true) {
    const params = new URLSearchParams(route.params);
    for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
    const search = params.toString();
    const target = `#/${route.path}${search ? `?${search}` : ""}`;
    replace ? history.replaceState(history.state, "", target) : history.pushState(null, "", target);
    return follow();
  },
  /** Runs what a person asked for; a refusal is told. */
  async attempt(work, done) {
    let answer = null;
    try {
      answer = await work();
      if (done) toast(done, "good");
    } catch (error) {
      if (!(error instanceof Lost || error instanceof Refused)) throw error;
      toast(error.message);
    }
    live.now();
    return answer;
  },
};
// A page that shows findings of the doctor was drawn before the doctor had answered.
addEventListener("findings", () => context.refresh());

function draw() {
  if (data === undefined) return;
  const put = () => patch(main, [h("section", { key: route.path, class: `view ${view.name}` }, view.draw(data, route, context))]);
  view.around ? view.around(main, put) : put();
}

const skeleton = () => h("div", { class: "loading", role: "status" }, h("p", { class: "unseen" }, "Loading…"), h("span"), h("span"), h("span"));

function refused(error) {
  const title = { 404: "Not found", 403: "Not permitted" }[error.status] ?? "The manager refused the request";
  const open = PAGES.find((it) => may(it.needs)) ?? PAGES[0];
  const after = error.status === 403 ? "Your role does not permit this request. " : "";
  patch(main, [h("section", { key: "refused", class: "view" }, h("h1", {}, title),
    empty(coded(error.message), error.status === 400 ? "The address of this page has a parameter that the manager does not accept." : `${after}HTTP ${error.status} ${error.code}. This page retries automatically.`, error.status === 400 && route.params.size ? h("a", { class: "button", href: `#/${route.path}` }, "Open the page without parameters") : null, error.status === 404 && view.elsewhere ? h("a", { class: "button", href: view.elsewhere(route).href }, view.elsewhere(route).text) : null, h("a", { class: "button", href: `#/${open.path}` }, open.path ? `Go to the page ${open.title}` : "Go to the overview")))]);
}

const START = { at: 0 };
/** The entry of the history that is open, and of each entry where it was scrolled to and which link had the focus. */
let entry = null;
const places = new Map();
/** Where to go after the first drawing of a page; null once that has happened. */
let arriving = null;
history.scrollRestoration = "manual";

/** Remembers the place of the entry that is left. Returns that of the entry that opens: the start, unless the user goes back to it. */
function turnTo() {
  const focused = document.activeElement?.closest("main a[href]");
  if (entry !== null) places.set(entry, { at: scrollY, link: focused?.getAttribute("href") });
  entry = history.state?.entry ?? null;
  if (entry !== null) return places.get(entry) ?? START;
  entry = `${Date.now()}-${places.size}`;
  history.replaceState({ entry }, "");
  return START;
}

function arrived() {
  scrollTo(0, arriving.at);
  // The keys j and k go on from the row that the user has opened.
  if (arriving.link) [...main.querySelectorAll("a[href]")].find((it) => it.getAttribute("href") === arriving.link)?.focus({ preventScroll: true });
  // Typing starts in the first field; keys for pages would leave the form.
  else if (arriving.at === 0 && view.focus) document.querySelector(view.focus)?.focus({ preventScroll: true });
  arriving = null;
}

/** Several addresses may lead to a page: the best one replaces the others. */
function settle(path) {
  if (path === route.path) return;
  const search = route.params.toString();
  history.replaceState(history.state, "", `#/${path}${search ? `?${search}` : ""}`);
  route = read();
  entitle();
}

function entitle() {
  const name = route.parts[1] ? (view.nameIn ? view.nameIn(route.parts) : route.parts[1]) : null;
  document.title = view.title === "Overview" ? "Everwatch" : `${name ? `${name} · ` : ""}${view.title} · Everwatch`;
}

async function show() {
  const mine = ++turn;
  const count = () => recount(() => route.parts[0]);
  try {
    const loaded = await view.load(route);
    if (mine !== turn) return;
    data = loaded;
    if (view.address) settle(view.address(loaded));
    document.body.classList.remove("locked");
    draw();
    if (arriving !== null) arrived();
    if (view.counts) tellCounts(view.counts(loaded, route));
    count();
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof Refused)) throw error;
    data = undefined;
    document.body.classList.toggle("locked", error.status === 401);
    // What was typed stays while the page asks again.
    if (error.status === 401 && main.querySelector(".login")) return;
    if (error.status === 401) return patch(main, [loginForm(error.message, entered)]);
    refused(error);
    count();
  }
}

const nowhere = { name: "nowhere", title: "Not found", load: async () => ({}), draw: () => [h("h1", {}, "Not found"), empty("This page does not exist", "Check the address.", h("a", { class: "button", href: "#/" }, "Go to the overview"))] };

async function follow() {
  const before = route, place = turnTo();
  route = read();
  const moved = before?.path !== route.path;
  view = (route.parts[1] ? PAIRS[route.parts[0]] : undefined) ?? VIEWS[route.parts[0]] ?? nowhere;
  if (moved) {
    data = undefined;
    arriving = place;
    entitle();
    dropComplaints();
    drawNav(route.parts[0]);
    menu(false);
    if (before) { patch(main, [skeleton()]); main.focus({ preventScroll: true }); scrollTo(0, 0); }
  }
  const wasTyping = !moved && document.activeElement?.closest("main input, main textarea, main select") !== null;
  try { await show(); } catch (error) {
    if (!(error instanceof Lost)) throw error;
    live.now();
  }
  // The field with the focus may be gone, such as that of a form which a text replaces: typing goes on in the first one.
  if (wasTyping && view.focus && document.activeElement === document.body) document.querySelector(view.focus)?.focus({ preventScroll: true });
}

/** After a login or a logout: everything is read again. */
async function entered() {
  forgetCounts();
  await greet();
  // The page may be one that this user may not open.
  if (!may(PAGES.find((it) => it.path === route.parts[0])?.needs)) location.hash = "#/";
  live.now();
}

async function greet() {
  get("/v1/version").then((it) => { document.getElementById("version").textContent = it.version; noteDev(it.dev); }, () => {});
  await showUser(document.getElementById("user"), entered);
  document.getElementById("new").hidden = !may("observers:create");
  drawNav(route?.parts[0]);
}

const lostBar = document.getElementById("lost");
let standing = { lostAt: null, isLate: false };
/** What the bar says: that the connection is lost, or that an answer is late. */
const TROUBLES = {
  lost: ["Connection to the manager lost.", " Services do not need it to run their observers. The console retries every second."],
  late: ["The manager does not answer.", " Services do not need it to run their observers."],
};

function tell(it) {
  standing = it;
  const pulse = document.getElementById("pulse");
  pulse.dataset.state = it.lostAt !== null ? "lost" : it.isLate ? "late" : it.streaming ? "live" : "polling";
  pulse.lastElementChild.textContent = it.lostAt !== null ? "Offline" : it.isLate ? "No answer yet" : it.streaming ? "Live" : "Polling";
  const trouble = it.lostAt !== null ? "lost" : it.isLate ? "late" : null, before = lostBar.hidden ? null : lostBar.dataset.trouble;
  document.body.classList.toggle("stale", trouble !== null);
  // Written once: an alert that counts along would be read out each second.
  if (trouble !== null && trouble !== before) {
    const [said, more] = TROUBLES[trouble];
    lostBar.dataset.trouble = trouble;
    patch(lostBar, [h("strong", {}, said), h("span", { "aria-hidden": "true", id: "lost-for" }), h("span", {}, more),
      ...(trouble === "lost" ? [h("button", { type: "button", class: "button", onclick: () => live.now() }, "Try now")] : [])]);
    ageOfTrouble();
  } else if (trouble === null && before === "lost") toast("The manager is back.", "good");
  lostBar.hidden = trouble === null;
}

/** Writes how old the data is. */
function ageOfTrouble() {
  const since = document.getElementById("lost-for");
  if (!since || (standing.lostAt === null && !standing.isLate)) return;
  const seconds = Math.floor((Date.now() - standing.freshAt) / 1000);
  since.textContent = `The data on this page is from ${clock(standing.freshAt)}, ${seconds < 90 ? `${seconds} s` : duration(seconds * 1000)} ago.`;
}

const live = new Live(show, tell);

const THEMES = ["system", "light", "dark"];
function theme(choice) {
  document.documentElement.dataset.theme = choice;
  document.getElementById("theme").textContent = `Theme: ${choice}`;
}
function nextTheme() {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  theme(next);
}

function zone(utc) {
  useUtc(utc);
  document.getElementById("zone").textContent = `Times: ${utc ? "UTC" : "local"}`;
  document.getElementById("utc").setAttribute("aria-pressed", String(utc));
  document.getElementById("local").setAttribute("aria-pressed", String(!utc));
  draw();
}

function menu(open = !document.body.classList.contains("nav-open")) {
  document.body.classList.toggle("nav-open", open);
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
}

const commands = { context, theme: nextTheme, zone: () => zone(!isUtc()), go: (hash) => { location.hash = hash; } };
const palette = () => openPalette(commands);

theme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");
zone(isUtc());
document.getElementById("theme").onclick = nextTheme;
document.getElementById("zone").onclick = () => zone(!isUtc());
document.getElementById("utc").onclick = () => zone(true);
document.getElementById("local").onclick = () => zone(false);
document.getElementById("find").onclick = palette;
document.getElementById("menu").onclick = () => menu();
if (/Mac|iPhone|iPad/.test(navigator.platform)) document.getElementById("find-key").textContent = "⌘K";
document.getElementById("help").onclick = listen({ ...commands, palette });
document.querySelector(".skip").onclick = (event) => { event.preventDefault(); main.focus(); };
// A touch cannot point: it presses an underlined term to read its meaning.
addEventListener("click", ({ target }) => {
  const meant = target.closest?.(".hinted[title], .status[title]");
  if (meant && matchMedia("(hover: none)").matches) toast(`${meant.textContent}: ${meant.title}`, "note");
});
addEventListener("hashchange", () => {
  // A field of a filter shows the address: what was typed there does not stay when a link or “Back” leads to another one.
  if (document.activeElement?.matches("main input[type=search]")) document.activeElement.blur();
  follow();
});
addEventListener("resize", () => draw());
setInterval(() => {
  tick();
  ageOfTrouble();
}, 1000);
greet();
follow().finally(() => live.now());
