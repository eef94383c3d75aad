// Dialogs with a form. One whose values the manager judges stays open until it accepts them: each complaint appears at its field.
import { Lost, Refused } from "./api.js";
import { newDialog, toast } from "./ask.js";
import { h } from "./dom.js";
import { numbered } from "./numbered.js";
import { lineOfMistake, linesOfMembers } from "./positions.js";
import { coded } from "./show.js";

const LOOK_MS = 300;
/** What users have typed in dialogs that they closed without sending it, by the title of the dialog. */
const unsent = new Map();

function inputOf(it) {
  const common = { id: `asked-${it.name}`, name: it.name, "aria-describedby": `asked-${it.name}-hint` };
  if (it.options) return h("select", common, it.options.map(([value, text, isOff]) => h("option", { value, disabled: Boolean(isOff), selected: value === (it.value ?? "") }, text)));
  const typed = { ...common, value: it.value ?? "", placeholder: it.placeholder ?? "", autocomplete: "off", spellcheck: "false" };
  return it.rows ? h("textarea", { ...typed, rows: String(it.rows) }) : h("input", { ...typed, type: it.type, min: it.min, max: it.max });
}

/**
 * The complaints `{ text, lines }` of a refused request by the field; `fieldOf(pointer)` names the field, and `typed` has what the user wrote there. Those without a
 * field are under the empty name.
 */
function byField(error, fieldOf, typed) {
  const wrong = {};
  for (const { pointer, detail } of error.errors) {
    const [name = "", rest = ""] = fieldOf(pointer), said = rest ? `${rest} ${detail}` : detail, line = lineOf(typed[name] ?? "", { pointer: rest, detail });
    wrong[name] ??= { text: "", lines: [] };
    wrong[name].text += `${wrong[name].text ? "; " : ""}${line ? `line ${line}: ` : ""}${said}`;
    if (line) wrong[name].lines.push({ line, said });
  }
  return error.errors.length ? wrong : { "": plain(error.message) };
}

/** The line of a mistake in a text in YAML or JSON. */
const lineOf = (text, mistake) => lineOfMistake(linesOfMembers(/^[[{]/.test(text) ? "json" : "yaml", text), mistake);

/** A complaint of the console itself, with its line if the text names one. */
function plain(text) {
  const line = /^line (\d+): /.exec(text)?.[1];
  return { text, lines: line ? [{ line: Number(line), said: text }] : [] };
}

/** The text of a preview, and its reading: a later one replaces an earlier one. `warn` is told whether it says that harm is ahead. */
function preview(look, typed, warn) {
  const line = h("p", { class: "fine across", role: "status" });
  let timer = null, turn = 0;
  const read = async () => {
    const mine = ++turn, told = await look(typed()).catch((error) => error.message);
    if (mine !== turn) return;
    const { text, isDanger } = typeof told === "string" ? { text: told, isDanger: false } : told;
    [line.textContent, line.className] = [text, isDanger ? "bad across" : "fine across"];
    warn(isDanger);
  };
  return { line, later: () => { clearTimeout(timer); timer = setTimeout(read, LOOK_MS); }, now: read, stop: () => { clearTimeout(timer); turn += 1; } };
}

/** Enter in a field presses the button of the action, not the first button. */
function pressOnEnter(inputs, button) {
  for (const input of inputs) if (input.tagName === "INPUT") input.onkeydown = (event) => { if (event.key === "Enter") { event.preventDefault(); button.click(); } };
}

/** The fields of a dialog, and the complaints about them: each stands below its field until the user changes the field. */
function fieldsOf(fields, { line, lookAfter }) {
  const inputs = new Map(fields.map((it) => [it.name, inputOf(it)])), areas = new Map(fields.filter((it) => it.rows).map((it) => [it.name, numbered(inputs.get(it.name))]));
  const hints = new Map(fields.map((it) => [it.name, h("span", { id: `asked-${it.name}-hint`, class: "hint" }, coded(it.hint ?? ""))]));
  const said = h("p", { class: "bad", role: "alert" });
  const show = (name, text) => {
    const hint = fields.find((it) => it.name === name).hint ?? "";
    hints.get(name).replaceChildren(...coded(text ?? hint));
    hints.get(name).className = text ? "hint bad" : "hint";
    text ? inputs.get(name).setAttribute("aria-invalid", "true") : inputs.get(name).removeAttribute("aria-invalid");
  };
  const complain = (wrong) => {
    for (const { name } of fields) { show(name, wrong[name]?.text); areas.get(name)?.mark(wrong[name]?.lines ?? []); }
    said.textContent = Object.entries(wrong).filter(([name]) => !inputs.has(name)).map(([name, { text }]) => (name ? `${name}: ${text}` : text)).join("; ");
    [...inputs.values()].find((it) => it.hasAttribute("aria-invalid"))?.focus();
  };
  const change = ({ target }) => { said.textContent = ""; if (inputs.has(target.name)) show(target.name, null); };
  const parts = h("div", { class: "pairs", oninput: change, onchange: change }, fields.flatMap((it) => [
    h("div", { class: it.half ? "field" : "field across" }, h("label", { for: `asked-${it.name}` }, it.label), areas.get(it.name)?.parts ?? inputs.get(it.name), hints.get(it.name)), it.name === lookAfter ? line : null]));
  return { parts, said, complain, inputs: [...inputs.values()], typed: () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()])) };
}

const plainly = (pointer) => { const [, first, ...rest] = pointer.split("/"); return [first, rest.length ? `/${rest.join("/")}` : ""]; };

/**
 * A form with fields `{ name, label, value, placeholder, hint, options, rows, type, min, max }`. `check(typed)` returns the complaints by the field, as far as they
 * need no manager; `send(typed)` sends the request; `fieldOf(pointer)` names the field of a complaint of the manager, and the part of the pointer within its text.
 * `look(typed)` resolves to a sentence about what is typed, which appears below the field `lookAfter`, or to `{ text, isDanger }`. A field with `half` takes half of the width. Returns the answer
 * (true if it is empty), or nothing if the user cancels; with `keeps`, the next dialog of the title has what the user typed.
 */
export function askSent({ title, lines = [], fields, action, danger = false, check = () => ({}), send, fieldOf = plainly, look, lookAfter, keeps = false, size = "tall" }) {
  const dialog = newDialog();
  return new Promise((resolve) => {
    let answer;
    const seen = look ? preview(look, () => form.typed(), (isDanger) => { button.className = classOf(danger || isDanger); }) : null;
    const form = fieldsOf(fields.map((it) => ({ ...it, value: unsent.get(title)?.[it.name] ?? it.value })), { line: seen?.line, lookAfter });
    const classOf = (isDanger) => (isDanger ? "button danger" : "button primary");
    const button = h("button", { class: classOf(danger), value: "yes" }, action);
    const submit = async (event) => {
      if (event.submitter?.value === "no") return;
      event.preventDefault();
      const wrong = Object.entries(check(form.typed()));
      if (wrong.length) return form.complain(Object.fromEntries(wrong.map(([name, text]) => [name, plain(text)])));
      button.disabled = true;
      try {
        answer = (await send(form.typed())) ?? true;
        dialog.close();
      } catch (error) {
        if (!(error instanceof Refused || error instanceof Lost)) throw error;
        form.complain(error instanceof Refused ? byField(error, fieldOf, form.typed()) : { "": plain(error.message) });
      } finally {
        button.disabled = false;
      }
    };
    dialog.className = size;
    dialog.onclose = () => { seen?.stop(); if (keeps && answer === undefined) unsent.set(title, form.typed()); else unsent.delete(title); resolve(answer); };
    dialog.replaceChildren(h("form", { method: "dialog", novalidate: true, onsubmit: submit, oninput: seen?.later },
      h("h2", { id: "dialog-title" }, title), lines.map((line) => h("p", {}, line)), form.parts, form.said,
      h("p", { class: "row end" }, h("button", { value: "no", class: "button", formnovalidate: true }, "Cancel"), button)));
    pressOnEnter(form.inputs, button);
    dialog.showModal();
    form.inputs[0]?.focus();
    seen?.now();
  });
}

/** A form whose values the console uses itself; `check(typed)` returns a complaint, or the complaints by the field. Returns the values by name, or nothing if the user cancels. */
export async function askForm({ check = () => null, ...more }) {
  const checked = (typed) => { const wrong = check(typed); return typeof wrong === "string" ? { [more.fields[0].name]: wrong } : wrong ?? {}; };
  return (await askSent({ size: "", ...more, check: checked, send: (typed) => typed })) ?? null;
}

/** A form that changes something, as in `askSent`; `done(typed)` is the sentence that follows. */
export async function askChange({ done, ...more }, context) {
  let typed = null;
  const answer = await askSent({ size: "", ...more, send: (it) => { typed = it; return more.send(it); } });
  if (answer === undefined) return null;
  if (done) toast(done(typed), "good");
  context.refresh();
  return answer;
}
