// Definitions for editing: differences as a patch and as lines, and commands that create the same definition.
import { query } from "./api.js";
import { toYaml } from "./yaml.js";

const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const equal = (a, b) => JSON.stringify(sortedDeep(a)) === JSON.stringify(sortedDeep(b));

function sortedDeep(value) {
  if (Array.isArray(value)) return value.map(sortedDeep);
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sortedDeep(value[name])]));
}

/** The most important members first, then the others by name. */
const FIRST = ["name", "namespace", "kind", "spec", "pool", "labels", "retry", "overlap", "grace"];
export function ordered(definition) {
  const rest = Object.keys(definition).filter((name) => !FIRST.includes(name)).sort();
  return Object.fromEntries([...FIRST.filter((name) => Object.hasOwn(definition, name)), ...rest].map((name) => [name, sortedDeep(definition[name])]));
}

/** The merge patch (RFC 7396) that turns `before` into `after`; nothing if they are equal. */
export function mergePatch(before, after) {
  const patch = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!Object.hasOwn(after, name)) patch[name] = null;
    else if (equal(before[name], after[name])) continue;
    else patch[name] = isMap(before[name]) && isMap(after[name]) && name !== "retry" ? mergePatch(before[name], after[name]) : after[name];
  }
  return patch;
}

/** Lines of both texts: `[sign, line]` with " ", "-" or "+". */
export function lineDiff(before, after) {
  // An empty text has no line.
  const linesIn = (text) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));
  const a = linesIn(before), b = linesIn(after);
  // Beyond this size, the table of the longest common lines would be too large.
  if (a.length * b.length > 1e6) return [...a.map((it) => ["-", it]), ...b.map((it) => ["+", it])];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const lines = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { lines.push([" ", a[i]]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) lines.push(["-", a[i++]]);
    else lines.push(["+", b[j++]]);
  }
  return lines;
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A command of the program for this manager: without its URL, the command is for the manager of the user's context. */
export const forThisManager = (command) => command.replace(/^everwatch (?!.*--server )/, `everwatch --server ${location.origin} `);

/** Shell commands that create the observer with this definition. */
export const asCommand = (definition) => `${forThisManager("everwatch observer apply")} --file - <<'END'\n${toYaml(ordered(definition))}END`;
export const asCurl = (definition) => `curl -X PUT ${quoted(`${location.origin}/v1/observers/${encodeURIComponent(definition.name)}${definition.namespace ? `?${query({ namespace: definition.namespace })}` : ""}`)} \\\n  -H 'content-type: application/json' \\\n  -d ${quoted(JSON.stringify(ordered(definition)))}`;
