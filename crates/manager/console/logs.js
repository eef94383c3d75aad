// What one observer says, live while its page is looked at. Lines come in a stream of their own, beside what the
// page re-reads; a lost one goes on after the last line.
import { h, patch } from "./dom.js";

const TAIL = 100;
const KEPT = 500;
const DRAW_MS = 200;

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

class Tail {
  #source = null;
  #timer = null;
  #last = null;
  #rows = [];
  /** What the page draws too: it would push new lines out of sight. */
  #shown = [];
  #notes = 0;
  #over = false;

  constructor(id) {
    this.id = id;
  }

  /** Repeatable: a stream that the manager refused is tried again with the next drawing of the page. */
  open() {
    if (this.#over || document.hidden || (this.#source && this.#source.readyState !== EventSource.CLOSED)) return;
    const after = this.#last === null ? "" : `&after=${this.#last}`;
    const source = new EventSource(`/v1/observers/${this.id}/logs?follow=true&tail=${TAIL}${after}`);
    source.addEventListener("line", (event) => { this.#last = event.lastEventId; this.#add(JSON.parse(event.data)); });
    source.addEventListener("note", (event) => this.#note(JSON.parse(event.data)));
    source.addEventListener("end", (event) => { this.#over = true; this.close(); this.#note(JSON.parse(event.data)); });
    this.#source = source;
  }

  close() {
    this.#source?.close();
    this.#source = null;
  }

  #note({ text }) {
    this.#notes += 1;
    this.#add({ id: `note-${this.#notes}`, stream: "note", text });
  }

  #add(row) {
    this.#rows.push(row);
    if (this.#rows.length > KEPT) this.#rows.shift();
    this.#timer ??= setTimeout(() => this.#show(), DRAW_MS);
  }

  #show() {
    this.#timer = null;
    const box = document.getElementById("logs");
    if (!box || box.dataset.key !== this.id) return;
    // Whoever scrolls back reads in peace.
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
    this.#shown = [...this.#rows];
    patch(box, this.draw());
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  draw() {
    if (this.#shown.length === 0) return [h("p", { key: "none", "data-stream": "note" }, "No output yet.")];
    return this.#shown.map(({ id, at, stream, text }) => h("p", { key: id, "data-stream": stream, title: at ? `${EXACT.format(new Date(at))} · ${stream}` : undefined },
      at ? h("span", { class: "at" }, CLOCK.format(new Date(at))) : null, h("span", { class: "said" }, text)));
  }
}

let tail = null;

function leave() {
  tail?.close();
  tail = null;
}
addEventListener("hashchange", leave);
// A hidden tab would keep one of the browser's few connections to this manager.
document.addEventListener("visibilitychange", () => { if (document.hidden) tail?.close(); });

/** The lines of this observer, kept up to date until the page is left. */
export function logs({ id }) {
  if (tail?.id !== id) leave();
  tail ??= new Tail(id);
  tail.open();
  return h("div", { class: "logs", id: "logs", key: id, tabindex: "0", role: "region", "aria-label": "Logs" }, tail.draw());
}
