// The services: how full, how fresh, which program.
import { get } from "./api.js";
import { h } from "./dom.js";
import { bar, counted, empty, number, state, table, time } from "./show.js";

const CARDS = 200;
const ORDER = ["suspect", "draining", "cordoned", "active"];

async function load() {
  const page = await get("/v1/services", { limit: 1000 });
  return { total: page.total, living: page.items.filter((it) => !it.is_deleted), over: page.items.filter((it) => it.is_deleted) };
}

function card(it) {
  const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
  return h("li", { class: "card", key: it.id, "data-state": it.state },
    h("header", {}, h("h2", {}, it.name), state(it.state)),
    h("p", { class: "load" }, h("strong", {}, number(it.held)), ` of ${number(it.capacity)} slots`, h("span", { class: "fine" }, `${number(it.free)} free`)),
    bar(it.held, it.capacity, `${number(it.held)} of ${number(it.capacity)} slots used`),
    h("dl", { class: "facts" },
      fact("Last heard", time(it.last_beat_at)), fact("Up since", time(it.created_at)), fact("Pool", it.pool), fact("Host", it.host),
      fact("Version", it.version), fact("Incarnation", h("code", { title: it.id }, it.id.slice(0, 8))), fact("Kinds", it.kinds.join(", "))),
    h("a", { class: "more", href: `#/observers?service=${it.id}` }, "Its observers", h("span", { class: "unseen" }, ` (${it.name})`)));
}

function draw({ living, over, total }) {
  const sorted = living.toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.name.localeCompare(b.name, "en", { numeric: true }));
  const late = over.toSorted((a, b) => b.modified_at.localeCompare(a.modified_at)).slice(0, 20);
  return [
    h("header", { class: "head" }, h("h1", {}, "Services"), h("p", { class: "total" }, `${number(living.length)} living`)),
    living.length === 0 ? empty("No service lives", "Observers wait until one comes: start it with  everwatch run service") : h("ul", { class: "cards" }, sorted.slice(0, CARDS).map(card)),
    sorted.length > CARDS ? h("p", { class: "fine" }, `${CARDS} of ${counted(sorted.length, "service")} are shown, those in trouble first.`) : null,
    late.length ? h("section", { class: "panel across" }, h("h2", {}, "Ended lately"), table("Ended lately", [
      { title: "Name", cell: (it) => it.name },
      { title: "How", cell: (it) => state(it.state) },
      { title: "Ended", class: "n when", cell: (it) => time(it.modified_at) },
      { title: "Last heard", class: "n when", cell: (it) => time(it.last_beat_at) },
      { title: "Host", cell: (it) => it.host },
      { title: "Incarnation", cell: (it) => h("code", { title: it.id }, it.id.slice(0, 8)) },
    ], late)) : null,
    total > living.length + over.length ? h("p", { class: "fine" }, `The first ${number(living.length + over.length)} of ${number(total)} are read.`) : null,
  ];
}

export const services = { name: "services", title: "Services", load, draw };
