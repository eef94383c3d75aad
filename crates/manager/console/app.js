// Chooses the view that the address names, and keeps it drawn.
import { Lost, Refused, get } from "./api.js";
import { toast } from "./ask.js";
import { h, patch } from "./dom.js";
import { Live } from "./live.js";
import { duration, empty, tick } from "./show.js";
import { overview } from "./overview.js";
import { observers } from "./observers.js";
import { observer } from "./observer.js";
import { create } from "./create.js";
import { services } from "./services.js";
import { batch, batches } from "./batches.js";
import { rollout, rollouts } from "./rollouts.js";
import { topology } from "./topology.js";
import { limits } from "./limits.js";
import { loginForm, showUser } from "./login.js";
import { rates } from "./rates.js";
import { parked } from "./parked.js";
import { events } from "./events.js";

const main = document.getElementById("main");
const VIEWS = { "": overview, observers, create, services, rollouts, batches, topology, limits, rates, parked, events };

let route, view, data, turn = 0;

function read() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent);
  return { path, parts, params: new URLSearchParams(search) };
}

const context = {
  redraw: () => draw(),
  refresh: () => live.now(),
  /** Sets or drops parameters of the address; the view follows. */
  set(changes, replace = true) {
    const params = new URLSearchParams(route.params);
    for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
    const search = params.toString();
    const target = `#/${route.path}${search ? `?${search}` : ""}`;
    if (replace) { history.replaceState(null, "", target); follow(); } else location.hash = target;
  },
  /** Runs what a person asked for; a refusal is told. */
  async attempt(work, done) {
    try {
      await work();
      if (done) toast(done, "good");
    } catch (error) {
      if (!(error instanceof Lost || error instanceof Refused)) throw error;
      toast(error.message);
    }
    live.now();
  },
};

function draw() {
  if (data === undefined) return;
  const put = () => patch(main, [h("section", { key: route.path, class: `view ${view.name}` }, view.draw(data, route, context))]);
  view.around ? view.around(main, put) : put();
}

async function show() {
  const mine = ++turn;
  try {
    const loaded = await view.load(route);
    if (mine !== turn) return;
    data = loaded;
    draw();
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof Refused)) throw error;
    data = undefined;
    // What was typed stays while the page asks again.
    if (error.status === 401 && main.querySelector(".login")) return;
    if (error.status === 401) return patch(main, [loginForm(error.message, entered)]);
    const title = error.status === 404 ? "Not found" : "The manager refused the request";
    patch(main, [h("section", { key: "refused", class: "view" }, h("h1", {}, title), empty(error.message, `HTTP ${error.status} ${error.code}. This page retries automatically.`, h("a", { class: "button", href: "#/" }, "Go to the overview")))]);
  }
}

async function follow() {
  const before = route;
  route = read();
  const moved = before?.path !== route.path;
  view = (route.parts[1] && { observers: observer, rollouts: rollout, batches: batch }[route.parts[0]]) || VIEWS[route.parts[0]];
  view ??= { name: "nowhere", title: "Not found", load: async () => ({}), draw: () => [h("h1", {}, "Not found"), empty("This page does not exist", "Check the address.", h("a", { class: "button", href: "#/" }, "Go to the overview"))] };
  if (moved) {
    data = undefined;
    document.title = view.title === "Overview" ? "Everwatch" : `${view.title} · Everwatch`;
    for (const link of document.querySelectorAll("#nav a")) {
      const here = link.hash.replace(/^#\/?/, "") === route.parts[0];
      here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    }
    if (before) { patch(main, [h("p", { class: "loading" }, "Loading…")]); main.focus({ preventScroll: true }); scrollTo(0, 0); }
  }
  try { await show(); } catch (error) {
    if (!(error instanceof Lost)) throw error;
    live.now();
  }
}

/** After a login or a logout: everything is read again. */
function entered() {
  greet();
  live.now();
}

function greet() {
  showUser(document.getElementById("user"), entered);
  get("/v1/version").then((it) => { document.getElementById("version").textContent = `Everwatch ${it.version}`; }, () => {});
}

const lostBar = document.getElementById("lost");
let standing = { lostAt: null };

function tell(it) {
  standing = it;
  const pulse = document.getElementById("pulse");
  pulse.dataset.state = it.lostAt !== null ? "lost" : it.streaming ? "live" : "polling";
  pulse.lastElementChild.textContent = it.lostAt !== null ? "Offline" : it.streaming ? "Live" : "Polling";
  document.body.classList.toggle("stale", it.lostAt !== null);
  // Written once: an alert that counts along would be read out each second.
  if (it.lostAt !== null && lostBar.hidden) {
    patch(lostBar, [h("strong", {}, "Connection to the manager lost."), h("span", { "aria-hidden": "true", id: "lost-for" }),
      h("span", {}, " The data on this page may be outdated; observers keep running. The console retries every second."),
      h("button", { type: "button", class: "button", onclick: () => live.now() }, "Try now")]);
  } else if (it.lostAt === null && !lostBar.hidden) toast("The manager is back.", "good");
  lostBar.hidden = it.lostAt === null;
}

const live = new Live(show, tell);

function theme(choice) {
  document.documentElement.dataset.theme = choice;
  document.getElementById("theme").textContent = `Theme: ${choice}`;
}
const THEMES = ["system", "light", "dark"];
theme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");
document.getElementById("theme").onclick = () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  theme(next);
};

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  const field = document.getElementById("search");
  field ? field.focus() : (location.hash = "#/observers");
});
document.querySelector(".skip").onclick = (event) => { event.preventDefault(); main.focus(); };
addEventListener("hashchange", follow);
setInterval(() => {
  tick();
  const since = document.getElementById("lost-for");
  if (since && standing.lostAt !== null) since.textContent = ` ${duration(Math.floor((Date.now() - standing.lostAt) / 1000) * 1000)} ago.`;
}, 1000);
greet();
follow().finally(() => live.now());
