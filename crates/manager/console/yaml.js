// The part of YAML that definitions need: maps, lists, texts, numbers, blocks of text, and JSON within lines.

const PLAIN = /^[A-Za-z0-9_./$][A-Za-z0-9_./$@+=%, -]*(?<! )$/;
const LOOKS_TYPED = /^(?:null|~|true|false|yes|no|on|off|[-+]?[.\d][\d_.eE+-]*|0x[\da-f]+|\d{4}-\d\d-\d\d.*)$/i;
const KEY = /^((?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'#[\]{},&*!|>%@`-][^#]*?|-[^\s#][^#]*?))\s*:(?:\s+(.*)|)$/;

const scalar = (value) => {
  if (typeof value !== "string") return JSON.stringify(value);
  return PLAIN.test(value) && !LOOKS_TYPED.test(value) ? value : JSON.stringify(value);
};
const isEmpty = (value) => (Array.isArray(value) ? value.length === 0 : Object.keys(value).length === 0);
const isScalar = (value) => value === null || typeof value !== "object" || isEmpty(value);

/** A text of several lines as a block, whose lines begin at `inner`; null if only quotes can write it. */
function blockOf(value, inner) {
  if (typeof value !== "string" || !value.includes("\n") || /^\s|\s\n|\n\n$|\r/.test(value)) return null;
  return `|${value.endsWith("\n") ? "" : "-"}\n${value.replace(/\n$/, "").split("\n").map((line) => (line ? `${inner}${line}` : "")).join("\n")}\n`;
}

/** Members in their existing order. */
export function toYaml(value, indent = "") {
  if (isScalar(value)) return `${indent}${value !== null && typeof value === "object" ? JSON.stringify(value) : scalar(value)}\n`;
  if (Array.isArray(value)) return value.map((it) => (isScalar(it) ? `${indent}- ${blockOf(it, `${indent}  `) ?? toYaml(it).trimStart()}` : `${indent}- ${toYaml(it, `${indent}  `).slice(indent.length + 2)}`)).join("");
  return Object.entries(value).map(([name, it]) => {
    return isScalar(it) ? `${indent}${scalar(name)}: ${blockOf(it, `${indent}  `) ?? toYaml(it).trimStart()}` : `${indent}${scalar(name)}:\n${toYaml(it, `${indent}  `)}`;
  }).join("");
}

class Reader {
  constructor(text) {
    this.all = text.split("\n");
    this.at = 0;
    this.isBegun = false;
    /** The members around the place that is read, and the line of each one that was read. */
    this.path = [];
    this.lines = new Map();
  }

  /** Reads a member that begins on the line `line`, counted from 0. */
  within(name, line, read) {
    this.path.push(`/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`);
    this.lines.set(this.path.join(""), line + 1);
    const value = read();
    this.path.pop();
    return value;
  }

  fail(message, line = this.at) {
    throw new Error(`line ${Math.min(line, this.all.length - 1) + 1}: ${message}`);
  }

  /** The next line with content: its depth and its text, without a comment. */
  peek() {
    for (; this.at < this.all.length; this.at += 1) {
      const line = this.all[this.at];
      if (/^\s*(#.*)?$/.test(line)) continue;
      if (line.trim() === "---") { if (this.isBegun) this.fail("a second document begins here: write one"); continue; }
      const depth = line.search(/\S/);
      if (line.slice(0, depth).includes("\t")) this.fail("a tab indents it; use spaces");
      this.isBegun = true;
      return { depth, text: line.slice(depth).replace(/\s+$/, "") };
    }
    return null;
  }

  node(depth) {
    const next = this.peek();
    if (!next || next.depth < depth) return null;
    if (/^-(\s|$)/.test(next.text)) return this.list(next.depth);
    if (KEY.test(this.bare(next.text))) return this.map(next.depth);
    this.at += 1;
    return this.value(next.text, next.depth);
  }

  list(depth) {
    const items = [];
    for (let next = this.peek(); next && next.depth === depth && /^-(\s|$)/.test(next.text); next = this.peek()) {
      const rest = next.text.slice(1).trimStart();
      const inner = depth + next.text.length - rest.length;
      items.push(this.within(items.length, this.at, () => {
        if (rest === "" || rest.startsWith("#")) { this.at += 1; return this.node(depth + 1); }
        if (/^-(\s|$)/.test(rest) || KEY.test(this.bare(rest))) {
          // The item begins a map or a list on its own line: read it as if it stood there alone.
          this.all[this.at] = " ".repeat(inner) + rest;
          return this.node(inner);
        }
        this.at += 1;
        return this.value(rest, depth + 1);
      }));
    }
    this.closed(depth);
    return items;
  }

  map(depth) {
    const members = {};
    for (let next = this.peek(); next && next.depth === depth; next = this.peek()) {
      const [, name, rest = ""] = KEY.exec(this.bare(next.text)) ?? this.fail(`“${next.text.slice(0, 40)}” is not “name: value”`);
      const key = /^["']/.test(name) ? this.value(name, depth) : name;
      if (Object.hasOwn(members, key)) this.fail(`${key} occurs twice`);
      this.at += 1;
      members[key] = this.within(key, this.at - 1, () => {
        if (rest !== "") return this.value(rest, depth + 1);
        const after = this.peek();
        return after && (after.depth > depth || (after.depth === depth && /^-(\s|$)/.test(after.text))) ? this.node(after.depth) : null;
      });
    }
    this.closed(depth);
    return members;
  }

  closed(depth) {
    const next = this.peek();
    if (next && next.depth > depth) this.fail("its indentation fits no line above");
  }

  /** Without a comment after it; a # within quotes is none. */
  bare(text) {
    let quote = null;
    for (let at = 0; at < text.length; at += 1) {
      const one = text[at];
      if (quote === '"' && one === "\\") at += 1;
      else if (quote) { if (one === quote) quote = null; } else if ((one === '"' || one === "'") && (at === 0 || /[\s[{,:]/.test(text[at - 1]))) quote = one;
      else if (one === "#" && /\s/.test(text[at - 1] ?? " ")) return text.slice(0, at).trimEnd();
    }
    return text;
  }

  value(raw, depth) {
    const block = /^([|>])([-+]?)$/.exec(this.bare(raw));
    if (block) return this.block(block, depth);
    const text = this.bare(raw);
    if (/^[&*!%@`]/.test(text)) this.fail(`the console does not read “${text[0]}”: write the value itself`, this.at - 1);
    if (/^[[{]/.test(text)) return this.flow(text);
    if (text.startsWith('"')) { try { return JSON.parse(text); } catch { this.fail("the quotes do not close", this.at - 1); } }
    if (text.startsWith("'")) return /^'(?:[^']|'')*'$/.test(text) ? text.slice(1, -1).replaceAll("''", "'") : this.fail("the quotes do not close", this.at - 1);
    if (/:(?:\s|$)/.test(text)) this.fail("a value with a colon and a space needs quotes", this.at - 1);
    return typed(text);
  }

  block([, style, chomp], depth) {
    const lines = [];
    let inner = null;
    for (; this.at < this.all.length; this.at += 1) {
      const line = this.all[this.at], here = line.search(/\S/);
      if (here >= 0 && here < Math.max(depth, inner ?? depth)) break;
      if (here >= 0) inner ??= here;
      lines.push(line.slice(inner ?? 0));
    }
    while (lines.length && lines.at(-1).trim() === "") lines.pop();
    const body = lines.join("\n");
    return (style === ">" ? body.replace(/(\S)\n(?=\S)/g, "$1 ") : body) + (chomp === "-" ? "" : "\n");
  }

  /** A list or a map in brackets, over several lines if they do not close on one. */
  flow(first) {
    const begun = this.at - 1;
    let text = first;
    while (isOpen(text)) {
      if (this.at >= this.all.length) this.fail("its brackets do not close", begun);
      text += ` ${this.bare(this.all[this.at].trim())}`;
      this.at += 1;
    }
    return new Brackets(text, (message) => this.fail(message, begun)).read();
  }
}

/** Whether a bracket is open at the end; brackets within quotes are none. */
function isOpen(text) {
  const outside = text.replace(/(?<=^|[\s[{,:])(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')/g, "");
  return (outside.match(/[[{]/g) ?? []).length > (outside.match(/[\]}]/g) ?? []).length;
}

/** Reads a list or a map in brackets. As in JSON, but names and texts need no quotes if they are plain, and a comma may follow the last member. */
class Brackets {
  constructor(text, fail) {
    [this.text, this.at, this.fail] = [text, 0, fail];
  }

  read() {
    const value = this.value();
    if (this.next() !== undefined) this.fail(`“${this.text.slice(this.at, this.at + 40)}” does not belong to what is before it`);
    return value;
  }

  /** The next character that is not a space. */
  next() {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
    return this.text[this.at];
  }

  take(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found?.[0];
  }

  value() {
    const next = this.next();
    if (next === "[") return this.list();
    if (next === "{") return this.map();
    return this.scalar();
  }

  scalar() {
    const next = this.next();
    if (next === '"') { try { return JSON.parse(this.take(/"(?:[^"\\]|\\.)*"/y)); } catch { this.fail("the quotes do not close"); } }
    if (next === "'") return (this.take(/'(?:[^']|'')*'/y) ?? this.fail("the quotes do not close")).slice(1, -1).replaceAll("''", "'");
    return typed((this.take(/[^\s[\]{},:](?:[^[\]{},:]|:(?=[^\s,\]}]))*/y) ?? this.fail(next === undefined ? "its brackets do not close" : `a value is missing before “${next}”`)).trim());
  }

  /** Members up to a bracket, with commas between them. */
  members(close, member) {
    this.at += 1;
    while (this.next() !== close) {
      member();
      if (this.next() === ",") this.at += 1;
      else if (this.next() !== close) this.fail(this.next() === undefined ? "its brackets do not close" : `a comma or “${close}” is missing before “${this.text.slice(this.at, this.at + 40)}”`);
    }
    this.at += 1;
  }

  list() {
    const items = [];
    this.members("]", () => items.push(this.value()));
    return items;
  }

  map() {
    const members = {};
    this.members("}", () => {
      const name = String(this.scalar());
      if (Object.hasOwn(members, name)) this.fail(`${name} occurs twice`);
      if (this.next() === ":") { this.at += 1; members[name] = [",", "}"].includes(this.next()) ? null : this.value(); } else members[name] = null;
    });
    return members;
  }
}

function typed(text) {
  if (/^(?:null|~|Null|NULL)$/.test(text)) return null;
  if (/^(?:true|True|TRUE)$/.test(text)) return true;
  if (/^(?:false|False|FALSE)$/.test(text)) return false;
  return /^[-+]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/.test(text) ? Number(text) : text;
}

/** The line of each member, by its JSON pointer; throws an Error as `fromYaml` does. */
export const yamlLines = (text) => read(text).lines;

/** Throws an Error that names the line. */
export const fromYaml = (text) => read(text).value;

function read(text) {
  const reader = new Reader(text);
  const value = reader.node(0);
  const more = reader.peek();
  if (more) reader.fail(`“${more.text.slice(0, 40)}” does not belong to what is above`);
  return { value, lines: reader.lines };
}
