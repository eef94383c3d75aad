// A dialog with a form that stays open until the manager accepts it: each complaint appears at its field.
import { Lost, Refused } from "./api.js";
import { newDialog } from "./ask.js";
import { h } from "./dom.js";

const LOOK_MS = 300;

function inputOf(it) {
  const common = { id: `asked-${it.name}`, name: it.name, "aria-describedby": `asked-${it.name}-hint` };
  if (it.options) return h("select", common, it.options.map(([value, text]) => h("option", { value, selected: value === (it.value ?? "") }, text)));
  const typed = { ...common, value: it.value ?? "", placeholder: it.placeholder ?? "", autocomplete: "off", spellcheck: "false" };
  return it.rows ? h("textarea", { ...typed, rows: String(it.rows) }) : h("input", { ...typed, type: it.type, min: it.min, max: it.max });
}

/** The complaints of a refused request by the field; `fieldOf(pointer)` names the field. Those without a field are under the empty name. */
export function byField(error, fieldOf) {
  const wrong = {};
  const add = (name, text) => { wrong[name] = wrong[name] ? `${wrong[name]}; ${text}` : text; };
  for (const { pointer, detail } of error.errors) {
    const [name, rest = ""] = fieldOf(pointer);
    add(name ?? "", rest ? `${rest} ${detail}` : detail);
  }
  return error.errors.length ? wrong : { "": error.message };
}

/** The text of a preview, and its reading: a later one replaces an earlier one. */
function preview(look, typed) {
  const line = h("p", { class: "fine across", role: "status" });
  let timer = null, turn = 0;
  const read = async () => {
    const mine = ++turn, text = await look(typed()).catch((error) => error.message);
    if (mine === turn) line.textContent = text;
  };
  return { line, later: () => { clearTimeout(timer); timer = setTimeout(read, LOOK_MS); }, now: read, stop: () => { clearTimeout(timer); turn += 1; } };
}

/**
 * Fields as in `askForm`. `check(typed)` returns the complaints by the field, as far as they need no manager; `send(typed)` sends the request;
 * `fieldOf(pointer)` names the field of a complaint of the manager. `look(typed)` resolves to a sentence about what is typed, which appears below the field
 * `lookAfter`. A field with `half` takes half of the width. Returns the answer, or nothing if the user cancels.
 */
export function askSent({ title, lines = [], fields, action, check, send, fieldOf, look, lookAfter }) {
  const dialog = newDialog();
  return new Promise((resolve) => {
    const inputs = new Map(fields.map((it) => [it.name, inputOf(it)]));
    const hints = new Map(fields.map((it) => [it.name, h("span", { id: `asked-${it.name}-hint`, class: "hint" }, it.hint ?? "")]));
    const typed = () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
    const said = h("p", { class: "bad", role: "alert" });
    const seen = look ? preview(look, typed) : null;
    const button = h("button", { class: "button primary", value: "yes" }, action);
    let answer = null;
    const complain = (wrong) => {
      for (const { name, hint = "" } of fields) {
        const text = wrong[name];
        hints.get(name).textContent = text ?? hint;
        hints.get(name).className = text ? "hint bad" : "hint";
        text ? inputs.get(name).setAttribute("aria-invalid", "true") : inputs.get(name).removeAttribute("aria-invalid");
      }
      said.textContent = wrong[""] ?? "";
      dialog.querySelector("[aria-invalid=true]")?.focus();
    };
    const submit = async (event) => {
      if (event.submitter?.value === "no") return;
      event.preventDefault();
      const wrong = check(typed());
      if (Object.keys(wrong).length) return complain(wrong);
      button.disabled = true;
      try {
        answer = await send(typed());
        dialog.close();
      } catch (error) {
        if (!(error instanceof Refused || error instanceof Lost)) throw error;
        complain(error instanceof Refused ? byField(error, fieldOf) : { "": error.message });
      } finally {
        button.disabled = false;
      }
    };
    dialog.className = "tall";
    dialog.onclose = () => { seen?.stop(); resolve(answer); };
    dialog.replaceChildren(h("form", { method: "dialog", novalidate: true, onsubmit: submit, oninput: seen?.later },
      h("h2", { id: "dialog-title" }, title), lines.map((line) => h("p", {}, line)),
      h("div", { class: "pairs" }, fields.flatMap((it) => [
        h("div", { class: it.half ? "field" : "field across" }, h("label", { for: `asked-${it.name}` }, it.label), inputs.get(it.name), hints.get(it.name)),
        it.name === lookAfter ? seen?.line : null])), said,
      h("p", { class: "row end" }, h("button", { value: "no", class: "button", formnovalidate: true }, "Cancel"), button)));
    // Enter in a field presses the button of the action, not the first button.
    for (const input of inputs.values()) if (input.tagName === "INPUT") input.onkeydown = (event) => { if (event.key === "Enter") { event.preventDefault(); button.click(); } };
    dialog.showModal();
    inputs.values().next().value?.focus();
    seen?.now();
  });
}
