// The versions of the definition of an observer, and the way back to one.
import { call } from "./api.js";
import { confirm } from "./ask.js";
import { h } from "./dom.js";
import { table, time } from "./show.js";

export const SHOWN = 20;

const short = (value) => value === undefined ? "none" : JSON.stringify(value);

/** What a version changed: a line for each member. */
const changes = ({ changes: list }) => list === null ? "" : h("ul", { class: "plain" }, list.map(({ pointer, before, after }) =>
  h("li", { key: pointer }, h("code", {}, pointer), " ", h("del", {}, short(before)), " ", h("ins", {}, short(after)))));

async function revert(it, version, context) {
  const sure = await confirm({ title: `Revert to version ${version}?`, lines: [`This restores the definition of ${it.name} from version ${version}. If that changes what runs, the observer restarts.`], action: `Revert to version ${version}`, danger: false });
  if (sure) await context.attempt(() => call("POST", `/v1/observers/${encodeURIComponent(it.id)}/revert`, { to: version }), `Reverted to version ${version}.`);
}

/** None if the definition has never changed. */
export function versionsPanel(it, { items: versions, total }, context) {
  if (versions.length === 0) return null;
  const back = (row) => row.version === it.definition_version ? "current" : h("button", { type: "button", class: "button", "aria-label": `Revert to version ${row.version}`, onclick: () => revert(it, row.version, context) }, "Revert");
  return h("section", { class: "panel across", key: "versions" }, h("h2", {}, "Versions of the definition"), table("Versions of the definition", [
    { title: "Version", class: "n", cell: (row) => String(row.version) },
    { title: "When", class: "when", cell: (row) => time(row.at) },
    { title: "By", cell: (row) => row.by ?? "" },
    { title: "Changes", class: "text", cell: changes },
    { title: "", class: "n", cell: back },
  ], versions), total > versions.length ? h("p", { class: "fine" }, `The newest ${SHOWN} of ${total} versions.`) : null);
}
