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

/** Puts numbers beside an area that its page draws once; returns the element of both, and a function that marks lines. */
export function numbered(area) {
  const parts = h("div", { class: "numbered" }, gutter(area.value, []), area);
  const mark = (wrong) => parts.firstChild.replaceWith(gutter(area.value, wrong, area.scrollTop));
  area.wrap = "off";
  area.addEventListener("input", () => mark([]));
  area.addEventListener("scroll", follow);
  return { parts, mark };
}
