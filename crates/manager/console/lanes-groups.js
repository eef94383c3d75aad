// The failover timeline in groups: lanes of services of one pool, or of one value of a label, below a heading with their sum.
import { most, spread } from "./lanes-scale.js";

const KEYS_MAX = 20;
const NATURAL = { numeric: true };

/** For each name, its service that lives, or the one that lived last. */
function newest(services) {
  const all = new Map();
  for (const it of services) {
    const held = all.get(it.name);
    if (!held || (held.is_deleted && (!it.is_deleted || it.created_at > held.created_at))) all.set(it.name, it);
  }
  return all;
}

/** The choices of “Group by”: the pool, and the labels of the services. */
export function groupings(services) {
  const labels = new Set(services.flatMap((it) => Object.keys(it.labels)));
  return [["", "none"], ["pool", "pool"], ...[...labels].sort().slice(0, KEYS_MAX).map((it) => [`label:${it}`, `label ${it}`])];
}

/** The pool of a service, or the value of its label; nothing if the list of services does not have it. */
function groupOf(service, by) {
  if (!service) return null;
  return by === "pool" ? service.pool : service.labels[by.slice("label:".length)] ?? null;
}

/** The names of the collapsed groups, from the address. */
const folded = (params) => new Set((params.get("collapsed") ?? "").split(",").filter(Boolean).map((it) => { try { return decodeURIComponent(it); } catch { return it; } }));

export const byOf = (params, services) => {
  const by = params.get("group") ?? "";
  return groupings(services).some(([value]) => value === by) ? by : "";
};

/** The parameters of the address after one group was collapsed or opened. */
export function toggled(params, key) {
  const all = folded(params);
  if (!all.delete(key)) all.add(key);
  return { collapsed: [...all].map(encodeURIComponent).join(",") };
}

/** The group of each lane, by name of the service. */
export function groupNames(lanes, services, by) {
  const known = newest(services);
  return new Map(lanes.map((it) => [it.service, groupOf(known.get(it.service), by)]));
}

/**
 * The rows of the chart: of each group its heading, then those of its lanes that `shown` has, unless it is collapsed. A heading holds the
 * sum of all lanes of its group, and stands for the lanes that have no row of their own.
 */
export function groupedRows(picture, shown, { services, by, params, at }) {
  const names = groupNames(picture.lanes, services, by), closed = folded(params);
  const rest = by === "pool" ? "unknown pool" : `no ${by.slice("label:".length)}`;
  const groups = Map.groupBy(picture.lanes, (it) => names.get(it.service) ?? "");
  const slots = (lanes) => services.filter((it) => !it.is_deleted && lanes.some((one) => one.service === it.name)).reduce((sum, it) => sum + it.capacity, 0);
  // Services without the label come last.
  const sorted = [...groups].sort(([a], [b]) => (a === "") - (b === "") || a.localeCompare(b, "en", NATURAL));
  return sorted.flatMap(([key, lanes]) => {
    const isClosed = closed.has(key === "" ? "-" : key);
    const below = isClosed ? [] : shown.filter((it) => lanes.includes(it));
    const hidden = lanes.filter((it) => !below.includes(it)).map((it) => it.service);
    const heading = { group: key === "" ? "-" : key, service: key === "" ? rest : key, isClosed, services: lanes.length, below: below.length, lives: lanes.some((it) => it.lives), names: new Set(hidden), members: new Set(lanes.map((it) => it.service)),
      held: lanes.reduce((sum, it) => sum + it.held, 0), capacity: slots(lanes), segments: spread(lanes, at, picture.columns) };
    return [heading, ...below];
  });
}

/** The height of a lane that counts as full. */
export const fullOf = (heading) => Math.max(heading.capacity, most(heading, "held_max"), 1);
