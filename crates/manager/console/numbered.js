// Text areas with the numbers of their lines beside them. The lines with complaints are marked.
import { h } from "./dom.js";

/** The numbers; `wrong` are complaints `{ line, said }`. */
export function gutter(text, wrong, scrolled = 0) {
  const marked = Map.groupBy(wrong, (it) => it.line);
  return h("div", { class: "gutter", "aria-hidden": "true" }, h("div", { style: { transform: `translateY(${-scrolled}px)` } }, text.split("\n").map((_, at) =>
    h("span", { class: marked.has(at + 1) ? "bad" : undefined, title: marked.get(at + 1)?.map((it) => it.said).join("; ") }, String(at + 1)))));
}

/** Moves the numbers with a text that scrolls. */
export const follow = ({ target }) => { target.previousElementSibling.firstChild.style.transform = `translateY(${-target.scrollTop}px)`; };

/** A caret this near to the start of its line, in characters, could stand below the numbers. */
const AT_START = 24;

/** Scrolls to the start of the line if the caret is near it: a browser scrolls only until the caret is in the area, whose left edge the numbers cover. */
export const unhide = ({ target }) => { if (target.selectionStart - (target.value.lastIndexOf("\n", target.selectionStart - 1) + 1) < AT_START) target.scrollLeft = 0; };

/** Puts numbers beside an area that its page draws once; returns the element of both, and a function that marks lines. */
export function numbered(area) {
  const parts = h("div", { class: "numbered" }, gutter(area.value, []), area);
  const mark = (wrong) => parts.firstChild.replaceWith(gutter(area.value, wrong, area.scrollTop));
  area.wrap = "off";
  area.addEventListener("input", () => mark([]));
  area.addEventListener("input", unhide);
  area.addEventListener("scroll", follow);
  return { parts, mark };
}
