// The marks of the timeline: a shape for each type of event.
import { s } from "./dom.js";
import { eventWord } from "./show.js";

const SHAPES = {
  cross: "M1 1L9 9M9 1L1 9", down: "M1 2H9L5 8.5Z", up: "M5 9V1.5M1.5 5L5 1.5L8.5 5", pause: "M3 1V9M7 1V9", diamond: "M5 0.5L9.5 5L5 9.5L0.5 5Z",
  swap: "M1 3H9M6.5 0.5L9 3M9 7H1M3.5 9.5L1 7", question: "M2.5 3.2A2.5 2.5 0 1 1 5 5.8V6.6M5 9.2V9.3", ring: "M5 1.2A3.8 3.8 0 1 1 4.99 1.2Z",
};

/** `rank`: of several marks at one place, the timeline draws the one with the lowest rank. */
const MARKS = {
  service_lost: { shape: "cross", tone: "bad", rank: 0 },
  service_suspect: { shape: "question", tone: "warn", rank: 1 },
  service_draining: { shape: "down", tone: "move", rank: 2 },
  service_drained: { shape: "down", tone: "plain", rank: 3 },
  service_gone: { shape: "ring", tone: "plain", rank: 4 },
  service_registered: { shape: "up", tone: "good", rank: 5 },
  service_cordoned: { shape: "pause", tone: "plain", rank: 6 },
  service_uncordoned: { shape: "up", tone: "plain", rank: 7 },
  service_resized: { shape: "diamond", tone: "plain", rank: 8 },
  rebalanced: { shape: "swap", tone: "move", rank: 9 },
  safe_mode: { shape: "diamond", tone: "warn", rank: 10 },
};
const OTHER = { shape: "diamond", tone: "plain", rank: 20 };

/** With the word of the page of events. */
export const markOf = (type) => ({ ...(MARKS[type] ?? OTHER), word: eventWord(type) });
function path(type, [x, y], more) {
  const { shape, tone } = markOf(type);
  return s("path", { "data-tone": tone, d: SHAPES[shape], transform: `translate(${(x - 5).toFixed(1)} ${(y - 5).toFixed(1)})`, ...more });
}
const glyph = (type, x = 5, y = 5) => path(type, [x, y], { class: "glyph" });
/** A glyph over lanes, with an outline in the color of the panel: without it, a lane in red would hide the glyph. */
export const outlined = (type, x, y) => s("g", {}, path(type, [x, y], { class: "outline" }), glyph(type, x, y));
/** A glyph in a line of text. */
export const inlineGlyph = (type) => s("svg", { viewBox: "-1 -1 12 12", "aria-hidden": "true" }, glyph(type));

export const CAUSES = { lost: "service_lost", stopped: "service_gone", handed_over: "service_draining", unknown: "service_suspect" };
