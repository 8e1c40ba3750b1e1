// Small loss curves for the rows of the list.
import { get, jobPath } from "./api.js";
import { replace, svg } from "./dom.js";

const POINTS = 48, WIDTH = 84, HEIGHT = 24, AT_ONCE = 3, FRESH_SECONDS = 10;

/** @type {Map<string, {at: number, values: number[]}>} */
const known = new Map();
/** @type {Map<string, Element>} */
const wanted = new Map();
let loading = 0;

/** @param {Element} element @param {number[]} values */
function draw(element, values) {
  const finite = values.filter(Number.isFinite);
  if (finite.length < 2) return replace(element);
  const low = Math.min(...finite), high = Math.max(...finite), range = high - low || 1;
  const path = values.map((value, i) => Number.isFinite(value)
    ? `${(1 + (WIDTH - 2) * i / (values.length - 1)).toFixed(1)},${(2 + (HEIGHT - 4) * (high === low ? 0.5 : (high - value) / range)).toFixed(1)}` : "")
    .filter(Boolean).join(" ");
  replace(element, svg("polyline", { points: path, fill: "none", class: "spark-line" }));
}

async function next() {
  if (loading >= AT_ONCE || wanted.size === 0) return;
  const [id, element] = /** @type {[string, Element]} */ (wanted.entries().next().value);
  wanted.delete(id);
  ++loading;
  try {
    const curves = await get(`${jobPath(id)}/curves`, { metrics: "loss", points: POINTS });
    const values = (curves.curves?.[0]?.mean ?? []).map(Number);
    known.set(id, { at: Date.now(), values });
    if (element.isConnected) draw(element, values);
  } catch {
    known.set(id, { at: Date.now(), values: [] });
  } finally {
    --loading;
    next();
  }
}

/** @returns {any} */
export const newSparkline = () => svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" });

/**
 * Draws what is known of a job, and asks for more if it is old.
 * @param {Element} element @param {string} id @param {boolean} live whether the job still trains
 */
export function showSparkline(element, id, live) {
  const found = known.get(id);
  if (element.getAttribute("data-job") !== id) {
    element.setAttribute("data-job", id);
    draw(element, found?.values ?? []);
  }
  if (found && (!live || Date.now() - found.at < FRESH_SECONDS * 1000)) return;
  wanted.set(id, element);
  next();
}

/** Forgets the rows that wait for a curve. */
export function forgetWanted() {
  wanted.clear();
}
