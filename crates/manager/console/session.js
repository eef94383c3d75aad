// The principal of the session and its permissions: the console hides pages and buttons that the session may not use.
import { call } from "./api.js";

let who = null;

/** Reads it again: after a login, a logout, and when the page opens. */
export async function identify() {
  try { who = await call("GET", "/v1/whoami"); } catch { who = null; }
  return who;
}

/** Whether the session may do this. Until the permissions are known, the console hides nothing: the manager refuses what is not permitted. */
export const may = (verb) => verb === undefined || who === null || who.verbs.includes(verb);
export const whoName = () => who?.name ?? null;
export const isGuarded = () => who?.authentication === true;

let dev = false;
/** Notes whether `everwatch dev` runs the manager. */
export const noteDev = (it) => { dev = it; };
/** Whether `everwatch dev` runs the manager: services can then be killed. */
export const isDev = () => dev;

/** The answer, or `otherwise` if the session may not read it or the manager does not know the route. */
export async function readable(verb, work, otherwise) {
  if (!may(verb)) return otherwise;
  try { return await work(); } catch (error) {
    if (error.status === 403 || error.status === 404) return otherwise;
    throw error;
  }
}

/** The namespace to which the token of the session is limited; nothing if it is not limited. */
export const ownNamespace = () => who?.namespace ?? null;
