// Builds elements and brings what is on the page up to a new tree without losing focus or typing.

// Properties, not attributes: the page's policy allows no inline style and no inline handler.
const AS_PROPERTY = new Set(["value", "checked", "indeterminate", "disabled", "hidden", "open", "selected"]);

const SVG = "http://www.w3.org/2000/svg";

export const h = (tag, properties, ...children) => build(document.createElement(tag), properties, children);
/** An element of a drawing. */
export const s = (tag, properties, ...children) => build(document.createElementNS(SVG, tag), properties, children);

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element[name] = value;
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "key") element.dataset.key = value;
    else if (AS_PROPERTY.has(name)) element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((it) => it !== undefined && it !== null && it !== false));
  return element;
}

const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onkeydown", "ontoggle", "onpointerenter", "onpointermove", "onpointerleave", "onfocus", "onblur", "onscroll", "onwheel", "ontouchmove", "onpointerdown", "onpointerup", "onmousedown"];

function become(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const name of HANDLERS) old[name] = fresh[name];
  if (old.tagName === "INPUT") {
    old.checked = fresh.checked;
    old.indeterminate = fresh.indeterminate;
  }
  patch(old, [...fresh.childNodes]);
  // What a person types stays; a list takes its choice after its options.
  if ("value" in fresh && old.value !== fresh.value && old !== document.activeElement && old.tagName !== "LI") old.value = fresh.value;
}

const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;

/** Makes the children of `parent` look like `fresh`; elements of equal tag and key are kept. */
export function patch(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let at = parent.firstChild;
  for (const node of fresh) {
    const key = node.dataset?.key;
    const held = key === undefined ? undefined : keyed.get(key);
    if (held && same(held, node)) {
      // Of two fresh elements with one key, the second is new.
      keyed.delete(key);
      if (held === at) at = at.nextSibling;
      else parent.insertBefore(held, at);
      become(held, node);
    } else if (at && key === undefined && same(at, node)) {
      const next = at.nextSibling;
      become(at, node);
      at = next;
    } else {
      parent.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
