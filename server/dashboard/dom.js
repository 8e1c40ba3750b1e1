// Elements, built without markup: every string becomes a text node, so that a job's name cannot be HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * Creates an element. `on...` properties are listeners; `style` is an object, set through the CSSOM; the others are attributes.
 * @param {string} tag @param {Object<string, any>} [properties] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * Creates an SVG element, like `h`.
 * @param {string} tag @param {Object<string, any>} [properties] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** @param {any} element @param {Object<string, any> | undefined} properties @param {(Child | Child[])[]} children */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, String(text));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(.../** @type {any[]} */ (children.flat().filter((child) => child || child === "")));
  return element;
}

/**
 * Replaces the children of an element.
 * @param {Element} element @param {...(Child | Child[])} children
 */
export function replace(element, ...children) {
  element.replaceChildren(.../** @type {any[]} */ (children.flat().filter((child) => child || child === "")));
}

/**
 * Sets a text if it changed, so that unchanged nodes cost no layout.
 * @param {Node} node @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Sets or removes an attribute if it changed.
 * @param {Element} element @param {string} name @param {string | null} value
 */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/**
 * Returns a function that draws at most ten times a second, and not at all while the page is hidden.
 * @param {() => void} draw
 */
export function throttled(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => requestAnimationFrame(() => {
      waiting = false;
      draw();
    }), 100);
  };
}
