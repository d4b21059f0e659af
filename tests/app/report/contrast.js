// The smallest contrast ratio (WCAG 2) of every visible text with the background that is drawn below it, and the text.
const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const numbers = (text) => text.match(/[\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const background = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0.5) return c;
  }
  return [255, 255, 255];
};
const ratio = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const found = [];
for (const element of document.querySelectorAll("body *")) {
  if (!element.getClientRects().length || element.closest(".modebar, script, style, option")) continue;
  if (![...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const style = getComputedStyle(element);
  const ink = numbers(element instanceof SVGElement ? style.fill : style.color);
  if ((ink.length > 3 && ink[3] === 0) || style.fillOpacity === "0") continue;
  found.push([ratio(ink, background(element)), element.textContent.trim().slice(0, 60)]);
}
return found.sort((a, b) => a[0] - b[0])[0];
