// What the terms of the console mean, for hovering; the glossary of the documentation has all of them.
import { h } from "./dom.js";

const TERMS = {
  Admission: "whether managers give slots of this pool to more observers",
  Attempt: "the start of the code within the current run; after an error, the next attempt follows as the retry policy says",
  Epoch: "the number of a run: the generation, and how often RabbitMQ has delivered the observer to a service since; a later run has a higher one",
  Held: "slots of observers that RabbitMQ has delivered to a service, and that the service has not given back",
  Incarnation: "the life of a service under one id: from its start until its process ends or loses its session with the broker",
  "Last heartbeat": "when the service last gave a sign of life",
  "Loop lag": "how late the service runs its timers: code that blocks a thread makes it grow",
  Needed: "slots that all observers of the pool need",
  Slots: "how many observers the services may run at once; an observer of weight n takes n slots",
  "Parked messages": "messages that no manager could read or apply; they are kept until you send them back or discard them",
  Pace: "how many observers of the batch have ended in a minute",
};

/** The title of a column or a fact, with its meaning if it is a term. */
export const term = (title) => (Object.hasOwn(TERMS, title) ? h("span", { class: "hinted", title: TERMS[title] }, title) : title);
