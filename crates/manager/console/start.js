// The dialogs that start a rollout and create a batch.
import { call, get } from "./api.js";
import { askSent } from "./ask-sent.js";
import { asDuration, asName, asWhole } from "./create-check.js";
import { may, ownNamespace, readable } from "./session.js";
import { counted, number } from "./show.js";
import { fromYaml } from "./yaml.js";

const NAMED = 5;
const none = { items: [] };

const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** A map in YAML or JSON; the complaint is thrown. */
function mapOf(text) {
  const value = fromYaml(text);
  if (!isMap(value)) throw new Error("write a map, such as “grace: 30s”");
  return value;
}

/** The complaints of checks `[name, check]`, of what is typed. */
function complaintsOf(typed, checks) {
  const wrong = {};
  for (const [name, check] of checks) {
    const found = typed[name] ? check(typed[name]) : null;
    if (found) wrong[name] = found;
  }
  return wrong;
}

const asText = (read) => (text) => { try { read(text); return null; } catch (error) { return error.message; } };

/** Sends requests with a key that stays while the body does: a repeated request creates nothing twice. A page without TLS has no `crypto.randomUUID`. */
function once(path) {
  let last = null, key = null;
  return (body) => {
    const text = JSON.stringify(body);
    if (text !== last) key = [...crypto.getRandomValues(new Uint8Array(16))].map((it) => it.toString(16).padStart(2, "0")).join("");
    last = text;
    return call("POST", path, body, { "idempotency-key": key });
  };
}

async function choices() {
  const [kinds, pools, namespaces] = await Promise.all([readable("kinds:read", () => get("/v1/kinds"), none), readable("pools:read", () => get("/v1/pools"), none), readable("namespaces:read", () => get("/v1/namespaces"), none)]);
  const options = (any, { items }) => [["", any], ...items.map((it) => [it.name, it.name])];
  return { kinds: options("any kind", kinds), pools: options("any pool", pools), served: may("pools:read") ? pools.items.filter((it) => it.services > 0).map((it) => it.name) : null, namespaces: namespaces.items.map((it) => it.name) };
}

const given = (all) => Object.fromEntries(Object.entries(all).filter(([, value]) => value));

/** The observers that the selector matches now. */
async function matching({ labels, kind, pool, namespace, q }) {
  if (![labels, kind, pool, namespace, q].some(Boolean)) return "Choose observers: by labels, kind, pool or name.";
  const { items, total } = await get("/v1/observers", { selector: labels, kind, pool, namespace, q, limit: NAMED });
  if (total === 0) return "No observer matches.";
  const names = items.map((it) => it.name).join(", ");
  return `${total === 1 ? "1 observer matches" : `${counted(total, "observer")} match`}: ${names}${total > items.length ? ` and ${number(total - items.length)} more` : ""}`;
}

const ROLLOUT_CHECKS = [["name", asName], ["max_parallel", asWhole(1, 1000)], ["healthy_for", asDuration], ["timeout", asDuration], ["patch", asText(mapOf)]];

function wrongRollout(typed) {
  const wrong = complaintsOf(typed, ROLLOUT_CHECKS);
  if (!typed.patch) wrong.patch = "write what changes, such as “grace: 30s”";
  if (![typed.labels, typed.kind, typed.pool, typed.namespace, typed.q].some(Boolean)) wrong.labels = "choose observers: by labels, kind, pool or name";
  return wrong;
}

const SELECTS = { label_selector: "labels", labels: "labels", kind: "kind", pool: "pool", namespace: "namespace", q: "q" };

/** `[field, rest of the pointer]` */
function rolloutField(pointer) {
  const [, first, second] = pointer.split("/");
  if (first === "selector") return [SELECTS[second] ?? "labels"];
  return first === "patch" ? ["patch", pointer.slice("/patch".length)] : [first];
}

/** Asks for a rollout, starts it and opens its page. */
export async function startRollout() {
  const { kinds, pools, namespaces } = await choices(), post = once("/v1/rollouts");
  const made = await askSent({
    title: "New rollout", keeps: true, action: "Start rollout", check: wrongRollout, fieldOf: rolloutField, look: matching, lookAfter: "q",
    lines: ["Managers change the observers that match now, a few at a time."],
    send: (typed) => post({
      ...given({ name: typed.name, healthy_for: typed.healthy_for, timeout: typed.timeout }), ...(typed.max_parallel && { max_parallel: Number(typed.max_parallel) }), on_failure: typed.on_failure,
      selector: given({ label_selector: typed.labels, kind: typed.kind, pool: typed.pool, namespace: typed.namespace, q: typed.q }), patch: mapOf(typed.patch),
    }),
    fields: [
      { name: "labels", label: "Labels of the observers", placeholder: "team=prices, tier in (gold, silver)", hint: "comma-separated; all must match" },
      { name: "kind", label: "Kind", half: true, options: kinds }, { name: "pool", label: "Pool", half: true, options: pools },
      ...(namespaces.length > 1 ? [{ name: "namespace", label: "Namespace", half: true, options: [["", "all namespaces"], ...namespaces.map((it) => [it, it])] }] : []),
      { name: "q", half: true, label: "Part of the name", placeholder: "price-" },
      { name: "patch", label: "Patch", rows: 4, placeholder: "spec:\n  every: 10s", hint: "the fields of the definition to change, in YAML or JSON; null restores a default" },
      { name: "name", half: true, label: "Name of the rollout", placeholder: "generated" },
      { name: "max_parallel", half: true, label: "Maximum in progress", placeholder: "1", hint: "observers that are changed and not yet healthy" },
      { name: "healthy_for", half: true, label: "Healthy after", placeholder: "30s", hint: "how long a changed observer must run without an error" },
      { name: "timeout", half: true, label: "Timeout", placeholder: "10m", hint: "the rollout pauses if a changed observer is not healthy by then" },
      { name: "on_failure", half: true, label: "On failure", value: "pause", options: [["pause", "pause the rollout"], ["revert", "restore the former definitions"]] },
    ],
  });
  if (made) location.hash = `#/rollouts/${made.id}`;
}

/** The members of a batch: a list of maps in YAML or JSON. */
function membersOf(text) {
  const value = fromYaml(text);
  if (!Array.isArray(value) || value.length === 0 || !value.every(isMap)) throw new Error("write a list of maps, such as “- name: first”");
  return value;
}

const BATCH_CHECKS = [["name", asName], ["max_running", asWhole(1, 1000000)], ["defaults", asText(mapOf)], ["observers", asText(membersOf)]];

function wrongBatch(typed) {
  const wrong = complaintsOf(typed, BATCH_CHECKS);
  if (!typed.observers) wrong.observers = "write a list of observers, such as “- name: first”";
  return wrong;
}

/** A complaint about a member names its place, counted from 0 as in the API. */
function batchField(pointer) {
  const [, first] = pointer.split("/");
  return first === "observers" || first === "defaults" ? [first, pointer.slice(first.length + 1)] : [first];
}

/** Says how many members the batch has, and which of their pools are not `served`: have no service, as far as the user may know. */
const counting = ({ served }) => async ({ observers, defaults }) => {
  if (!observers) return "";
  try {
    const members = membersOf(observers), common = defaults ? mapOf(defaults).pool : undefined;
    const pools = new Set(members.map((it) => it.pool ?? common ?? "default").filter((it) => typeof it === "string" && served?.includes(it) === false));
    const unserved = pools.size ? ` No service of ${pools.size === 1 ? "pool" : "the pools"} ${[...pools].slice(0, NAMED).join(", ")} runs: until one does, the observers wait.` : "";
    return `The batch has ${counted(members.length, "observer")}.${unserved}`;
  } catch { return ""; }
};

/** Asks for a batch, creates it and opens its page. */
export async function createBatch() {
  const known = await choices(), { namespaces } = known, post = once("/v1/batches"), own = ownNamespace() ?? "default";
  const made = await askSent({
    title: "New batch", keeps: true, action: "Create batch", check: wrongBatch, fieldOf: batchField, look: counting(known), lookAfter: "observers",
    lines: ["The observers of a batch are created together, and the batch completes when each has ended."],
    send: (typed) => post({
      ...given({ name: typed.name, namespace: typed.namespace === own ? "" : typed.namespace }), ...(typed.max_running && { max_running: Number(typed.max_running) }), ...(typed.defaults && { defaults: mapOf(typed.defaults) }), observers: membersOf(typed.observers),
    }),
    fields: [
      { name: "name", half: true, label: "Name", placeholder: "generated" },
      ...(namespaces.length > 1 ? [{ name: "namespace", label: "Namespace", half: true, value: own, options: namespaces.map((it) => [it, it]) }] : []),
      { name: "max_running", half: true, label: "Maximum running", placeholder: "no limit", hint: "observers of the batch that run at once" },
      { name: "defaults", label: "Defaults", rows: 6, placeholder: "kind: exec\nspec:\n  argv: [/usr/bin/report]\nretry: {kind: intervals, delays: [10s]}", hint: "a definition in YAML or JSON" },
      { name: "observers", label: "Observers", rows: 6, placeholder: "- name: report-ada\n- name: report-bob\n  spec:\n    env: {USER_ID: \"2\"}", hint: "a list in YAML or JSON, at most 10,000; each is merged into the defaults" },
    ],
  });
  if (made) location.hash = `#/batches/${made.id}`;
}
