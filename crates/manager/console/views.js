// The view for each address.
import { audit } from "./audit.js";
import { batch, batches } from "./batches.js";
import { create } from "./create.js";
import { doctor } from "./doctor.js";
import { events } from "./events.js";
import { incident, incidents } from "./incidents.js";
import { kind, kinds } from "./kinds.js";
import { limits } from "./limits.js";
import { namespaces } from "./namespaces.js";
import { observer } from "./observer.js";
import { observers } from "./observers.js";
import { overview } from "./overview.js";
import { parked } from "./parked.js";
import { pool } from "./pool.js";
import { pools } from "./pools.js";
import { rates } from "./rates.js";
import { roles } from "./roles.js";
import { rollout, rollouts } from "./rollouts.js";
import { safeMode } from "./safe-mode.js";
import { service } from "./service.js";
import { services } from "./services.js";
import { tokens } from "./tokens.js";
import { topology } from "./topology.js";

export const VIEWS = { "": overview, observers, create, services, topology, incidents, events, pools, kinds, limits, rates, batches, rollouts, namespaces, doctor, "safe-mode": safeMode, parked, tokens, roles, audit };
/** The views of a single object, which the second part of the address names. */
export const PAIRS = { observers: observer, services: service, incidents: incident, kinds: kind, pools: pool, batches: batch, rollouts: rollout };
