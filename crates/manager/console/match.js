// How well a name fits what the user typed: a letter that is missing, swapped, wrong or one too many still finds it.

/** Shorter words must be written correctly: with another letter, they would fit most names. */
const LEAST = 4;
/** The misfit of what fits only with a mistake, at least. */
export const MISTAKE = 10;

/** Where a part of a name may begin: at its start, after a character that is no letter or digit, and where letters meet digits. */
const starts = (text) => [...text.matchAll(/(?<![a-z])[a-z]|(?<!\d)\d/g)].map((it) => it.index);

/** Whether `text` begins with `typed` after at most one letter was inserted, left out, replaced, or swapped with the next one. */
function nearly(text, typed) {
  let at = 0;
  while (at < typed.length && text[at] === typed[at]) at += 1;
  const rest = typed.slice(at), follows = (from, part) => text.startsWith(part, from);
  return follows(at + 1, rest) || follows(at, rest.slice(1)) || follows(at + 1, rest.slice(1)) || (rest.length > 1 && follows(at, rest[1] + rest[0] + rest.slice(2)));
}

/** How badly one word fits; nothing if it does not fit. */
function word(text, typed) {
  if (text === typed) return 0;
  if (text.startsWith(typed)) return 1;
  if (starts(text).some((at) => text.startsWith(typed, at))) return 2;
  if (text.includes(typed)) return 3;
  return typed.length >= LEAST && starts(text).some((at) => nearly(text.slice(at), typed)) ? MISTAKE : null;
}

/** How badly `text` fits each word that is typed: 0 fits best, and nothing does not fit. */
export function misfit(text, typed) {
  const lower = text.toLowerCase();
  const all = typed.toLowerCase().split(/\s+/).filter(Boolean).map((it) => word(lower, it));
  return all.includes(null) ? null : all.reduce((sum, it) => sum + it, 0);
}

/** The items that fit, the best first. Those that fit only with a mistake are left out if another fits without one. */
export function fitting(items, textOf, typed) {
  const all = items.map((it) => ({ it, misfit: misfit(textOf(it), typed) })).filter((one) => one.misfit !== null);
  const exact = all.filter((one) => one.misfit < MISTAKE);
  return (exact.length ? exact : all).sort((a, b) => a.misfit - b.misfit);
}

/** How many letters to insert, leave out, replace, or swap with the next one. */
function distance(a, b) {
  let before = [], last = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const line = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      line[j] = Math.min(last[j] + 1, line[j - 1] + 1, last[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1), isSwap ? before[j - 2] + 1 : Infinity);
    }
    [before, last] = [last, line];
  }
  return last[b.length];
}

/** A word of so many letters may be the beginning of a name. */
const SHORT = 3;

/** The name that a user may have meant; null if none is similar. */
export function nearest(typed, names) {
  const all = typed.length > 64 ? [] : names.map((name) => ({ name, far: distance(typed.toLowerCase(), name.toLowerCase()) })).sort((a, b) => a.far - b.far);
  if (all.length && all[0].far <= Math.max(1, Math.floor(typed.length / 3))) return all[0].name;
  const longer = typed.length < SHORT ? [] : names.filter((name) => name.toLowerCase().startsWith(typed.toLowerCase()));
  return longer.length === 1 ? longer[0] : null;
}

/** Parts of a name that contain what is typed with one mistake: each such name contains at least one of them. */
export function pieces(typed) {
  const half = Math.ceil((typed.length + 1) / 2);
  return typed.length < LEAST ? [] : [typed.slice(0, half - 1), typed.slice(half)];
}
