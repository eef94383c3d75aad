// Exact times, in UTC or in the time zone of the browser: one switch for the whole console.

const KEY = "zone";
const FORMATS = new Map();

export const isUtc = () => localStorage.getItem(KEY) === "utc";
export const zoneName = () => (isUtc() ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);

export function useUtc(utc) {
  localStorage.setItem(KEY, utc ? "utc" : "local");
}

function format(options) {
  const key = `${isUtc()} ${JSON.stringify(options)}`;
  if (!FORMATS.has(key)) FORMATS.set(key, new Intl.DateTimeFormat("en-GB", { ...options, ...(isUtc() && { timeZone: "UTC" }) }));
  return FORMATS.get(key);
}

const valid = (at) => { const date = new Date(at); return Number.isNaN(date.getTime()) ? new Date(0) : date; };

/** Date, time and zone. */
export const exact = (at) => format({ year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" }).format(valid(at));
/** The time of the day. */
export const clock = (at) => format({ hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(valid(at));
export const clockMs = (at) => format({ hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 }).format(valid(at));
export const shortClock = (at) => format({ hour: "2-digit", minute: "2-digit" }).format(valid(at));
/** A time in UTC, for texts that users paste into a chat. */
export const stamp = (at) => `${valid(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;
