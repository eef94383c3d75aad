// Actions on one observer, service or pool from the palette: “pause orders-1”, or “pause” while its page is open.
import { confirm } from "./ask.js";
import { ACTIONS, actOn, mayDo, possible } from "./observer-actions.js";
import { poolActions } from "./pools.js";
import { serviceActions } from "./services.js";
import { may } from "./session.js";
import { counted, observerName, observerPath, standing, word as shown } from "./show.js";

/** How many letters of a word make it an action, at least. */
const LEAST = 2;
/** How many things with a similar name are offered an action at most. */
const THINGS = 4;
const OF_SERVICES = ["Cordon", "Uncordon", "Drain", "Resize", "Kill"], OF_PAGES = ["Edit", "Clone", "Logs"];
const WORDS = [...Object.values(ACTIONS).map((it) => it.word), ...OF_SERVICES, ...OF_PAGES];

const fits = (word, typed) => word.toLowerCase().startsWith(typed.toLowerCase());

/** The typed word that means an action, and the other words; null if there is none. */
export function asAction(typed) {
  const words = typed.split(/\s+/).filter(Boolean), at = words.findIndex((it) => it.length >= LEAST && WORDS.some((word) => fits(word, it)));
  return at < 0 ? null : { action: words[at], name: words.toSpliced(at, 1).join(" ") };
}

/** What a user can do with an observer: `{ word, run(commands) }`, or `whyNot` instead of `run`. */
function ofObserver(it) {
  const now = possible(it), whyNot = `not possible: it is ${shown(standing(it)).toLowerCase()}`;
  const acts = Object.entries(ACTIONS).filter(([name]) => mayDo(name)).map(([name, { word }]) => (now.includes(name) ? { word, run: ({ context }) => actOn(name, [it], context) } : { word, whyNot }));
  const pages = [["Edit", "observers:update", `#/${observerPath(it)}?edit=form`], ["Clone", "observers:create", `#/create?from=${it.id}`], ["Logs", "logs:read", `#/${observerPath(it)}`]];
  return [...acts, ...pages.filter(([, verb]) => may(verb)).map(([word, , hash]) => ({ word, run: ({ go }) => go(hash) }))];
}

/** Of a service. A cordon is asked about: a name that is not typed to its end may mean another service. */
function ofService(it) {
  const all = serviceActions(it), asked = async () => confirm({ title: `Cordon ${it.name}?`, lines: ["It accepts no more observers until you uncordon it. It keeps those that it runs."], action: `Cordon ${it.name}`, danger: false });
  const run = ({ word, run: now }) => async ({ context }) => { if (word !== "Cordon" || await asked()) await now(context); };
  const others = may("services:operate") ? ["Cordon", "Uncordon"].filter((word) => all.every((one) => one.word !== word)) : [];
  return [...all.map((one) => ({ word: one.word, run: run(one) })), ...others.map((word) => ({ word, whyNot: it.cordoned ? "not possible: it is cordoned" : "not possible: it is not cordoned" }))];
}

const ofPool = (it) => (may("pools:write") ? poolActions(it).map(({ text, run }) => ({ word: text, run: ({ context }) => run(context) })) : []);

/** The actions on these observers, services and pools that fit, as entries of the palette. What is not possible says why, if the name is typed to its end. */
export function quickActions(action, { observers, services, pools }) {
  const entries = (found, nameOf, kind, actionsOf) => {
    const all = found.map(({ it, misfit }) => actionsOf(it).filter((one) => fits(one.word, action) && (one.run || misfit === 0))
      .map(({ word, run, whyNot }) => ({ sort: "Actions", title: `${word} ${nameOf(it)}`, hint: whyNot ?? kind, isOff: !run, misfit, run }))).filter((those) => those.length);
    const more = all.slice(THINGS), rest = { sort: "Actions", title: counted(more.length, `more ${kind}`), hint: "write more of the name", isOff: true, misfit: more[0]?.[0].misfit };
    return [...all.slice(0, THINGS).flat(), ...(more.length ? [rest] : [])];
  };
  const name = (it) => it.name;
  return [...entries(services, name, "service", ofService), ...entries(observers, observerName, "observer", ofObserver), ...entries(pools, name, "pool", ofPool)];
}
