// Recent events, newest first; the first page is live.
import { get } from "./api.js";
import { h } from "./dom.js";
import { EVENT_TYPES, asker, counted, dated, duration, empty, eventWord, number, observerLink, pager, table, time, what } from "./show.js";

const PAGE = 100;

const load = ({ params }) => get("/v1/events", { type: params.get("type"), observer: params.get("observer"), service: params.get("service"), cursor: params.get("cursor"), limit: PAGE });

function draw({ items, next_cursor: next, total }, route, context) {
  const { params } = route, now = params.get("type") ?? "";
  const about = params.get("observer") ? items[0]?.observer?.name ?? "one observer" : params.get("service") ? items[0]?.service?.name ?? "one service" : null;
  return [
    h("header", { class: "head" }, h("h1", {}, "Events"), h("p", { class: "total" }, number(total)),
      about ? h("p", { class: "row" }, `of ${about}`, h("button", { type: "button", class: "quiet", onclick: () => context.set({ observer: "", service: "", cursor: "" }) }, "Show all")) : null),
    h("div", { class: "row fields" }, h("label", { class: "field" }, h("span", {}, "Type"),
      h("select", { name: "type", onchange: (event) => context.set({ type: event.target.value, cursor: "" }) },
        h("option", { value: "", selected: !now }, "everything"), EVENT_TYPES.map((it) => h("option", { value: it, selected: it === now }, eventWord(it)))))),
    items.length === 0 ? empty("No events", now ? "No event matches the filter." : "Events of observers and services appear here.") : table("Events", [
      { title: "When", class: "when", cell: (it) => time(it.at) },
      { title: "Event", cell: (it) => what(it.type) },
      { title: "Observer", class: "name", cell: (it) => it.burst ? counted(it.burst.count, "observer") : it.observer ? observerLink(it.observer) : "" },
      { title: "Service", cell: (it) => it.service?.name ?? "" },
      { title: "Gap", class: "n", cell: (it) => { const gap = it.burst?.gap_ms_median ?? it.gap_ms; return gap === null ? "" : duration(gap); } },
      { title: "Cause", class: "text", cell: (it) => dated(it.text) },
      { title: "By", cell: (it) => asker(it.by) },
    ], items),
    pager(["Newest", "Older"], next, route, context, "Older events: not live"),
  ];
}

export const events = { name: "events", title: "Events", load, draw };
