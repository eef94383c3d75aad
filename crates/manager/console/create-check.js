// The complaints about the form for a new observer that need no manager, all at once, each at its field.

/** The units that managers read, besides weeks with their long names and parts of milliseconds. */
const UNIT = "(?:ns|nsecs?|nanos?|nanoseconds?|[uµμ]s|[uµμ]secs?|micros?|microseconds?|ms|msecs?|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)";
/** Numbers with units; managers also read `01:30:00` and the notation of ISO 8601. */
const DURATION = new RegExp(`^(?:\\+?(?:\\s*\\d+(?:[.,]\\d+)?\\s*${UNIT},?(?![A-Za-z]))+|\\d+:\\d\\d:\\d\\d(?:[.,]\\d+)?|P(?=.*\\d)[\\dWDTHMS.,]+)$`);
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export const asDuration = (text) => (DURATION.test(text.trim()) ? null : `“${text.trim()}” is not a duration: write it like 500ms, 30s, 1h 30m or 30d`);

const MS = [[/^(?:ms|milli)/, 1], [/^n/, 1e-6], [/^(?:[uµμ]|micro)/, 1e-3], [/^s/, 1000], [/^m/, 60000], [/^h/, 3600000], [/^d/, 86400000], [/^w/, 604800000]];
/** The duration in milliseconds; null in the notation of ISO 8601, which the manager judges. */
function millis(text) {
  const clock = /^(\d+):(\d\d):(\d\d(?:[.,]\d+)?)$/.exec(text.trim()), amount = (it) => Number(it.replace(",", "."));
  if (clock) return ((Number(clock[1]) * 60 + Number(clock[2])) * 60 + amount(clock[3])) * 1000;
  const parts = [...text.matchAll(/(\d+(?:[.,]\d+)?)\s*([a-zµμ]+)/g)];
  return /^\s*P/.test(text) || parts.length === 0 ? null : parts.reduce((sum, [, count, unit]) => sum + amount(count) * MS.find(([it]) => it.test(unit))[1], 0);
}

/** A duration within these limits, which are durations, too. */
const asBetween = (least, most) => (text) => {
  const ms = asDuration(text) === null ? millis(text) : null;
  if (ms === null) return asDuration(text);
  if (least && ms < millis(least)) return `“${text.trim()}” is less than ${least}`;
  return most && ms > millis(most) ? `“${text.trim()}” is more than ${most}` : null;
};
const YEAR = "365d";

export const asWhole = (least, most) => (text) => (/^[-+]?\d+$/.test(text) && Number(text) >= least && Number(text) <= most ? null : `“${text}” is not a whole number ${most === Infinity ? `of ${least} or more` : `from ${least} to ${most}`}`);
export const asName = (text) => (NAME.test(text) ? null : `“${text}” is not a name: 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit`);
const inList = (text, by) => text.split(by).map((it) => it.trim()).filter(Boolean);
const LIMITS = 8, DELAYS = 100;

function asKeys(text) {
  const keys = inList(text, /[\s,]+/), twice = keys.find((it, at) => keys.indexOf(it) < at);
  const wrong = keys.find((it) => !NAME.test(it) && !it.includes(":"));
  if (wrong) return `“${wrong}” is not a key: 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit`;
  return twice ? `“${twice}” occurs twice` : keys.length > LIMITS ? `${keys.length} keys are more than ${LIMITS}` : null;
}

function asDelays(text) {
  const delays = inList(text, ",");
  return delays.map(asBetween(null, YEAR)).find(Boolean) ?? (delays.length > DELAYS ? `${delays.length} delays are more than ${DELAYS}` : null);
}

function asLabels(text) {
  const keys = inList(text, /[,\n]/).filter((it) => it.indexOf("=") > 0).map((it) => it.slice(0, it.indexOf("=")));
  const wrong = keys.find((it) => !/^[A-Za-z0-9._/-]{1,128}$/.test(it));
  return wrong === undefined ? null : `“${wrong}” is not the key of a label: 1 to 128 of A-Z a-z 0-9 . _ - /`;
}

function asCron(text) {
  const fields = text.trim().split(/\s+/).length;
  return fields >= 5 || text.trim().startsWith("@") ? null : `“${text.trim()}” has ${fields} fields; a cron expression has 5: minute, hour, day, month, weekday`;
}

function asZone(text) {
  try { new Intl.DateTimeFormat("en", { timeZone: text.trim() }); return null; } catch { return `“${text.trim()}” is not a known time zone: write a name such as Europe/Berlin or UTC`; }
}

const asFirst = (text) => asDuration(text) ?? (millis(text) === 0 ? `“${text.trim()}” is not more than zero` : null);

/** The first delay may not be longer than the longest one; each has a default. */
function delaysApart({ first, longest }) {
  const [from, to] = [first.trim() || "1s", longest.trim() || "60s"];
  if (asDuration(from) || asDuration(to) || millis(from) === null || millis(to) === null || millis(from) <= millis(to)) return {};
  return first.trim() ? { "/retry/first": `“${from}” is more than the longest delay, ${to}` } : { "/retry/max": `“${to}” is less than the first delay, ${from}` };
}

const FIELDS = [
  ["/name", "name", asName], ["/priority", "priority", asWhole(-100, 100)], ["/weight", "weight", asWhole(1, 1000)], ["/limits", "limits", asKeys], ["/labels", "labels", asLabels],
  ["/grace", "grace", asBetween(null, "1h")], ["/start_within", "within", asBetween("1s", null)], ["/attempt_timeout", "timeout", asBetween("1s", null)], ["/schedule", "schedule", asCron],
];
const RETRIES = {
  exponential: [["/retry/first", "first", asFirst], ["/retry/max", "longest", asBetween(null, YEAR)], ["/retry/reset_after", "reset", asDuration], ["/retry/attempts", "attempts", asWhole(1, Infinity)]],
  fixed: [["/retry/every", "every", asBetween(null, YEAR)], ["/retry/attempts", "attempts", asWhole(1, Infinity)]],
  intervals: [["/retry/delays", "delays", asDelays]],
};

/** What is wrong with the form, by the field. The manager judges what passes. */
export function complaints(draft) {
  const zoned = draft.schedule.trim() || draft.windows.trim() ? [["/time_zone", "zone", asZone]] : [];
  const wrong = {};
  for (const [pointer, name, check] of [...FIELDS, ...zoned, ...(RETRIES[draft.retry] ?? [])]) {
    const text = draft[name].trim(), found = text === "" ? null : check(text);
    if (found) wrong[pointer] = found;
  }
  if (draft.retry === "exponential") Object.assign(wrong, { ...delaysApart(draft), ...wrong });
  if (draft.start && draft.finish && Date.parse(draft.finish) <= Date.parse(draft.start)) wrong["/finish_at"] = "the end is not after the start";
  if (draft.retry === "fixed" && !draft.every.trim()) wrong["/retry/every"] = "a fixed policy needs its delay, such as 5s";
  if (draft.schedule.trim() && draft.windows.trim()) wrong["/windows"] = "an observer has a schedule or windows, not both";
  return wrong;
}
