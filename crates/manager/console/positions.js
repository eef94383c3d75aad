// The lines of a text at which the members of a definition stand, by their JSON pointers.
import { yamlLines } from "./yaml.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|\n|[^\s{}[\],:"]+/g;

/** Of a text that can be read as JSON. */
function jsonLines(text) {
  const lines = new Map(), within = [];
  let line = 1;
  const mark = () => lines.set(within.map((it) => `/${String(it.at).replaceAll("~", "~0").replaceAll("/", "~1")}`).join(""), line);
  for (const [token] of text.matchAll(TOKEN)) {
    const place = within.at(-1);
    if (token === "\n") line += 1;
    else if (token === "," && place.isList) place.at += 1;
    else if (token === ",") place.isNamed = false;
    else if (token === "}" || token === "]") within.pop();
    else if (token !== ":") {
      if (place && !place.isList && !place.isNamed) { Object.assign(place, { at: JSON.parse(token), isNamed: true }); mark(); continue; }
      if (place?.isList) mark();
      if (token === "{" || token === "[") within.push({ isList: token === "[", at: 0, isNamed: false });
    }
  }
  return lines;
}

/** The line of each member; none if the text cannot be read. */
export function linesOfMembers(mode, text) {
  try { return mode === "json" ? jsonLines(text) : yamlLines(text); } catch { return new Map(); }
}

/** The line of a mistake: of the member, or of the closest one around it; null if there is none. The error about an unknown field has the pointer of what is around it. */
export function lineOfMistake(lines, { pointer, detail }) {
  const unknown = /^has (?:the unknown field|an? unknown fields?:|unknown fields:) ([^\s:;,]+)/.exec(detail)?.[1];
  return (unknown && lines.get(`${pointer}/${unknown}`)) || lineAt(lines, pointer);
}

function lineAt(lines, pointer) {
  for (let at = pointer; at; at = at.slice(0, at.lastIndexOf("/"))) if (lines.has(at)) return lines.get(at);
  return null;
}
