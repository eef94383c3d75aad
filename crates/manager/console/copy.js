// Buttons that copy text.
import { toast } from "./ask.js";
import { h } from "./dom.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.", "good");
  } catch {
    toast("The browser does not permit copying on this page; select the text instead.");
  }
}

/** A command within a text: a press copies `text`, which may be longer. An element of the text, because a button breaks no line. */
export function copyCode(code, text = code) {
  const press = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); copy(text); } };
  // A line breaks between words only: the dashes of an option are not where a reader expects a break.
  const words = code.split(" ").flatMap((word, at) => [at ? " " : null, h("span", { class: "word" }, word)]);
  return h("code", { role: "button", tabindex: "0", class: "code-copy", "aria-label": `Copy ${code}`, title: `Copy ${text}`, onclick: () => copy(text), onkeydown: press }, words);
}

export const copyButton = (text, word = "Copy", label) => h("button", { type: "button", class: "quiet copy", "aria-label": label, title: label, onclick: () => copy(text) }, word);
