// The log lines of one observer, from a separate stream; after a lost connection, it continues after the last line.

const TAIL = 200;
const KEPT = 2000;

export class Tail {
  #source = null;
  #last = null;
  #notes = 0;
  #over = false;
  /** Whether a drawing after the end of the stream has shown that the observer ended. */
  #endSeen = false;
  rows = [];

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
