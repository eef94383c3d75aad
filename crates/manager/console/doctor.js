// The doctor: its findings, their effects and their cures; a button applies a cure if the API offers it.
import { call, get, query } from "./api.js";
import { confirm } from "./ask.js";
import { copyCode } from "./copy.js";
import { forThisManager } from "./definition.js";
import { h } from "./dom.js";
import { COUNTS } from "./nav.js";
import { may } from "./session.js";
import { coded, counted, empty, fact, state } from "./show.js";

const ORDER = ["critical", "warning", "info"];

/** Cures that the API offers: the command, and the label, the verb and the request of its button. */
const CURES = [
  { like: /^everwatch safe-mode off$/, word: () => "Switch safe mode off", does: () => "Managers again consider silent services lost, and republish missing messages.", needs: "safe-mode:write", send: () => call("PUT", "/v1/safe-mode", { on: false }) },
  { like: /^everwatch service capacity (\S+) (\d+)$/, word: (name, slots) => `Set ${name} to ${slots} slots`, does: (name, slots) => `Service ${name} gets ${slots} slots. Observers that wait start there.`, needs: "services:operate", send: (name, slots) => call("PATCH", `/v1/services/${encodeURIComponent(name)}`, { capacity: Number(slots) }) },
  { like: /^everwatch service capacity (\S+) default$/, word: (name) => `Restore the slots of ${name}`, does: (name) => `Service ${name} gets the number of slots in its configuration.`, needs: "services:operate", send: (name) => call("PATCH", `/v1/services/${encodeURIComponent(name)}`, { capacity: null }) },
  { like: /^everwatch service (cordon|uncordon) (\S+)$/, word: (verb, name) => `${verb === "cordon" ? "Cordon" : "Uncordon"} ${name}`, does: (verb, name) => (verb === "cordon" ? `Service ${name} keeps its observers, and accepts no others.` : `Service ${name} accepts observers again; a drain of it ends.`), needs: "services:operate", send: (verb, name) => call("POST", `/v1/services/${encodeURIComponent(name)}/${verb}`) },
  { like: /^everwatch rebalance apply$/, word: () => "Rebalance", does: () => "Services hand observers over until all use the same part of their capacity.", needs: "services:operate", send: () => call("POST", "/v1/rebalance:apply", {}) },
  { like: /^everwatch pool resume (\S+)$/, word: (name) => `Resume pool ${name}`, does: (name) => `Observers that wait in pool ${name} start while it has free slots.`, needs: "pools:write", send: (name) => call("PUT", `/v1/pools/${encodeURIComponent(name)}`, { paused: false }) },
  { like: /^everwatch observer (retry|pause|resume|restart) (?:-n (\S+) )?([\w.-]+)$/, word: (verb, _namespace, name) => `${verb[0].toUpperCase()}${verb.slice(1)} ${name}`, needs: "observers:operate", send: (verb, namespace, name) => call("POST", `/v1/observers/${encodeURIComponent(name)}/${verb}${namespace ? `?${query({ namespace })}` : ""}`) },
];

const commands = (text) => [...text.matchAll(/`([^`]+)`/g)].map(([, it]) => it);

const OBSERVER = /^everwatch observer (?!list)[a-z]+ (?:-n (\S+) )?([\w.-]+)$/;

/** The observers that the cure names. */
function observersIn(it) {
  const named = new Map(commands(it.cure).map((text) => OBSERVER.exec(text)).filter(Boolean).map(([, namespace = "default", name]) => [`${namespace}/${name}`, name]));
  return [...named].map(([path, name]) => h("a", { class: "button small", key: path, href: `#/observers/${path.split("/").map(encodeURIComponent).join("/")}` }, `Open ${name}`));
}

function links(it) {
  const [, sort, name] = /^(observer|service|pool) (\S+)$/.exec(it.subject) ?? [];
  const found = { observer: ["Open the observer", `#/observers/${name?.split("/").map(encodeURIComponent).join("/")}`], service: ["Open the service", `#/services/${encodeURIComponent(name)}`], pool: ["Open the pool", `#/pools/${encodeURIComponent(name)}`] }[sort] ?? { parked: ["Parked messages", "#/parked"], "safe-mode-on": ["Safe mode", "#/safe-mode"], failed: ["Failed observers", "#/observers?status=Failed"], "crash-loop": ["Restarting observers", "#/observers?health=restarting"] }[it.code];
  return found ? h("a", { class: "button small", href: found[1] }, found[0]) : null;
}

async function carryOut(it, cure, groups, context) {
  const word = cure.word(...groups);
  if (await confirm({ title: `${word}?`, lines: [...(cure.does ? [cure.does(...groups)] : []), `The finding: ${titleOf(it)}; ${it.why}.`], action: word, danger: false })) await context.attempt(() => cure.send(...groups), `${word}: done.`);
}

const cureOf = (text) => CURES.find((one) => one.like.test(text) && may(one.needs));

/** A sentence begins with a capital letter, a command does not. */
export const begun = (text) => (/^[a-z]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

/** The sentence; a press on a command in it copies the command. */
const cureText = (text) => begun(text).split("`").map((part, at) => (at % 2 === 0 ? part : part.startsWith("everwatch ") ? copyCode(part, forThisManager(part)) : h("code", {}, part)));

function buttons(it, context) {
  const found = commands(it.cure).map((text) => ({ text, cure: cureOf(text) })).filter(({ cure }) => cure);
  return h("p", { class: "row" }, found.map(({ text, cure }) => {
    const groups = cure.like.exec(text).slice(1);
    return h("button", { type: "button", class: "button small primary", key: text, onclick: () => carryOut(it, cure, groups, context) }, cure.word(...groups));
  }), observersIn(it), links(it));
}

/** What the finding says; where it says "its", with the subject before it. */
const titleOf = ({ subject, what }) => (/^its /.test(what) ? `${begun(subject)}: ${what}` : begun(what));

const finding = (it, context) => h("li", { class: "panel finding", key: `${it.code}-${it.subject}`, "data-state": it.severity },
  h("header", {}, h("h2", {}, titleOf(it)), h("span", { class: "row end" }, state(it.severity), h("code", { class: "fine" }, it.code))),
  h("dl", { class: "told" }, fact("Subject", it.subject), fact("Effect", coded(begun(it.why))), fact("Cure", cureText(it.cure))),
  buttons(it, context));

function draw({ items }, _route, context) {
  const notes = items.filter((it) => it.severity === "info").length;
  const sorted = items.toSorted((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return [
    h("header", { class: "head" }, h("h1", {}, "Doctor"), h("p", { class: "total" }, counted(items.length - notes, "problem")), notes ? h("p", { class: "fine" }, `and ${counted(notes, "note")}`) : null, h("p", { class: "fine" }, "The same as ", h("code", {}, "everwatch doctor"), ". Press a command to copy it.")),
    items.length === 0 ? empty("No findings", "The doctor checked the broker, the database, services, capacity and observers, and found no problems.") : h("ul", { class: "stack" }, sorted.map((it) => finding(it, context))),
  ];
}

export const doctor = { name: "doctor", title: "Doctor", load: () => get("/v1/doctor"), draw, counts: ({ items }) => [COUNTS.findings(items)] };
