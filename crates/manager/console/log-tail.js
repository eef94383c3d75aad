// The log lines of one observer, from a separate stream; after a lost connection, it continues after the last line. The lines of
// an earlier run are read once.
import { get } from "./api.js";

/** The number of earlier lines: managers send at most so many. */
const TAIL = 1000;
const KEPT = 2000;
/** The most lines of an earlier run. */
const FORMER = 1000;

/** The epoch of the run that wrote a line. */
export const runOf = ({ id }) => (id.startsWith("note-") ? null : id.split(".").slice(0, 2).join("."));

export class Tail {
  #source = null;
  #last = null;
  #notes = 0;
  #over = false;
  /** Whether a drawing after the end of the stream has shown that the observer ended. */
  #endSeen = false;
  rows = [];
  /** By its epoch, the lines of each earlier run that was chosen; null while they are read. */
  #former = new Map();

  /** Calls `added` after new lines. */
  constructor(id, added) {
    this.id = id;
    this.added = added;
  }

  /**
   * Idempotent. If the manager refused the stream, the next drawing of the page tries again. After the end of the stream,
   * another one opens once an observer that had ended runs again.
   */
  open(hasEnded) {
    if (this.#over) {
      this.#endSeen ||= hasEnded;
      if (hasEnded || !this.#endSeen) return;
      this.#over = this.#endSeen = false;
    }
    if (document.hidden || (this.#source && this.#source.readyState !== EventSource.CLOSED)) return;
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

  /** The lines of a run: those that were read, or those of the stream. */
  rowsOf(run) {
    if (!this.#former.has(run)) return this.rows.filter((it) => it.stream === "note" || runOf(it) === run);
    return this.#former.get(run) ?? [{ id: "note-reading", stream: "note", text: `reading the lines of run ${run}` }];
  }

  /** Reads the lines of an earlier run from its service, or from the next process of that service. */
  async read(run) {
    this.#former.set(run, null);
    try {
      const { items, reason } = await get(`/v1/observers/${this.id}/logs`, { run, tail: FORMER });
      this.#former.set(run, items.length ? items : [{ id: "note-none", stream: "note", text: reason }]);
    } catch (error) {
      this.#former.set(run, [{ id: "note-unread", stream: "note", text: error.message }]);
    }
    this.added();
  }

  #note({ text }) {
    this.#notes += 1;
    this.#add({ id: `note-${this.#notes}`, stream: "note", text });
  }

  #add(row) {
    this.rows.push(row);
    if (this.rows.length > KEPT) this.rows.shift();
    this.added();
  }
}
