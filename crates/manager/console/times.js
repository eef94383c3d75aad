// When an observer runs: the week of its windows, and the next times of its schedule.
import { h } from "./dom.js";
import { time } from "./show.js";

const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY = 24 * 60;

export const windowsText = ({ open, time_zone: zone, except = [] }) =>
  `${open.map(({ days, from, to }) => `${days} ${from}-${to}`).join("; ")} in ${zone}${except.length ? `, except ${except.join(", ")}` : ""}`;

const minutes = (text) => Number(text.slice(0, 2)) * 60 + Number(text.slice(3));

/** The places of days in the week, as in “mon-wed,fri”; a range may pass its end. */
function daysOf(text) {
  const found = new Set();
  for (const part of text.split(",")) {
    const [first, last = first] = part.split("-").map((it) => DAYS.indexOf(it));
    for (let day = first; ; day = (day + 1) % 7) {
      found.add(day);
      if (day === last) break;
    }
  }
  return found;
}

/** Each day with the minutes between which it is open; a window over midnight goes on on the next day. */
function week({ open }) {
  const parts = DAYS.map(() => []);
  for (const { days, from, to } of open) {
    for (const day of daysOf(days)) {
      const [start, end] = [minutes(from), minutes(to)];
      parts[day].push([start, end > start ? end : DAY]);
      if (end < start && end > 0) parts[(day + 1) % 7].push([0, end]);
    }
  }
  return parts;
}

const percent = (value) => `${(value / DAY * 100).toFixed(3)}%`;

/** A line for each day, from midnight to midnight by the clocks of the zone. */
function weekStrip(windows) {
  const track = (parts) => h("span", { class: "track" }, parts.map(([from, to]) => h("span", { style: { left: percent(from), width: percent(to - from) } })));
  return h("div", { class: "week", role: "img", "aria-label": `Open ${windowsText(windows)}` },
    week(windows).map((parts, day) => h("div", { key: DAYS[day] }, h("span", { class: "fine" }, DAYS[day]), track(parts))),
    h("div", { key: "hours", class: "hours fine" }, h("span"), h("span", {}, ["00", "06", "12", "18", "24"].map((it) => h("span", {}, it)))));
}

/** The panel that shows when an observer with windows or a schedule runs; none without. */
export function timesPanel(it, schedule) {
  if (it.windows) return h("section", { class: "panel", key: "times" }, h("h2", {}, "Windows"), weekStrip(it.windows), h("p", { class: "fine" }, `by the clocks of ${it.windows.time_zone}`, it.windows.except?.length ? `; closed on ${it.windows.except.join(", ")}` : ""));
  if (!schedule) return null;
  const due = schedule.next.map((at) => h("li", { key: at }, time(at)));
  return h("section", { class: "panel", key: "times" }, h("h2", {}, "Next executions"), h("p", {}, `${schedule.description} Time zone ${schedule.time_zone}.`),
    due.length ? h("ol", { class: "next" }, due) : h("p", { class: "fine" }, "The schedule has no further time."));
}
