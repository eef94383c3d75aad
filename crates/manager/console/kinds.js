// Kinds: the code that services offer, and the spec that each kind takes.
import { get } from "./api.js";
import { copyButton } from "./copy.js";
import { asCommand } from "./definition.js";
import { h } from "./dom.js";
import { COUNTS } from "./nav.js";
import { fields } from "./schema.js";
import { may, readable } from "./session.js";
import { bar, coded, counted, empty, explained, number, state, table } from "./show.js";
import { toYaml } from "./yaml.js";

export const first = (text) => (text ?? "").split("\n\n")[0].replaceAll("\n", " ");
const link = (it) => h("a", { href: `#/kinds/${encodeURIComponent(it.name)}` }, it.name);

const draw = ({ items }) => [
  h("header", { class: "head" }, h("h1", {}, "Kinds"), h("p", { class: "total" }, number(items.length))),
  explained("A kind is the code that an observer runs; the spec of the observer contains its arguments. Services register the kinds that they offer."),
  items.length === 0 ? empty("No kinds", "Start a service, and its kinds appear here.", h("a", { class: "button", href: "#/services" }, "Services")) : table("Kinds", [
    { title: "Kind", class: "name", cell: link },
    { title: "Services", class: "n", cell: (it) => number(it.services) },
    { title: "Pools", cell: (it) => it.pools.join(", ") },
    { title: "Fields", isExtra: true, class: "n", cell: (it) => (it.schema ? number(Object.keys(it.schema.properties ?? {}).length) : "any") },
    { title: "Description", class: "text", isSecond: true, cell: (it) => h("span", { title: first(it.schema?.description) }, coded(first(it.schema?.description))) },
  ], items),
];

async function loadOne({ parts }) {
  const [kinds, services, used] = await Promise.all([get("/v1/kinds"), readable("services:read", () => get("/v1/services", { limit: 1000 }), { items: [] }), readable("observers:read", () => get("/v1/observers", { kind: parts[1], limit: 1 }), { total: 0, items: [] })]);
  return { name: parts[1], it: kinds.items.find((one) => one.name === parts[1]), services: services.items.filter((one) => !one.is_deleted && one.kinds.includes(parts[1])), used };
}

const typeOf = ({ choices, shape, format }) => (choices ? choices.join(" | ") : format === "friendly-duration" ? "duration" : shape);
const SAMPLES = { text: "…", number: 1, boolean: true, list: ["…"], map: {}, json: {} };

const exampleOf = (schema) => schema?.examples?.[0] ?? schema?.example;
const requiredOf = (all) => (all ?? []).filter((field) => field.required);
const memberOf = (it, field) => it.schema?.properties?.[field.name];

/** The spec that the schema gives as an example, or the required members that have one. */
export const givenSpec = (it, all) => exampleOf(it.schema) ?? Object.fromEntries(requiredOf(all).map((field) => [field.name, exampleOf(memberOf(it, field))]).filter(([, value]) => value !== undefined));

/** The example of the schema; otherwise one value for each required member. */
export function example(it, all) {
  const value = (field) => exampleOf(memberOf(it, field)) ?? field.fallback ?? field.choices?.[0] ?? SAMPLES[field.shape];
  return { name: `my-${it.name}`, kind: it.name, spec: exampleOf(it.schema) ?? Object.fromEntries(requiredOf(all).map((field) => [field.name, value(field)])) };
}

function drawOne({ name, it, services, used }) {
  const crumb = h("p", { class: "crumb" }, h("a", { href: "#/kinds" }, "Kinds"));
  if (!it) return [h("header", { class: "head" }, crumb, h("h1", {}, name)), empty("No service offers this kind", used.total ? `${counted(used.total, "observer")} of this kind ${used.total === 1 ? "waits" : "wait"} until a service that offers it runs.` : "No observer has this kind. Check the name, or start a service that offers it.", used.total ? h("a", { class: "button", href: `#/observers?kind=${encodeURIComponent(name)}` }, "Its observers") : h("a", { class: "button", href: "#/kinds" }, "Kinds"))];
  const all = fields(it.schema), sample = example(it, all);
  const paragraphs = (it.schema?.description ?? "").split("\n\n").filter(Boolean);
  return [
    h("header", { class: "head" }, crumb, h("h1", {}, name), h("a", { href: `#/observers?kind=${encodeURIComponent(name)}` }, counted(used.total, "observer")),
      may("observers:create") ? h("div", { class: "row end" }, h("a", { class: "button primary", href: `#/create?kind=${encodeURIComponent(name)}` }, "New observer of this kind")) : null),
    ...paragraphs.map((text) => h("p", { class: "prose" }, coded(text.replaceAll("\n", " ")))),
    h("section", { class: "panel", key: "spec" }, h("h2", {}, "Spec"), all === null ? h("p", { class: "fine" }, "The services have sent no schema for this kind: it accepts any JSON.") : all.length === 0 ? h("p", { class: "fine" }, "This kind takes no arguments.") : table("Spec", [
      { title: "Field", cell: (field) => [h("code", {}, field.name), h("p", { class: "of-field fine" }, [typeOf(field), field.required ? "required" : null, field.fallback === undefined || field.fallback === null ? null : `default ${JSON.stringify(field.fallback)}`].filter(Boolean).join(", "))] },
      { title: "Type", isExtra: true, cell: typeOf },
      { title: "Required", isExtra: true, cell: (field) => (field.required ? "required" : "") },
      { title: "Default", isExtra: true, class: "value", cell: (field) => (field.fallback === undefined || field.fallback === null ? "" : h("code", {}, JSON.stringify(field.fallback))) },
      { title: "Meaning", class: "about", cell: (field) => coded(field.about.replaceAll("\n", " ")) },
    ], all)),
    h("div", { class: "panels", key: "more" },
      h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Example"), h("span", { class: "seg end" }, copyButton(toYaml(sample), "Copy YAML"), copyButton(asCommand(sample), "Copy as CLI"))), h("pre", { tabindex: "0" }, toYaml(sample))),
      h("section", { class: "panel" }, h("h2", {}, services.length === 1 ? "1 service offers it" : `${number(services.length)} services offer it`), table("Services that offer it", [
        { title: "Service", class: "name", cell: (row) => h("a", { href: `#/services/${encodeURIComponent(row.name)}` }, row.name) }, { title: "Pool", cell: (row) => row.pool }, { title: "State", cell: (row) => state(row.state) },
        { title: "Used", isExtra: true, class: "progress", cell: (row) => bar(row.held, row.capacity, `${row.held} of ${row.capacity}`) }, { title: "Version", isExtra: true, cell: (row) => row.version },
      ], services.slice(0, 50)))),
  ];
}

export const kinds = { name: "kinds", title: "Kinds", load: () => get("/v1/kinds"), draw, counts: ({ total }) => [COUNTS.kinds(total)] };
export const kind = { name: "kind", title: "Kind", load: loadOne, draw: drawOne };
