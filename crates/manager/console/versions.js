// The versions of the definition of an observer, their changes, and the revert to one.
import { call, get } from "./api.js";
import { confirm } from "./ask.js";
import { changed, diffView, linesOf } from "./diff.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { counted, smallButton, table, time } from "./show.js";

export const SHOWN = 20;

/** The current version of the definition of an observer. */
export const newestVersion = async (id) => (await get(`/v1/observers/${encodeURIComponent(id)}/versions`, { limit: 1 })).items[0];

const short = (value) => value === undefined ? "none" : JSON.stringify(value);

/** What a version changed: a line for each member. */
/** `spec.argv[0]` of `/spec/argv/0`. */
const pathOf = (pointer) => pointer.slice(1).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~")).reduce((path, part) => (/^\d+$/.test(part) ? `${path}[${part}]` : `${path}.${part}`));
const changes = ({ version, changes: list }) => list === null ? h("span", { class: "fine" }, version === 1 ? "created" : "the version before it is not kept") : h("ul", { class: "plain" }, list.map(({ pointer, before, after }) =>
  h("li", { key: pointer }, h("code", {}, pathOf(pointer)), " ", h("del", {}, short(before)), " → ", h("ins", {}, short(after)))));

async function revert(it, version, lines, context) {
  const sure = await confirm({ title: `Revert to version ${version}?`, lines: [`This restores the definition of ${it.name} from version ${version}. If that changes what runs, the observer restarts.`], more: diffView(lines, `From version ${it.definition_version} to ${version}`), action: `Revert to version ${version}`, danger: false });
  if (sure) await context.attempt(() => call("POST", `/v1/observers/${encodeURIComponent(it.id)}/revert`, { to: version }), `Reverted to version ${version}.`);
}

export function versionsPanel(it, { items: versions, total }, params, context) {
  const current = versions.find((row) => row.version === it.definition_version) ?? versions[0];
  const shown = versions.find((row) => String(row.version) === params.get("version")) ?? current;
  const before = versions.find((row) => row.version === shown?.version - 1);
  const isCurrent = (row) => row.version === it.definition_version;
  const back = (row) => isCurrent(row) ? h("span", { class: "fine" }, "current") : may("observers:update") ? smallButton("Revert", `Revert to version ${row.version}`, () => revert(it, row.version, linesOf(current.definition, row.definition), context)) : "";
  const select = (row) => h("button", { type: "button", class: "quiet", "aria-pressed": String(row === shown), "aria-label": `Version ${row.version}: what it changed`, onclick: () => context.set({ version: String(row.version) }) }, `Version ${row.version}`);
  const lines = shown && before ? linesOf(before.definition, shown.definition) : [];
  return h("div", { class: "panels lead", key: "versions" },
    h("section", { class: "panel" }, h("h2", {}, "Versions of the definition"), table("Versions of the definition", [
      { title: "Version", cell: select },
      { title: "When", class: "when", cell: (row) => time(row.at) },
      { title: "By", cell: (row) => row.by ?? "" },
      { title: "Changes", class: "text", cell: changes },
      { title: h("span", { class: "unseen" }, "Actions"), class: "n", cell: back },
    ], versions, (row) => ({ key: String(row.version) })), total > versions.length ? h("p", { class: "fine" }, `The newest ${SHOWN} of ${total} versions.`) : null),
    h("section", { class: "panel" }, h("header", {}, h("h2", {}, before ? `Version ${shown.version} against ${before.version}` : `Version ${shown?.version ?? 1}`), before ? h("span", { class: "fine end" }, counted(changed(lines), "line")) : null),
      before ? diffView(lines, "Difference") : h("p", { class: "fine" }, "The first version that is kept.")));
}
