// Which view draws which address.
import { batch, batches } from "./batches.js";
import { create } from "./create.js";
import { events } from "./events.js";
import { incident, incidents } from "./incidents.js";
import { limits } from "./limits.js";
import { observer } from "./observer.js";
import { observers } from "./observers.js";
import { overview } from "./overview.js";
import { parked } from "./parked.js";
import { rates } from "./rates.js";
import { rollout, rollouts } from "./rollouts.js";
import { services } from "./services.js";
import { topology } from "./topology.js";

export const VIEWS = { "": overview, observers, create, services, topology, incidents, events, limits, rates, batches, rollouts, parked };
/** Those that show one thing, named by the second part of the address. */
export const PAIRS = { observers: observer, incidents: incident, batches: batch, rollouts: rollout };
