// Keeps the page fresh: events only mark it stale, a throttled refresh re-reads what is visible; tells when
// the manager is lost and when it is back.
import { call, Lost } from "./api.js";
import { EVENT_TYPES } from "./show.js";

const REFRESH_MS = 1000;
/** Heartbeats of services make no event, so it is read this often anyway. */
const IDLE_MS = 5000;
/** What services hold follows an event by a heartbeat: for so long after an event it is read at the pace of events. */
const SETTLE_MS = 3000;
const PROBE_MS = 1000;
/** After this time without an answer, the page says that it waits. */
const LATE_MS = 3000;
const REOPEN_MS = 10000;

export class Live {
  #source = null;
  #stale = true;
  #busy = false;
  #next = 0;
  #timer = null;
  #reopen = 0;
  #lostAt = null;
  #freshAt = Date.now();
  /** The request under way has no answer yet. */
  #isLate = false;
  /** The last answer came late. */
  #wasLate = false;
  #eventAt = -Infinity;

  /** `refresh(reason)` re-reads the visible view; `told({ isLate, lostAt, freshAt, streaming })` shows how it stands. */
  constructor(refresh, told) {
    this.refresh = refresh;
    this.told = told;
    // A hidden tab would keep one of the browser's few connections to this manager.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#rest() : this.now()));
  }

  /** Refreshes at once: a person acted, or looks again. */
  now() {
    this.#stale = true;
    this.#next = 0;
    this.#schedule(0);
  }

  #tell() {
    this.told({ isLate: this.#isLate, lostAt: this.#lostAt, freshAt: this.#freshAt, streaming: this.#source?.readyState === EventSource.OPEN });
  }

  #rest() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #schedule(wait) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#turn(), Math.max(wait, 0));
  }

  async #turn() {
    if (document.hidden || this.#busy) return;
    const now = performance.now();
    if (now < this.#next && this.#lostAt === null) return this.#schedule(this.#next - now);
    this.#busy = true;
    this.#stale = false;
    const late = setTimeout(() => { this.#isLate = true; this.#tell(); }, LATE_MS);
    let again = now - this.#eventAt < SETTLE_MS ? REFRESH_MS : IDLE_MS;
    try {
      if (this.#lostAt !== null) await call("GET", "/livez");
      await this.refresh();
      this.#lostAt = null;
      this.#freshAt = Date.now();
      this.#open();
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      this.#lostAt ??= Date.now();
      again = PROBE_MS;
    } finally {
      this.#busy = false;
      clearTimeout(late);
      // A slow manager is asked more seldom. But after the first late answer, the manager may have stood still: what it read is old.
      const took = performance.now() - now, stoodStill = this.#isLate && !this.#wasLate;
      [this.#wasLate, this.#isLate] = [this.#isLate, false];
      this.#next = now + (stoodStill ? took + REFRESH_MS : Math.max(REFRESH_MS, 2 * took));
      if (stoodStill) again = REFRESH_MS;
      this.#tell();
      this.#schedule(this.#stale && this.#lostAt === null ? this.#next - performance.now() : again);
    }
  }

  #mark = () => {
    this.#eventAt = performance.now();
    if (this.#stale) return;
    this.#stale = true;
    if (!this.#busy && this.#lostAt === null) this.#schedule(this.#next - performance.now());
  };

  #open() {
    if (this.#source && this.#source.readyState !== EventSource.CLOSED) return;
    if (performance.now() < this.#reopen) return;
    this.#reopen = performance.now() + REOPEN_MS;
    const source = new EventSource("/v1/events");
    for (const type of EVENT_TYPES) source.addEventListener(type, this.#mark);
    source.onopen = () => { this.#tell(); this.#mark(); };
    source.onerror = () => {
      this.#tell();
      // Whether the manager is gone, or only the stream, is told by a request.
      if (this.#source === source && this.#lostAt === null) this.now();
    };
    this.#source = source;
  }
}
