// Problems: pools whose observers wait because no service runs or all slots are in use, drains that wait, and observers that restart after errors or have failed, each with the cause and the next step.
import { get } from "./api.js";
import { begun } from "./doctor.js";
import { h } from "./dom.js";
import { noteFindings } from "./nav.js";
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

/** Whether the observers of the pool need more slots than there are. */
const lacksSlots = (it) => it.needed > it.held + it.free;
/** How many observers wait for a slot: those in the backlog, and, if slots are missing, those that a service has handed over. Others wait for their time, or for a place of a limit. */
export const waitingIn = (it) => (lacksSlots(it) ? Math.max(it.waiting, Math.min((it.health.waiting ?? 0) + (it.health.moving ?? 0), it.needed - it.held - it.free)) : it.waiting);
/** The pools that lack slots: all are in use while observers wait for one. */
export const full = (pools) => pools.filter((it) => it.services > 0 && !it.paused && it.free === 0 && waitingIn(it) > 0);

/** What the pool lacks for observers that wait, as a sentence; nothing if it lacks nothing. */
export function lackOf(it) {
  if (it.services === 0) return `Pool ${it.name} has no service.`;
  if (!lacksSlots(it) || it.free > 0) return null;
  return it.active > 0 ? `Pool ${it.name} is full: all ${counted(it.capacity, "slot")} are in use.` : `No service of pool ${it.name} takes observers now.`;
}

const wait = (count) => `${counted(count, "observer")} ${count === 1 ? "waits" : "wait"}`;
const poolRow = (it, { status, word, said }) => h("li", { key: `pool-${it.name}` },
  h("span", { class: "mark", "data-status": status }),
  h("div", {}, h("span", { class: "title" }, h("a", { href: `#/pools/${encodeURIComponent(it.name)}` }, `Pool ${it.name}`)), h("p", { class: "said" }, said)),
  h("span", { class: "side-of" }, h("span", { class: "status pill", "data-status": status }, word)));
const bareRow = (it) => poolRow(it, { status: "Failed", word: "No service", said: `no service: ${wait(wantedIn(it))} · start a service of this pool, or give ${wantedIn(it) === 1 ? "the observer" : "the observers"} another pool` });
/** A cordoned service of the pool with free slots, the one with the most. */
const idleIn = (it, services) => services.filter((one) => one.pool === it.name && one.state === "cordoned" && one.capacity > one.held).sort((a, b) => b.capacity - b.held - (a.capacity - a.held))[0];
function fullRow(it, services) {
  const idle = idleIn(it, services), cure = idle ? `${idle.name} is cordoned with ${counted(idle.capacity - idle.held, "free slot")}: uncordon it, or start another service` : null;
  return poolRow(it, it.active > 0
    ? { status: "restarting", word: "Full", said: `all ${counted(it.capacity, "slot")} in use: ${wait(waitingIn(it))} · ${cure ?? "start another service of this pool, or raise the capacity of one"}` }
    : { status: "Failed", word: "No active service", said: `no service takes observers, because all are cordoned, draining or silent: ${wait(waitingIn(it))} · ${cure ?? "uncordon a service, or start another one"}` });
}

/** The services whose drain cannot go on, while another service of the pool takes observers: otherwise, the row of the pool says it. */
const stuck = (services, pools) => services.filter((it) => !it.is_deleted && it.drain?.waits && pools.some((pool) => pool.name === it.pool && pool.active > 0));
const stuckRow = (it) => h("li", { key: `drain-${it.id}` },
  h("span", { class: "mark", "data-status": "restarting" }),
  h("div", {}, h("span", { class: "title" }, h("a", { href: `#/services/${encodeURIComponent(it.name)}` }, `Service ${it.name}`)), h("p", { class: "said" }, `its drain waits, with ${number(it.drain.moved)} of ${counted(it.drain.of, "observer")} handed over: ${it.drain.waits}`)),
  h("span", { class: "side-of" }, h("span", { class: "status pill", "data-status": "restarting" }, "Draining")));

/** Whether the doctor says that a person killed it, so that it starts again by itself. */
const startsAgain = ({ name }) => findings.some((it) => it.code === "service-killed" && it.subject.split(/[ ,]+/).includes(name));
function lostRow(it) {
  const [status, title, said] = startsAgain(it) ? ["restarting", "Killed", "was killed on purpose, and starts again in a few seconds"] : ["Failed", "Lost", "lost, and has not come back"];
  return h("li", { key: `lost-${it.name}` },
    h("span", { class: "mark", "data-status": status }),
    h("div", {}, h("span", { class: "title" }, h("a", { href: `#/services/${encodeURIComponent(it.name)}` }, `Service ${it.name}`)), h("p", { class: "said" }, `${said}: its observers continue on other services of its pool while these have room`)),
    h("span", { class: "side-of" }, h("span", { class: "status pill", "data-status": status }, title), time(it.modified_at)));
}

const observerRow = (it) => h("li", { key: it.id },
  h("span", { class: "mark", "data-status": standing(it) }),
  h("div", {}, h("span", { class: "title" }, observerLink(it)), h("p", { class: "said" }, h("span", { class: "machine" }, cause(it)), next(it) ? [" · ", timed(next(it))] : null)),
  h("span", { class: "side-of" }, pill(it), time(it.status === "Failed" ? it.modified_at : it.started_at ?? it.created_at)));

/** How long findings are shown before the doctor is asked again, if nothing else has changed. */
const DOCTOR_MS = 5000;
/** The notes of the doctor that the overview shows. */
const SHOWN_NOTES = new Set(["service-killed", "uneven-pool"]);
let findings = [], findingsOf = null, askedAt = -Infinity;

/** The findings that need an action, and those of `SHOWN_NOTES`, as the doctor last said. It asks the broker, which may take long: the page does not wait for it. `state`: what the findings depend on, as a text. */
export function findingsFor(state) {
  if (state !== findingsOf || performance.now() - askedAt >= DOCTOR_MS) {
    [findingsOf, askedAt] = [state, performance.now()];
    readable("status:read", () => get("/v1/doctor"), { items: [] }).then(({ items }) => {
      const before = JSON.stringify(findings);
      findings = items.filter((it) => it.severity !== "info" || SHOWN_NOTES.has(it.code));
      if (JSON.stringify(findings) !== before) dispatchEvent(new Event("findings"));
      noteFindings(items);
    }, () => { findingsOf = null; });
  }
  return findings;
}

const OF_POOLS = new Set(["pool-full", "no-service", "no-active-service"]), OF_LOSSES = new Set(["service-lost", "service-frozen", "service-killed"]), OF_OBSERVERS = new Set(["crash-loop", "failed"]);
/** What a finding says, without the subject beside it. */
const saidOf = ({ subject, what }) => (what.startsWith(`${subject} `) ? begun(what.slice(subject.length + 1)) : what);

const findingRow = (it) => h("li", { key: `finding-${it.code}-${it.subject}` },
  h("span", { class: "mark", "data-status": it.severity === "critical" ? "Failed" : "restarting" }),
  h("div", {}, h("span", { class: "title" }, h("a", { href: "#/doctor" }, begun(it.subject))), h("p", { class: "said" }, timed(saidOf(it)))),
  h("span", { class: "side-of" }, h("span", { class: "status pill", "data-status": it.severity === "critical" ? "Failed" : "restarting" }, it.severity === "critical" ? "Critical" : "Warning")));

export function problemsPanel({ items, total }, { pools, services, missing, findings }) {
  const bare = withoutService(pools), filled = full(pools), drains = stuck(services, pools), open = findings.filter((it) => it.severity !== "info");
  const subjects = new Set([...bare, ...filled].map((it) => `pool ${it.name}`)), drained = new Set(drains.map((it) => `service ${it.name}`));
  /** Whether another row shows it. */
  const isShown = ({ code, subject }) => (OF_POOLS.has(code) ? subjects.has(subject) : OF_LOSSES.has(code) ? missing.length > 0 : OF_OBSERVERS.has(code) ? total > 0 : code === "drain-waits" && drained.has(subject));
  const rows = [...bare.map(bareRow), ...filled.map((it) => fullRow(it, services)), ...missing.map(lostRow), ...drains.map(stuckRow), ...open.filter((it) => !isShown(it)).map(findingRow)], all = rows.length + total;
  // Observers keep a part of the list.
  const others = rows.slice(0, items.length ? SHOWN / 2 : SHOWN), shown = items.slice(0, SHOWN - others.length), count = others.length + shown.length;
  return h("section", { class: "panel", key: "problems" }, h("header", {}, h("h2", {}, "Problems"), h("span", { class: "fine end" }, number(all))),
    all === 0 ? h("p", { class: "fine" }, "No observer restarts after errors, none has failed, no pool lacks slots or services, every service that was lost in the last 10 minutes is back, and no drain is stuck.") : h("ul", { class: "incident-list" }, others, shown.map(observerRow)),
    open.length ? h("p", { class: "fine" }, h("a", { href: "#/doctor" }, "The doctor"), ` says what to do about ${counted(open.length, "problem")}.`) : null,
    all > count ? h("p", { class: "fine" }, `${number(count)} of ${number(all)}. `, rows.length > others.length ? [h("a", { href: "#/pools" }, "Pools"), ", ", h("a", { href: "#/services" }, "services"), ", "] : null, h("a", { href: "#/observers?status=Failed" }, "failed"), ", ", h("a", { href: "#/observers?health=restarting" }, "restarting")) : null);
}
