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

export const copyButton = (text, word = "Copy", label) => h("button", { type: "button", class: "quiet copy", "aria-label": label, title: label, onclick: () => copy(text) }, word);
