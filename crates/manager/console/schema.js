// A form from a JSON schema: one field for each property that has a simple type, JSON for the rest.
import { h } from "./dom.js";
import { coded } from "./show.js";

function resolve(schema, root) {
  const name = schema?.$ref?.match(/^#\/(?:\$defs|definitions)\/(.+)$/)?.[1];
  return name ? { ...(root.$defs ?? root.definitions)?.[name], ...schema } : schema ?? {};
}

function shape(schema) {
  const types = [schema.type].flat().filter((it) => it && it !== "null");
  if (schema.enum) return schema.enum.every((it) => typeof it === "string") ? "choice" : "json";
  if (types.length !== 1) return "json";
  if (types[0] === "array" && schema.items?.type === "string") return "list";
  if (types[0] === "object" && schema.additionalProperties?.type === "string" && !schema.properties) return "map";
  return { string: "text", integer: "number", number: "number", boolean: "boolean" }[types[0]] ?? "json";
}

/** The names of the members of an object, which the form takes as JSON. */
const membersOf = (it) => Object.keys(it.properties ?? it.anyOf?.find((one) => one.properties)?.properties ?? {});

/** `[{ name, shape, required, about, … }]`; null if the schema does not describe an object's members. */
export function fields(schema) {
  if (!schema?.properties && schema?.type !== "object") return null;
  const required = new Set(schema.required ?? []);
  const one = ([name, raw]) => {
    const it = resolve(raw, schema);
    return { name, shape: shape(it), format: it.format, required: required.has(name), about: it.description ?? "", choices: it.enum, fallback: it.default, integer: [it.type].flat().includes("integer"), least: it.minimum, most: it.maximum, example: it.examples?.[0] ?? it.example, members: membersOf(it) };
  };
  return Object.entries(schema.properties ?? {}).map(one).sort((a, b) => b.required - a.required);
}

const HINTS = { list: "one per line", map: "KEY=VALUE, one per line", json: "JSON" };

/** `held` keeps what is typed, by field name; `wrong` is what to say below it; `changed()` runs after an input, `left()` when the user leaves the field. */
export function control(field, held, wrong, changed = () => {}, left = () => {}) {
  const id = `spec-${field.name}`;
  const keep = (event) => { held[field.name] = field.shape === "boolean" ? event.target.checked : event.target.value; changed(); };
  const plain = typeof field.fallback === "string" || typeof field.fallback === "number" ? String(field.fallback) : typeof field.example === "string" ? field.example : "";
  const common = { id, name: id, value: held[field.name] ?? "", oninput: keep, onblur: left, "aria-invalid": wrong ? "true" : undefined, "aria-describedby": `${id}-hint`, autocomplete: "off", spellcheck: "false", required: field.required && field.shape !== "boolean" };
  const input = {
    text: () => h("input", { ...common, placeholder: plain }),
    number: () => h("input", { ...common, type: "number", step: field.integer ? "1" : "any", min: field.least, max: field.most, placeholder: plain }),
    boolean: () => h("input", { ...common, value: undefined, type: "checkbox", checked: held[field.name] ?? field.fallback === true, required: undefined }),
    choice: () => h("select", common, field.required ? null : h("option", { value: "", selected: !held[field.name] }, "default"), field.choices?.map((it) => h("option", { value: it, selected: held[field.name] === it }, it))),
    list: () => h("textarea", { ...common, rows: "3" }),
    map: () => h("textarea", { ...common, rows: "2" }),
    json: () => h("textarea", { ...common, rows: "3" }),
  }[field.shape]();
  const parts = field.shape === "json" && field.members.length ? `an object with ${field.members.join(", ")}` : null;
  const hint = [HINTS[field.shape], parts, field.about].filter(Boolean).join(" · ");
  return h("div", { class: "field", key: id }, h("label", { for: id }, field.name, field.required ? h("span", { class: "fine" }, " required") : null), input,
    h("p", { id: `${id}-hint`, class: wrong ? "hint bad" : "hint" }, coded(wrong || hint.replaceAll("\n", " "))));
}

/** Whether a field of this shape can represent the value. */
export function fits(field, value) {
  if (value === undefined) return true;
  const isLine = (it) => (typeof it === "string" ? !/\n|^\s|\s$|^$/.test(it) : typeof it === "object" && it !== null && "$secret" in it);
  if (field.shape === "list") return Array.isArray(value) && value.every(isLine);
  if (field.shape === "map") return value !== null && typeof value === "object" && Object.values(value).every(isLine);
  if (field.shape === "text" || field.shape === "choice") return isLine(value);
  if (field.shape === "number") return typeof value === "number";
  return field.shape !== "boolean" || typeof value === "boolean";
}

/** A value of a spec, as a user types it into the field. */
export function typedOf(field, value) {
  const text = (it) => (typeof it === "string" ? it : JSON.stringify(it));
  if (field.shape === "boolean") return value;
  if (field.shape === "list") return value.map(text).join("\n");
  if (field.shape === "map" && value !== null && typeof value === "object") return Object.entries(value).map(([name, it]) => `${name}=${text(it)}`).join("\n");
  return field.shape === "json" ? JSON.stringify(value, null, 2) : text(value);
}

// A reference to a secret may stand in place of a text: it is written as in a spec.
const text = (typed, fail) => {
  if (!/^\s*\{\s*"\$secret"/.test(typed)) return typed;
  try { return JSON.parse(typed); } catch (error) { return fail(error.message); }
};
const lines = (text) => text.split("\n").map((it) => it.trim()).filter(Boolean);

/** The spec that was typed; throws `{ name, message }` for what cannot be read. With `wrong`, it puts each complaint there instead. */
export function collect(all, held, wrong = null) {
  const spec = {};
  for (const field of all) {
    const value = held[field.name];
    const fail = (message) => {
      if (wrong === null) throw { name: field.name, message };
      wrong[field.name] = message;
      return null;
    };
    if (field.shape === "boolean") { if (value !== undefined) spec[field.name] = value; continue; }
    if (value === undefined || value.trim() === "") { if (field.shape === "choice" && field.required) spec[field.name] = field.choices[0]; continue; }
    if (field.shape === "number") spec[field.name] = Number(value);
    else if (field.shape === "list") spec[field.name] = lines(value).map((it) => text(it, fail));
    else if (field.shape === "map") {
      const pairs = lines(value).map((line) => line.includes("=") ? [line.slice(0, line.indexOf("=")).trim(), text(line.slice(line.indexOf("=") + 1).trim(), fail)] : fail(`“${line}” has no =`));
      spec[field.name] = Object.fromEntries(pairs.filter(Boolean));
    } else if (field.shape === "json") { try { spec[field.name] = JSON.parse(value); } catch (error) { fail(error.message); } } else spec[field.name] = text(value, fail);
  }
  return spec;
}
