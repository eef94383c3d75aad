// Problems: pools whose observers wait because no service runs, and observers that restart after errors or have failed, each with the cause and the next step.
import { get } from "./api.js";
import { h } from "./dom.js";
import { readable } from "./session.js";
import { besideError, counted, number, observerLink, pill, standing, time, timed } from "./show.js";

const SHOWN = 6;

/** Observers, those that failed first. */
export async function problems() {
  const none = { items: [], total: 0 };
  const [failed, restarting] = await Promise.all([
    readable("observers:read", () => get("/v1/observers", { status: "Failed", limit: SHOWN }), none), readable("observers:read", () => get("/v1/observers", { health: "restarting", limit: SHOWN }), none)]);
  return { items: [...failed.items, ...restarting.items].slice(0, SHOWN), total: failed.total + restarting.total };
}

/** The error of the observer's code as it is, or the reason of its health. */
const cause = (it) => it.last_error || timed(it.reason);
/** The next step; nothing if the cause says it. */
function next(it) {
  if (it.status === "Failed") return "stays failed until you retry, edit or delete it";
  if (!it.last_error) return null;
  return besideError(it) ?? "starts again according to its retry policy";
}

/** How many observers of the pool are to run now. */
export const wantedIn = ({ observers }) => (observers.Created ?? 0) + (observers.Processing ?? 0);
/** The pools whose observers cannot run because none of their services does. */
export const withoutService = (pools) => pools.filter((it) => it.services === 0 && wantedIn(it) > 0);

const poolRow = (it) => h("li", { key: `pool-${it.name}` },
  h("span", { class: "mark", "data-status": "waiting" }),
  h("div", {}, h("span", { class: "title" }, h("a", { href: `#/pools/${encodeURIComponent(it.name)}` }, `Pool ${it.name}`)),
    h("p", { class: "said" }, `no service: ${counted(wantedIn(it), "observer")} ${wantedIn(it) === 1 ? "waits" : "wait"} · start a service of this pool, or give ${wantedIn(it) === 1 ? "the observer" : "the observers"} another pool`)),
  h("span", { class: "side-of" }, h("span", { class: "status pill", "data-status": "waiting" }, "No service")));

const observerRow = (it) => h("li", { key: it.id },
  h("span", { class: "mark", "data-status": standing(it) }),
  h("div", {}, h("span", { class: "title" }, observerLink(it)), h("p", { class: "said" }, h("span", { class: "machine" }, cause(it)), next(it) ? [" · ", timed(next(it))] : null)),
  h("span", { class: "side-of" }, pill(it), time(it.status === "Failed" ? it.modified_at : it.started_at ?? it.created_at)));

export function problemsPanel({ items, total }, pools) {
  const bare = withoutService(pools), all = bare.length + total;
  // Observers keep a part of the list.
  const shownPools = bare.slice(0, items.length ? SHOWN / 2 : SHOWN), shown = items.slice(0, SHOWN - shownPools.length), count = shownPools.length + shown.length;
  return h("section", { class: "panel", key: "problems" }, h("header", {}, h("h2", {}, "Problems"), h("span", { class: "fine end" }, number(all))),
    all === 0 ? h("p", { class: "fine" }, "No observer restarts after errors, none has failed, and each pool with observers has a service.") : h("ul", { class: "incident-list" }, shownPools.map(poolRow), shown.map(observerRow)),
    all > count ? h("p", { class: "fine" }, `${number(count)} of ${number(all)}. `, bare.length > shownPools.length ? [h("a", { href: "#/pools" }, "Pools"), ", "] : null, h("a", { href: "#/observers?status=Failed" }, "failed"), ", ", h("a", { href: "#/observers?health=restarting" }, "restarting")) : null);
}
