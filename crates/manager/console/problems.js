// Problems: observers that restart after errors or have failed, each with the cause and the next step.
import { get } from "./api.js";
import { h } from "./dom.js";
import { readable } from "./session.js";
import { besideError, number, observerLink, pill, standing, time, timed } from "./show.js";

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

export const problemsPanel = ({ items, total }) => h("section", { class: "panel", key: "problems" },
  h("header", {}, h("h2", {}, "Problems"), h("span", { class: "fine end" }, number(total))),
  items.length === 0 ? h("p", { class: "fine" }, "No observer restarts after errors, and none has failed.") : h("ul", { class: "incident-list" }, items.map((it) => h("li", { key: it.id },
    h("span", { class: "mark", "data-status": standing(it) }),
    h("div", {}, h("span", { class: "title" }, observerLink(it)), h("p", { class: "said" }, h("span", { class: "machine" }, cause(it)), next(it) ? [" · ", timed(next(it))] : null)),
    h("span", { class: "side-of" }, pill(it), time(it.status === "Failed" ? it.modified_at : it.started_at ?? it.created_at))))),
  total > items.length ? h("p", { class: "fine" }, `${number(items.length)} of ${number(total)}. `, h("a", { href: "#/observers?status=Failed" }, "Failed"), ", ", h("a", { href: "#/observers?health=restarting" }, "restarting")) : null);
