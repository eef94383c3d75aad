// The differences between two definitions, line by line.
import { lineDiff, ordered } from "./definition.js";
import { h } from "./dom.js";
import { toYaml } from "./yaml.js";

const AROUND = 3;

/** The number of lines that differ. */
export const changed = (lines) => lines.filter(([sign]) => sign !== " ").length;

export const linesOf = (before, after) => lineDiff(before ? toYaml(ordered(before)) : "", toYaml(ordered(after)));

/** Changed lines and a few lines around them, without equal lines further away. */
export function diffView(lines, label) {
  const near = (at) => lines.slice(Math.max(at - AROUND, 0), at + AROUND + 1).some(([sign]) => sign !== " ");
  const rows = [];
  let skipped = false;
  lines.forEach(([sign, text], at) => {
    if (!near(at)) { skipped = true; return; }
    if (skipped) rows.push(h("span", { class: "fine" }, "⋯"));
    skipped = false;
    rows.push(h({ "+": "ins", "-": "del", " ": "span" }[sign], {}, `${sign} ${text}`));
  });
  return h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": label }, rows.length ? rows : h("span", { class: "fine" }, "No difference."));
}
