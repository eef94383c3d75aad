// Dragging over the timeline chooses the span of time that it shows.
import { s } from "./dom.js";

/** A shorter drag is a click. */
const LEAST_PX = 8;
const SHORTEST_MS = 10000;
let drag = null;
/** Whether a drag has just ended: the click that follows opens nothing. */
let isOver = false;

const placed = (event, width) => { const box = event.currentTarget.getBoundingClientRect(); return (event.clientX - box.left) * width / box.width; };

function mark() {
  const band = document.getElementById("drag-band");
  if (!band) return;
  band.setAttribute("x", Math.min(drag?.from ?? 0, drag?.to ?? 0).toFixed(1));
  band.setAttribute("width", Math.abs((drag?.to ?? 0) - (drag?.from ?? 0)).toFixed(1));
}

/** The band over the chosen span. */
export const dragBand = (top, bottom) => s("rect", { id: "drag-band", key: "drag-band", class: "band", x: Math.min(drag?.from ?? 0, drag?.to ?? 0).toFixed(1), y: top, width: Math.abs((drag?.to ?? 0) - (drag?.from ?? 0)).toFixed(1), height: bottom - top });

/** Handlers for the chart: `choose({ since, until })` runs after a drag; none without it. `move(event)` and `leave()` run unless the user drags. */
export function dragging({ at, width, choose, move, leave }) {
  const within = (px) => Math.min(Math.max(px, at.left), at.right);
  const end = () => { drag = null; mark(); };
  if (!choose) return { onpointermove: move, onpointerleave: leave };
  return {
    // The browser would drag a link or select text.
    onmousedown: (event) => event.preventDefault(),
    onpointerdown: (event) => {
      const px = placed(event, width);
      if (event.button !== 0 || event.pointerType === "touch" || px < at.left) return;
      drag = { from: within(px), to: within(px) };
    },
    onpointermove: (event) => {
      if (!drag) return move(event);
      drag.to = within(placed(event, width));
      leave();
      mark();
    },
    onpointerup: () => {
      if (!drag) return;
      const [from, to] = [drag.from, drag.to].sort((a, b) => a - b), since = at.at(from), until = Math.max(at.at(to), since + SHORTEST_MS);
      end();
      if (to - from < LEAST_PX) return;
      isOver = true;
      setTimeout(() => { isOver = false; });
      choose({ since: new Date(since).toISOString(), until: new Date(until).toISOString() });
    },
    onpointerleave: () => { end(); leave(); },
    onclick: (event) => { if (isOver) event.preventDefault(); },
  };
}
