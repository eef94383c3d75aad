// Actions on one observer or service from the palette: “pause orders-1”, or “pause” while its page is open.
import { ACTIONS, actOn, possible } from "./observer-actions.js";
import { serviceActions } from "./services.js";
import { observerName } from "./show.js";

/** How many letters of a word make it an action, at least. */
const LEAST = 2;
/** How many things with a similar name are offered an action at most. */
const THINGS = 4;
const WORDS = [...Object.values(ACTIONS).map((it) => it.word), "Cordon", "Uncordon", "Drain", "Resize", "Kill"];

const fits = (word, typed) => word.toLowerCase().startsWith(typed.toLowerCase());

/** The typed word that means an action, and the other words; null if there is none. */
export function asAction(typed) {
  const words = typed.split(/\s+/).filter(Boolean), at = words.findIndex((it) => it.length >= LEAST && WORDS.some((word) => fits(word, it)));
  return at < 0 ? null : { action: words[at], name: words.toSpliced(at, 1).join(" ") };
}

/** The actions on these observers and services that fit, as entries of the palette: the better the name fits, the earlier. */
export function quickActions(action, { observers, services }) {
  const ofObservers = observers.slice(0, THINGS).flatMap(({ it, misfit }) => possible(it).map((name) => ({ word: ACTIONS[name].word, name: observerName(it), kind: "observer", misfit, run: ({ context }) => actOn(name, [it], context) })));
  const ofServices = services.slice(0, THINGS).flatMap(({ it, misfit }) => serviceActions(it).map(({ word, run }) => ({ word, name: it.name, kind: "service", misfit, run: ({ context }) => run(context) })));
  return [...ofServices, ...ofObservers].filter((it) => fits(it.word, action)).map(({ word, name, kind, misfit, run }) => ({ sort: "Actions", title: `${word} ${name}`, hint: kind, misfit, run }));
}
