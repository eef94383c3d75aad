// The values of the form for a new observer: the definition that they make, and the values that show a definition.
import { ordered } from "./definition.js";
import { collect, fields, fits, typedOf } from "./schema.js";

const WHOLE = [{ name: "spec", shape: "json", required: false, about: "this kind has no schema" }];
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
export const CLEAN = () => ({ name: "", kind: null, namespace: "", pool: "", retry: "", first: "", longest: "", reset: "", every: "", attempts: "", delays: "", grace: "", labels: "", queue: false, forbid: false, priority: "", weight: "", limits: "", start: "", finish: "", within: "", timeout: "", schedule: "", running: "skip", windows: "", zone: ZONE, spec: {}, from: "", wrong: {}, sending: false });

/** The fields of the spec of a kind; `isWhole`: one field of JSON, because the kind has no schema. */
export function membersOf(kind) {
  const described = fields(kind?.schema);
  return { members: described ?? WHOLE, isWhole: described === null };
}

/** The retry policy, if the form names one. */
function retryOf({ retry, first, longest, reset, every, attempts, delays }) {
  const given = (name, text) => (text.trim() ? { [name]: name === "attempts" ? numbered(text.trim()) : text.trim() } : {});
  const by = {
    exponential: () => ({ ...given("first", first), ...given("max", longest), ...given("reset_after", reset), ...given("attempts", attempts) }),
    fixed: () => ({ ...given("every", every), ...given("attempts", attempts) }),
    intervals: () => ({ delays: delays.split(",").map((it) => it.trim()).filter(Boolean) }),
  };
  return Object.hasOwn(by, retry) ? { kind: retry, ...by[retry]() } : null;
}

/** The definition that the form makes; puts a complaint into `wrong` for each field that cannot be read. */
export function body(draft, members, isWhole, wrong) {
  const spec = collect(members, draft.spec, wrong), retry = retryOf(draft);
  const typed = draft.labels.split(/[,\n]/).map((it) => it.trim()).filter(Boolean), unreadable = typed.find((it) => it.indexOf("=") < 1);
  if (unreadable) wrong["/labels"] = `“${unreadable}” is not key=value`;
  const labels = typed.filter((it) => it.indexOf("=") > 0).map((it) => [it.slice(0, it.indexOf("=")), it.slice(it.indexOf("=") + 1)]);
  return {
    ...(draft.name.trim() && { name: draft.name.trim() }), kind: draft.kind, spec: isWhole ? spec.spec ?? {} : spec,
    ...(draft.namespace && { namespace: draft.namespace }), ...(draft.pool && { pool: draft.pool }), ...(retry && { retry }), ...(draft.grace.trim() && { grace: draft.grace.trim() }), ...(labels.length && { labels: Object.fromEntries(labels) }),
    ...(draft.priority.trim() && { priority: numbered(draft.priority.trim()) }), ...(draft.weight.trim() && { weight: numbered(draft.weight.trim()) }), ...(draft.limits.trim() && { limits: draft.limits.split(/[\s,]+/).filter(Boolean) }), ...(draft.timeout.trim() && { attempt_timeout: draft.timeout.trim() }),
    ...(draft.within.trim() && { start_within: draft.within.trim() }),
    ...(draft.schedule.trim() && { schedule: { cron: draft.schedule.trim(), ...(draft.zone.trim() && { time_zone: draft.zone.trim() }), if_running: draft.running } }),
    ...(draft.windows.trim() && { windows: { time_zone: draft.zone.trim() || "UTC", open: draft.windows.split(/[;\n]/).map((it) => it.trim()).filter(Boolean).map((it) => opening(it, wrong)) } }),
    ...(draft.start && { start_at: new Date(draft.start).toISOString() }), ...(draft.finish && { finish_at: new Date(draft.finish).toISOString() }),
    ...(draft.queue && { on_full: "queue" }), ...(draft.forbid && { overlap: "forbid" }),
  };
}

/** One window, as in “mon-fri 09:30-16:00”. */
function opening(text, wrong) {
  const parts = /^(?:(\S+)\s+)?(\d\d:\d\d)-(\d\d:\d\d)$/.exec(text);
  if (!parts) { wrong["/windows"] = `“${text}” is not a window: write days and two times, as in mon-fri 09:30-16:00`; return {}; }
  return { ...(parts[1] && { days: parts[1] }), from: parts[2], to: parts[3] };
}

/** What the manager can judge: a text that is no number is sent as it is. */
const numbered = (text) => Number.isNaN(Number(text)) ? text : Number(text);

/** The time in the time zone of the browser, as its field shows it. */
function localTime(at) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "" : new Date(time.getTime() - time.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

const text = (value) => (value === undefined || value === null || typeof value === "object" ? "" : String(value));

const retryValues = ({ kind, first, max, reset_after: reset, every, attempts, delays }) => ({ retry: text(kind), first: text(first), longest: text(max), reset: text(reset), every: text(every), attempts: text(attempts), delays: [delays ?? []].flat().join(", ") });

/** The values of the form that show a definition as far as the form can. */
function valuesOf(it, kind) {
  const { members, isWhole } = membersOf(kind);
  const given = isWhole ? { spec: it.spec } : it.spec ?? {};
  const spec = Object.fromEntries(members.filter((one) => given[one.name] !== undefined && fits(one, given[one.name])).map((one) => [one.name, typedOf(one, given[one.name])]));
  const windows = (it.windows?.open ?? []).map(({ days, from, to }) => `${days ? `${days} ` : ""}${from}-${to}`);
  return { ...CLEAN(), spec, name: text(it.name), kind: kind?.name ?? null, namespace: text(it.namespace), pool: text(it.pool), ...retryValues(it.retry ?? {}), grace: text(it.grace), labels: Object.entries(it.labels ?? {}).filter((one) => one.every((part) => !/[,\n]/.test(part))).map(([name, value]) => `${name}=${value}`).join(", "),
    queue: it.on_full === "queue", forbid: it.overlap === "forbid", priority: text(it.priority), weight: text(it.weight), limits: [it.limits ?? []].flat().join(", "),
    start: localTime(it.start_at ?? ""), finish: localTime(it.finish_at ?? ""), within: text(it.start_within), timeout: text(it.attempt_timeout),
    schedule: text(it.schedule?.cron), running: text(it.schedule?.if_running) || "skip", windows: windows.join("; "), zone: it.schedule || it.windows ? text(it.schedule?.time_zone ?? it.windows?.time_zone) || "UTC" : ZONE };
}

/** The values of members that a definition omits. */
export const DEFAULTS = { on_full: "reject", overlap: "allow", namespace: "default", pool: "default", priority: 0, weight: 1, grace: "10s" };

/** A definition in which members with their defaults, and times in other forms, do not differ. */
function plain(definition) {
  const it = Object.fromEntries(Object.entries(definition).filter(([name, value]) => value !== DEFAULTS[name]));
  for (const name of ["start_at", "finish_at"]) if (it[name] !== undefined) it[name] = Date.parse(it[name]);
  for (const name of ["labels", "limits"]) if (it[name] && Object.keys(it[name]).length === 0) delete it[name];
  if (it.schedule) it.schedule = { if_running: "skip", catch_up: "1h", jitter: "0s", time_zone: "UTC", ...it.schedule };
  return ordered({ spec: {}, ...it });
}

/** `definition` with what a form has made: members that are equal, and those of `hidden`, stay as they are; so do the members of the spec that are not among `members`. */
export function mergedInto(definition, made, { hidden, members }) {
  const rest = members.length ? Object.fromEntries(Object.entries(definition.spec ?? {}).filter(([name]) => !members.some((it) => it.name === name))) : {};
  const whole = { ...made, spec: { ...rest, ...made.spec } }, before = plain(definition), after = plain(whole);
  const stays = (name) => hidden.includes(name) || ["name", "namespace", "kind"].includes(name) || JSON.stringify(before[name]) === JSON.stringify(after[name]);
  const names = [...new Set([...Object.keys(definition), ...Object.keys(whole)])];
  const chosen = names.map((name) => [name, stays(name) ? definition[name] : whole[name]]).filter(([, value]) => value !== undefined);
  return ordered(Object.fromEntries(chosen));
}

/** The values of the form that show a definition, and the members of the definition that they do not show. */
export function formOf(definition, kinds) {
  const kind = kinds.find((it) => it.name === definition.kind);
  const { members, isWhole } = membersOf(kind);
  const unread = Object.keys(definition);
  try {
    const values = valuesOf(definition, kind);
    const before = plain(definition), after = plain(body(values, members, isWhole, {}));
    return { values, lost: unread.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name])) };
  } catch {
    return { values: CLEAN(), lost: unread };
  }
}
