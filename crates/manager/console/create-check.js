// The complaints about the form for a new observer that need no manager, all at once, each at its field.

/** The units that managers read, besides weeks with their long names and parts of milliseconds. */
const UNIT = "(?:ns|nsecs?|nanos?|nanoseconds?|[uµμ]s|[uµμ]secs?|micros?|microseconds?|ms|msecs?|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)";
/** Numbers with units; managers also read `01:30:00` and the notation of ISO 8601. */
const DURATION = new RegExp(`^(?:\\+?(?:\\s*\\d+(?:[.,]\\d+)?\\s*${UNIT},?(?![A-Za-z]))+|\\d+:\\d\\d:\\d\\d(?:[.,]\\d+)?|P(?=.*\\d)[\\dWDTHMS.,]+)$`);
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export const asDuration = (text) => (DURATION.test(text.trim()) ? null : `“${text.trim()}” is not a duration: write it like 500ms, 30s, 1h 30m or 30d`);
export const asWhole = (least, most) => (text) => (/^[-+]?\d+$/.test(text) && Number(text) >= least && Number(text) <= most ? null : `“${text}” is not a whole number ${most === Infinity ? `of ${least} or more` : `from ${least} to ${most}`}`);
export const asName = (text) => (NAME.test(text) ? null : `“${text}” is not a name: 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit`);
const asKeys = (text) => text.split(/[\s,]+/).filter(Boolean).map((it) => (NAME.test(it) || it.includes(":") ? null : `“${it}” is not a key: 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit`)).find(Boolean) ?? null;
const asDelays = (text) => text.split(",").map((it) => it.trim()).filter(Boolean).map(asDuration).find(Boolean) ?? null;

function asCron(text) {
  const fields = text.trim().split(/\s+/).length;
  return fields >= 5 || text.trim().startsWith("@") ? null : `“${text.trim()}” has ${fields} fields; a cron expression has 5: minute, hour, day, month, weekday`;
}

function asZone(text) {
  try { new Intl.DateTimeFormat("en", { timeZone: text.trim() }); return null; } catch { return `“${text.trim()}” is not a known time zone: write a name such as Europe/Berlin or UTC`; }
}

const FIELDS = [
  ["/name", "name", asName], ["/priority", "priority", asWhole(-100, 100)], ["/weight", "weight", asWhole(1, 1000)], ["/limits", "limits", asKeys],
  ["/grace", "grace", asDuration], ["/start_within", "within", asDuration], ["/attempt_timeout", "timeout", asDuration], ["/schedule", "schedule", asCron],
];
const RETRIES = {
  exponential: [["/retry/first", "first", asDuration], ["/retry/max", "longest", asDuration], ["/retry/reset_after", "reset", asDuration], ["/retry/attempts", "attempts", asWhole(1, Infinity)]],
  fixed: [["/retry/every", "every", asDuration], ["/retry/attempts", "attempts", asWhole(1, Infinity)]],
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
  if (draft.retry === "fixed" && !draft.every.trim()) wrong["/retry/every"] = "a fixed policy needs its delay, such as 5s";
  if (draft.schedule.trim() && draft.windows.trim()) wrong["/windows"] = "an observer has a schedule or windows, not both";
  return wrong;
}
