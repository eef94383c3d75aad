// What the terms of the console mean, for hovering; the glossary of the documentation has all of them.
import { h } from "./dom.js";

const TERMS = {
  Admission: "whether more observers get a slot of this pool: open, or paused by a user",
  "Attempt of this run": "how often the code has been started in the current run; after an error, the next attempt follows as the retry policy says",
  Epoch: "the number of a run: how often the observer was published, and how often RabbitMQ has delivered it again since then; a later run has a higher number",
  Held: "the slots in use: a service has received these observers from RabbitMQ and has not finished with them",
  Incarnation: "one life of a service: from its start until its process ends or loses its connection to RabbitMQ; it has an id of its own",
  "Last heartbeat": "when the service last gave a sign of life",
  "Loop lag": "how late the service wakes up: a few milliseconds are normal; more means that its machine is overloaded, or that code blocks a thread",
  "Attempt timeout": "after this time, the service stops an attempt; it counts as an error",
  "Creates left this minute": "how many observers may still be created in the namespace in this minute",
  "If too many run": "what managers do if more observers run than the maximum permits, because a user has lowered it: they let all of them continue, or stop those created last; in both cases, no other observer starts",
  "Failure tolerance": "how many services of the pool can be lost while the others have slots for all of its observers",
  Gap: "the time between two runs of an observer, in which it ran nowhere",
  "Grace period": "how long the code may take to stop before it is killed",
  "Healthy after": "how long a changed observer must run without an error until the rollout continues",
  "Maximum in progress": "how many observers may be changed and not yet healthy at the same time",
  Overlap: "an observer runs on two services at once, for example on one that has lost its connection and on one that took over",
  "Reason code": "the reason as a word that does not change, for scripts and filters",
  Restarts: "how often the code was started again after an error, in all runs since the observer last ran without an error for the time after which its retry policy forgets errors",
  Schedule: "the times at which the observer executes, as a cron expression: minute, hour, day, month, weekday",
  "Start within": "it fails if it still waits for a slot after this time",
  Weight: "how many slots the observer takes",
  Windows: "the hours in which the observer may run",
  "With a slot": "observers that run or start now; the others wait for a slot",
  Needed: "slots that all observers of the pool need",
  Slots: "how many observers the services may run at once; an observer of weight n takes n slots",
  "Parked messages": "messages that no manager could read or apply; they are kept until you send them back or discard them",
  Pace: "how many observers of the batch end in a minute",
};

/** What the states mean of services and of the observers of a rollout, and the marks of the timeline. */
const STATES = {
  active: "takes observers of its pool",
  standby: "takes over if the active service of its single pool is lost",
  cordoned: "keeps its observers and accepts no more",
  draining: "hands over its observers and accepts no more",
  suspect: "has gone silent: managers do not know yet whether it is lost",
  lost: "its connection to the broker ended before the service unregistered",
  gone: "it stopped and handed over its observers",
  pending: "not changed yet",
  changed: "changed, and not yet healthy for long enough",
  done: "changed and healthy, or not meant to run",
  skipped: "left alone: a user has edited or deleted it since, or the patch changes nothing",
  reverting: "gets its former definition again",
  reverted: "has its former definition again",
  overlap: "observers of the service ran on two services at once",
  service_registered: "a process of the service has started and takes observers",
  service_suspect: "nothing was heard of the service: managers ask the broker whether it is lost",
  service_lost: "the connection of the service to the broker has ended; its gaps begin with its last sign of life",
  service_gone: "the service was stopped and handed over its observers",
  service_draining: "a user asked the service to hand over its observers",
  service_drained: "the service has handed over its observers and stays cordoned",
  service_cordoned: "a user asked the service to accept no more observers",
  service_uncordoned: "the service accepts observers again",
  service_resized: "a user changed the number of slots",
  rebalanced: "managers moved observers so that all services hold a similar number",
  safe_mode: "safe mode began or ended: meanwhile, managers conclude nothing from silence",
};
export const meaningOf = (state) => (Object.hasOwn(STATES, state) ? STATES[state] : undefined);

/** The title of a column or a fact, with its meaning if it is a term. */
export const term = (title) => (Object.hasOwn(TERMS, title) ? h("span", { class: "hinted", title: TERMS[title] }, title) : title);
