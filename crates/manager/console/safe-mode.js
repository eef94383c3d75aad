// Safe mode: the switch that stops conclusions from silence.
import { call, get } from "./api.js";
import { askChange } from "./ask-sent.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { COUNTS } from "./nav.js";
import { may } from "./session.js";

const begin = (context) => askChange({
  title: "Switch safe mode on?", lines: ["Managers then consider no service lost and republish no observer. Failover continues, but observers whose messages are missing run nowhere until safe mode ends."],
  fields: [{ name: "reason", label: "Reason, for other operators", placeholder: "network maintenance until 14:00" }], action: "Switch safe mode on",
  send: ({ reason }) => call("PUT", "/v1/safe-mode", { on: true, reason }), done: () => "Safe mode is on.",
}, context);

async function end(context) {
  if (await confirm({ title: "Switch safe mode off?", lines: ["Managers again conclude from silence that services are lost, and republish observers whose messages are missing."], action: "Switch safe mode off", danger: false })) await context.attempt(() => call("PUT", "/v1/safe-mode", { on: false }), "Safe mode is off.");
}

const draw = ({ on, reason }, _route, context) => [
  h("header", { class: "head" }, h("h1", {}, "Safe mode"), h("span", { class: "status pill", "data-state": on ? "warning" : "active" }, on ? "on" : "off"),
    may("safe-mode:write") ? h("div", { class: "row end" }, on ? h("button", { type: "button", class: "button primary", onclick: () => end(context) }, "Switch safe mode off") : h("button", { type: "button", class: "button", onclick: () => begin(context) }, "Switch safe mode on")) : null),
  on ? h("p", { class: "notice", key: "on" }, h("strong", {}, "Managers conclude nothing from silence."), reason ? ` Reason: ${reason}` : " No reason was given.") : null,
  h("section", { class: "panel", key: "about" }, h("h2", {}, "Effects"), h("ul", { class: "told-list" },
    h("li", {}, "While it is on, managers consider no service lost and republish nothing."),
    h("li", {}, "Observers keep running, and managers still perform requests of users: creates, deletes, moves, drains."),
    h("li", {}, "Use it while you repair the broker, the database or the network, when a silent service may still be alive."),
    h("li", {}, "RabbitMQ still moves the observers of a service that dies. Observers whose messages are missing run nowhere until safe mode ends."))),
];

export const safeMode = { name: "safe-mode", title: "Safe mode", load: () => get("/v1/safe-mode"), draw, counts: ({ on }) => [COUNTS.safeMode(on)] };
