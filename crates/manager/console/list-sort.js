// The order of the list of observers. Managers sort by name and time of creation; by other columns, the console sorts one answer of them.
import { get } from "./api.js";
import { standing } from "./show.js";

/** How many observers an answer has at most: no more can be sorted here. */
export const SORTED_MAX = 1000;
/** What needs attention comes first. */
const STANDINGS = ["Failed", "restarting", "waiting", "moving", "stopping", "running", "OnDeleting", "Scheduled", "Paused", "Completed"];
const rank = (it) => { const at = STANDINGS.indexOf(standing(it)); return at < 0 ? STANDINGS.length : at; };

const OF_MANAGERS = ["name", "created_at"];
/** What each other column is sorted by. */
const OWN = {
  health: rank, kind: (it) => it.kind, namespace: (it) => it.namespace, pool: (it) => it.pool, priority: (it) => it.priority,
  service: (it) => it.service?.name, restarts: (it) => it.restarts, started: (it) => it.started_at,
};

function compare(a, b) {
  return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
}

/** Sorted by the value; what has none comes last in either direction. */
function ordered(items, valueOf, isDescending) {
  const by = (a, b) => {
    const [left, right] = [valueOf(a) ?? null, valueOf(b) ?? null];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return isDescending ? compare(right, left) : compare(left, right);
  };
  return items.toSorted(by);
}

/**
 * The page that the address names, of `size` observers. `isOwn`: the console has sorted it, so that the number of the page finds it, not a cursor; `at` is that
 * number, or the last one if there are fewer pages. `isPart`: not all
 * observers that match were sorted.
 */
export async function sortedPage(filter, params, size) {
  const sort = params.get("sort") ?? "name", field = sort.replace("-", "");
  if (!Object.hasOwn(OWN, field)) return get("/v1/observers", { ...filter, sort: OF_MANAGERS.includes(field) ? sort : "name", cursor: params.get("cursor"), limit: size });
  const read = await get("/v1/observers", { ...filter, sort: "name", limit: SORTED_MAX });
  const sorted = ordered(read.items, OWN[field], sort.startsWith("-")), last = Math.max(Math.ceil(sorted.length / size), 1);
  const at = Math.min(Math.max(Number(params.get("page")) || 1, 1), last), from = (at - 1) * size;
  return { items: sorted.slice(from, from + size), total: read.total, next_cursor: from + size < sorted.length ? "next" : null, isOwn: true, at, isPart: read.total > sorted.length };
}
