// Asks for a span of time.
import { isUtc, zoneName } from "./clock.js";
import { h } from "./dom.js";

const DAY_MS = 86400000;

/** A time in the format of a date field, in the time zone of the console. */
const written = (at) => {
  const date = new Date(isUtc() ? at : at - new Date(at).getTimezoneOffset() * 60000);
  return date.toISOString().slice(0, 16);
};
const read = (text) => new Date(isUtc() ? `${text}Z` : text);

/** Returns `{ since, until }`, or nothing if the user cancels. */
function askRange() {
  const dialog = document.getElementById("dialog"), now = Date.now();
  return new Promise((resolve) => {
    const since = h("input", { type: "datetime-local", name: "since", value: written(now - 3600000), min: written(now - DAY_MS), max: written(now) });
    const until = h("input", { type: "datetime-local", name: "until", value: written(now), min: written(now - DAY_MS), max: written(now) });
    const said = h("p", { class: "bad", role: "alert" });
    const submit = (event) => {
      if (event.submitter?.value !== "yes") return;
      const [from, to] = [read(since.value), read(until.value)];
      const wrong = !(from < to) ? "The start must be before the end." : from < now - DAY_MS ? "The timeline holds the last 24 hours." : null;
      if (wrong) { event.preventDefault(); said.textContent = wrong; }
    };
    dialog.returnValue = "no";
    dialog.onclose = () => resolve(dialog.returnValue === "yes" ? { since: read(since.value).toISOString(), until: read(until.value).toISOString() } : null);
    dialog.replaceChildren(h("form", { method: "dialog", onsubmit: submit },
      h("h2", { id: "dialog-title" }, "Span of time"), h("p", { class: "fine" }, `Within the last 24 hours, in ${zoneName()}.`),
      h("label", { class: "field" }, h("span", {}, "From"), since), h("label", { class: "field" }, h("span", {}, "To"), until), said,
      h("p", { class: "row end" }, h("button", { value: "no", class: "button", formnovalidate: true }, "Cancel"), h("button", { value: "yes", class: "button primary" }, "Show"))));
    dialog.showModal();
  });
}

/** The arguments for the buttons of a timeline. */
export const spans = (params, context) => ({ params, ask: () => askRange().then((span) => span && context.set({ ...span, span: "" })) });
