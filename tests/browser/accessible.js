// Looks for what keeps people from reading or operating the page; answers a line for each.
const found = [];
const told = (element) => `<${element.tagName.toLowerCase()} class="${element.getAttribute('class') ?? ''}"> ${element.textContent.trim().slice(0, 40)}`;
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
/** The color as it is painted over another one: red, green, blue. */
const over = (color, below) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = `rgb(${below.join(' ')})`;
  canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const behind = (element) => {
  const line = [];
  for (let at = element; at; at = at.parentElement) line.unshift(getComputedStyle(at).backgroundColor);
  return line.reduce((below, color) => over(color, below), [255, 255, 255]);
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((it) => it / 255).map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
};
const seen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && element.getClientRects().length > 0;
// Text that nobody sees, and drawings, whose words are in a table, have no contrast to check. A button that cannot be pressed is exempt.
const exempt = (element) => element.closest('svg, .unseen, .skip, [hidden], :disabled, option, script, style, noscript');
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = texts.nextNode(); node; node = texts.nextNode()) {
  const element = node.parentElement;
  if (node.data.trim() === '' || exempt(element) || !seen(element)) continue;
  const below = behind(element), contrast = ratio(over(getComputedStyle(element).color, below), below);
  if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(2)}: ${told(element)}`);
}
const named = (element) => (element.getAttribute('aria-label') ?? '').trim() || element.textContent.trim() || element.title ||
  [...(element.labels ?? [])].map((it) => it.textContent.trim()).join('') || document.getElementById(element.getAttribute('aria-labelledby'))?.textContent.trim();
for (const element of document.querySelectorAll('a[href], button, input, select, textarea, [role=region], [role=tab], [role=img], [role=group]')) {
  if (seen(element) && !named(element)) found.push(`without a name: ${told(element)}`);
}
const ids = [...document.querySelectorAll('[id]')].map((it) => it.id);
for (const id of new Set(ids.filter((it, at) => ids.indexOf(it) !== at))) found.push(`twice the id ${id}`);
for (const element of document.querySelectorAll('[aria-controls], [aria-describedby], [aria-labelledby]')) {
  if (!seen(element)) continue;
  for (const name of ['aria-describedby', 'aria-labelledby']) {
    for (const id of (element.getAttribute(name) ?? '').split(' ').filter(Boolean)) if (!ids.includes(id)) found.push(`${name} names ${id}, which is nowhere: ${told(element)}`);
  }
}
const titles = [...document.querySelectorAll('h1')].filter(seen);
if (titles.length !== 1) found.push(`${titles.length} headings of the first level`);
for (const element of document.querySelectorAll('[onclick], .cell')) if (element.onclick && !element.matches('a, button, input, li[role], .cells, dialog') && seen(element)) found.push(`only a pointer reaches ${told(element)}`);
return found;
