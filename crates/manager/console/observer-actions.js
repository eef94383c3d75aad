// What users do with observers: which actions there are, which of them an observer permits, and what is asked before one is sent.
import { call, forEach, get } from "./api.js";
import { askForm } from "./ask-sent.js";
import { confirm, toast } from "./ask.js";
import { may, readable } from "./session.js";
import { counted, number } from "./show.js";

export const ACTIONS = {
  pause: { word: "Pause" },
  resume: { word: "Resume" },
  restart: { word: "Restart" },
  retry: { word: "Retry" },
  trigger: { word: "Execute now" },
  move: { word: "Move" },
  delete: { word: "Delete", danger: true },
};

/** Whether the session permits the action. */
export const mayDo = (name) => may(name === "delete" ? "observers:delete" : "observers:operate");

/** The actions that its status allows and the session permits. */
export function possible({ status: now, schedule }) {
  const by = { Scheduled: [...(schedule ? ["trigger"] : []), "pause", "delete"], Created: ["pause", "move", "delete"], Processing: ["restart", "pause", "move", "delete"], Paused: ["resume", "delete"], Failed: [...(schedule ? ["trigger"] : []), "retry", "restart", "delete"], Completed: ["restart", "delete"] };
  return (by[now] ?? []).filter(mayDo);
}

/** Sends one action for one observer. */
function act(name, id, body) {
  const path = `/v1/observers/${encodeURIComponent(id)}`;
  return name === "delete" ? call("DELETE", path) : call("POST", `${path}/${name}`, body);
}

/** Where to move observers: to a pool, or one observer to a service of its pool; services without room for it cannot be chosen. */
async function askTarget(title, lines, items) {
  const none = { items: [] }, { pool, service: now, weight = 1 } = items[0];
  const read = (verb, path, more) => readable(verb, () => get(path, more), none).catch(() => none);
  const [pools, services] = await Promise.all([read("pools:read", "/v1/pools"), read("services:read", "/v1/services", { limit: 1000 })]);
  const takes = (it) => it.pool === pool && it.kinds.includes(items[0].kind) && it.id !== now?.id && ["active", "standby"].includes(it.state);
  const single = items.length === 1, able = services.items.filter(takes), hasRoom = (it) => it.free >= weight;
  const fields = [{ name: "pool", label: "Pool", options: [["", single ? `${pool} (its pool)` : "the pool of each observer"], ...pools.items.filter((it) => !single || it.name !== pool).map((it) => [it.name, `${it.name}: ${it.services === 0 ? "no service" : counted(it.free, "free slot")}`, it.services === 0])] }];
  if (single && now) fields.push({ name: "service", label: "Service", options: [["", "any other service"], ...able.map((it) => [it.name, `${it.name}: ${counted(it.free, "free slot")}`, !hasRoom(it)])], hint: `a service of pool ${pool}` });
  const full = single && now && may("services:read") && !able.some(hasRoom);
  const check = (it) => (!it.pool && single && !now ? "Choose another pool: it waits in this one." : it.pool && it.service ? "Choose a pool or a service: the manager does not take both." : full && !it.pool ? `No other service of pool ${pool} has a free slot for it: it would start on ${now?.name ?? "its service"} again. Choose another pool, or free a slot.` : null);
  const answer = await askForm({ title, lines: full ? [...lines, `No other service of pool ${pool} has a free slot for it.`] : lines, fields, action: single ? `Move ${items[0].name}` : `Move ${number(items.length)}`, check });
  return answer && Object.fromEntries(Object.entries(answer).filter(([, value]) => value));
}

/** What an action does, for one observer and for several. */
const EXPLAINED = {
  pause: ["Its run ends, and it does not run until you resume it.", "Their runs end, and they do not run until you resume them."],
  retry: ["It starts again.", "They start again."],
  trigger: ["It executes once, as soon as it has a slot. Its schedule does not change.", "Each executes once, as soon as it has a slot. Their schedules do not change."],
  delete: ["Its run stops and the observer is deleted. This cannot be undone.", "Their runs stop and the observers are deleted. This cannot be undone."],
  move: ["It moves to another service, or to the pool that you choose.", "Each observer moves to another service, or to the pool that you choose."],
  restart: ["Its run ends, and it starts again.", "Their runs end, and they start again."],
};

/** Asks with the name or the count, then acts on each; answers whether it was done. */
export async function actOn(name, items, context, told) {
  const { word: verb, danger } = ACTIONS[name];
  const single = items.length === 1, count = single ? items[0].name : counted(items.length, "observer");
  const names = items.slice(0, 5).map((it) => it.name).join(", ") + (items.length > 5 ? ` and ${number(items.length - 5)} more` : "");
  const title = `${verb} ${count}?`, lines = [single ? null : names, EXPLAINED[name]?.[single ? 0 : 1]].filter(Boolean);
  // One observer that runs again harms nothing: there is nothing to ask.
  const answer = name === "resume" && single ? true : name === "move" ? await askTarget(title, lines, items) : await confirm({ title, lines, action: `${verb} ${single ? items[0].name : number(items.length)}`, danger: Boolean(danger) });
  if (!answer) return false;
  const body = name === "move" ? answer : undefined;
  const wrong = await forEach(items, (it) => act(name, it.id, body), told);
  if (wrong.length === 0) toast(`${name === "trigger" ? "Execution" : verb} requested for ${count}.`, "good");
  else toast(`${single ? count : `${number(wrong.length)} of ${count}: ${wrong[0].item.name}`}: ${wrong[0].error.message}`);
  context.refresh();
  return wrong.length === 0;
}
