// Jobs that share the value of a label, as one curve: the mean of the jobs, and the band from the lowest to the highest.
import { indexOf } from "./curves.js";

/** @typedef {[number[], (number | null)[]]} Curve x ascending, and y */
/** @typedef {{xs: number[], mean: (number | null)[], low: (number | null)[], high: (number | null)[]}} Band */

/**
 * Returns the keys of labels by which the jobs can be put together: some jobs share a value.
 * @param {{job: any}[]} entries
 */
export function groupKeys(entries) {
  const keys = [...new Set(entries.flatMap((entry) => Object.keys(entry.job.labels ?? {})))];
  return keys.filter((key) => groupsOf(entries, key).size < entries.length).sort();
}

/**
 * Returns the jobs by the value of their label; jobs without the label are one group.
 * @template {{job: any}} T
 * @param {T[]} entries @param {string} key @returns {Map<string, T[]>}
 */
export function groupsOf(entries, key) {
  const groups = /** @type {Map<string, T[]>} */ (new Map());
  for (const entry of entries) {
    const value = entry.job.labels?.[key];
    const name = value === undefined ? `without ${key}` : `${key}=${value}`;
    groups.set(name, [...(groups.get(name) ?? []), entry]);
  }
  return groups;
}

/**
 * Returns the value of a curve at x, on the line between its points; null outside and beside a gap.
 * @param {Curve} curve @param {number} x
 */
function at([xs, ys], x) {
  const right = indexOf(xs, x);
  if (right >= xs.length) return null;
  if (xs[right] === x) return ys[right];
  const a = ys[right - 1], b = ys[right];
  if (right === 0 || a === null || b === null) return null;
  return a + (b - a) * (x - xs[right - 1]) / (xs[right] - xs[right - 1]);
}

/**
 * Returns mean, lowest and highest of the curves at every x of any of them. Curves that have ended no longer count.
 * @param {Curve[]} curves @returns {Band}
 */
export function bandOf(curves) {
  const xs = [...new Set(curves.flatMap(([x]) => x))].sort((a, b) => a - b);
  const band = /** @type {Band} */ ({ xs, mean: [], low: [], high: [] });
  for (const x of xs) {
    const values = /** @type {number[]} */ (curves.map((curve) => at(curve, x)).filter((value) => value !== null));
    const some = values.length > 0;
    band.mean.push(some ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
    band.low.push(some ? Math.min(...values) : null);
    band.high.push(some ? Math.max(...values) : null);
  }
  return band;
}
