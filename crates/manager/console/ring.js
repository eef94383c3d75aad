// The number of observers with each health while this page is open: the small lines below the tiles.
import { s } from "./dom.js";

const STEP_MS = 5000;
const KEPT = 180;
const ring = [];

/** Stores the counts, at most once in five seconds. */
export function remember(counts) {
  const last = ring.at(-1);
  if (last && Date.now() - last.at < STEP_MS) { last.counts = counts; return; }
  ring.push({ at: Date.now(), counts });
  if (ring.length > KEPT) ring.shift();
}

/** A line of the stored counts; flat if there are few. */
export function spark(name) {
  const values = ring.map((it) => it.counts[name] ?? 0);
  if (values.length === 1) values.push(values[0]);
  const top = Math.max(1, ...values);
  const points = values.map((it, at) => `${(at / (values.length - 1) * 100).toFixed(1)} ${(20 - it / top * 13).toFixed(1)}`);
  return s("svg", { viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" }, s("path", { d: `M${points.join("L")}`, fill: "none", stroke: "var(--hue)", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }));
}
