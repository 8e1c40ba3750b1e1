// Several jobs beside each other: curves, last, best, lowest and highest values, and how their specifications differ.
import { get, jobPath } from "./api.js";
import { Chart } from "./chart.js";
import { loadCurves, orNull, smooth, throughput, xsOf } from "./curves.js";
import { h, replace, setText } from "./dom.js";
import { bytes, glyphOf, grouped, isFinal, number, si, stateOf, word } from "./format.js";

const COLORS = ["--blue", "--orange", "--green", "--red", "--purple", "--sky", "--brown", "--muted"];
const EVERY_SECONDS = 3;
const METRICS = /** @type {[string, string, (value: number) => string][]} */ ([
  ["loss", "Loss", number], ["grad_norm", "Gradient norm", number], ["learning_rate", "Learning rate", number],
  ["throughput", "Samples per second", si], ["loss_scale", "Loss scale", si], ["memory_bytes", "Device memory", bytes]]);
const choice = { metric: "loss", axis: /** @type {import("./curves.js").Axis} */ ("step"), smoothing: 0.6, logarithmic: false };

/** @typedef {{id: string, job: any, points: import("./curves.js").Points, color: string}} Entry */

/**
 * Returns a specification as one value for each path.
 * @param {any} value @param {string} [path] @returns {[string, string][]}
 */
function flatten(value, path = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [[path, Array.isArray(value) ? JSON.stringify(value) : String(value)]];
  return Object.entries(value).flatMap(([name, each]) => flatten(each, path ? `${path}.${name}` : name));
}

/** @param {Entry} entry @returns {{min: number[], max: number[], mean: number[]}} */
function valuesOf(entry) {
  if (choice.metric !== "throughput") return entry.points.metrics[choice.metric];
  const values = throughput(entry.points);
  return { min: values, max: values, mean: values };
}

/**
 * Joins curves of different steps into columns over one x.
 * @param {[number[], (number | null)[]][]} curves
 */
function join(curves) {
  const xs = [...new Set(curves.flatMap(([x]) => x))].sort((a, b) => a - b);
  const columns = curves.map(([x, y]) => {
    const at = new Map(x.map((value, i) => [value, y[i]]));
    return xs.map((value) => at.get(value) ?? undefined);
  });
  return [xs, ...columns];
}

/** @param {Entry[]} entries */
function summary(entries) {
  const format = METRICS.find(([name]) => name === choice.metric)?.[2] ?? number;
  const least = (/** @type {number[]} */ values) => values.reduce((low, value) => (value < low ? value : low), Infinity);
  const shown = (/** @type {number | undefined} */ value) => (Number.isFinite(value) ? format(/** @type {number} */ (value)) : "–");
  return h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Job", "State", "Step", "Last", "Lowest", "Highest", "Best held-out loss"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, entries.map((entry) => {
      const values = valuesOf(entry), state = stateOf(entry.job);
      const last = [...values.mean].reverse().find(Number.isFinite);
      return h("tr", {},
        h("th", { scope: "row" }, h("i", { class: "swatch", style: { background: `var(${entry.color})` }, "aria-hidden": "true" }),
          h("a", { href: `#/jobs/${encodeURIComponent(entry.id)}`, class: "mono" }, entry.id)),
        h("td", {}, h("span", { class: "state", "data-state": state }, h("span", { class: "glyph", "aria-hidden": "true" }, glyphOf(state)), word(state))),
        [grouped(entry.job.progress?.step ?? 0), shown(last), shown(least(values.min)), shown(-least(values.max.map((value) => -value))), shown(entry.job.best)]
          .map((text) => h("td", { class: "right" }, text)));
    }))));
}

/** @param {Entry[]} entries */
function differences(entries) {
  const specs = entries.map((entry) => new Map(flatten(entry.job.spec)));
  const paths = [...new Set(specs.flatMap((spec) => [...spec.keys()]))].filter((path) => new Set(specs.map((spec) => spec.get(path) ?? "–")).size > 1);
  if (!paths.length) return h("p", { class: "muted" }, "The specifications are equal.");
  return h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Field"), entries.map((entry) => h("th", { scope: "col", class: "mono" }, entry.id)))),
    h("tbody", {}, paths.map((path) => h("tr", {}, h("th", { scope: "row", class: "mono" }, path), specs.map((spec) => h("td", { class: "mono" }, spec.get(path) ?? "–")))))));
}

/**
 * Reads a job, its curves, and the best of its evaluations.
 * @param {string} id @param {number} i @returns {Promise<Entry>}
 */
async function load(id, i) {
  const [{ job }, points, events] = await Promise.all([
    get(jobPath(id)), loadCurves(id), get("events", { "filter.job_id": id, "filter.kinds": "evaluated", page_size: 1000, skip_dropped: true })]);
  job.best = (events.events ?? []).map((/** @type {any} */ event) => Number(event.evaluated.loss)).filter(Number.isFinite)
    .reduce((/** @type {number} */ low, /** @type {number} */ loss) => Math.min(low, loss), Infinity);
  return { id, job, points, color: COLORS[i % COLORS.length] };
}

/** @param {import("./app.js").Frame} frame @param {string[]} ids @returns {Promise<import("./app.js").Screen>} */
export async function showCompare(frame, ids) {
  if (ids.length < 2) {
    frame.connection({ kind: "closed" });
    replace(frame.main, h("div", { class: "empty" }, h("h1", {}, "Compare"), h("p", {}, "Choose two to eight jobs in the list, then press Compare."), h("p", {}, h("a", { href: "#/" }, "All jobs"))));
    return { close: () => {} };
  }
  let entries = await Promise.all(ids.slice(0, COLORS.length).map(load));
  const table = h("div"), note = h("span", { class: "muted note" });
  /** @type {[number, number] | null} */
  let range = null;
  const chart = new Chart({ title: "Curves", height: 340, sync: "compare",
    zoom: (to) => {
      range = to;
      draw();
    },
    series: entries.map((entry) => ({ label: entry.id, color: entry.color, kind: /** @type {const} */ ("line") })) });
  chart.logarithmic = choice.logarithmic;
  chart.axis = choice.axis;
  function draw() {
    const curves = entries.map((entry) => {
      const xs = xsOf(entry.points, choice.axis);
      const values = orNull(smooth(valuesOf(entry).mean, choice.smoothing)).map((value) => (choice.logarithmic && !(value !== null && value > 0) ? null : value));
      return /** @type {[number[], (number | null)[]]} */ ([xs, values]);
    });
    chart.show(join(curves), [], range);
    replace(table, summary(entries));
    setText(note, entries.some((entry) => entry.points.last.length === 0) ? "A job without curves is not drawn" : "");
  }
  const control = (/** @type {any} */ element, /** @type {() => void} */ change) => {
    element.addEventListener("input", () => {
      change();
      draw();
    });
    return element;
  };
  const metric = control(h("select", { id: "metric" }, METRICS.map(([value, name]) => h("option", { value, selected: value === choice.metric }, name))), () => { choice.metric = metric.value; });
  const axis = control(h("select", { id: "axis" }, [["step", "Step"], ["training", "Training time"], ["clock", "Clock"], ["samples", "Samples"]]
    .map(([value, name]) => h("option", { value, selected: value === choice.axis }, name))), () => {
    choice.axis = axis.value;
    range = null;
    chart.setAxis(choice.axis);
  });
  const slider = control(h("input", { type: "range", id: "smooth", min: "0", max: "0.99", step: "0.01", value: choice.smoothing }), () => { choice.smoothing = Number(slider.value); });
  const log = control(h("input", { type: "checkbox", checked: choice.logarithmic }), () => {
    choice.logarithmic = log.checked;
    chart.setLogarithmic(log.checked);
  });
  if (!frame.current()) return { close: () => chart.close() };
  replace(frame.main, h("h1", {}, `Compare ${entries.length} jobs`),
    h("section", { class: "box charts", "aria-label": "Curves" }, h("h2", { class: "hidden" }, "Curves"),
      h("div", { class: "tools" }, h("label", { for: "metric" }, "Metric "), metric, h("label", { for: "axis" }, "x "), axis, h("label", { for: "smooth" }, "Smoothing "), slider,
        h("label", { class: "check" }, log, " Logarithmic"), h("div", { class: "spacer" }), note), chart.element),
    h("section", { class: "box" }, h("h2", {}, "Values"), table),
    h("section", { class: "box" }, h("h2", {}, "Differences of the specifications"), differences(entries)));
  draw();
  const running = () => entries.some((entry) => !isFinal(stateOf(entry.job)));
  frame.connection({ kind: running() ? "live" : "closed" });
  const timer = setInterval(async () => {
    if (document.hidden || !running()) return;
    try {
      entries = await Promise.all(entries.map((entry, i) => (isFinal(stateOf(entry.job)) ? entry : load(entry.id, i))));
      frame.connection({ kind: running() ? "live" : "closed" });
      if (frame.current()) draw();
    } catch (error) {
      frame.connection({ kind: "reconnecting", why: String(error) });
    }
  }, EVERY_SECONDS * 1000);
  const scheme = matchMedia("(prefers-color-scheme: dark)"), repaint = () => chart.rebuild();
  scheme.addEventListener("change", repaint);
  return {
    close: () => {
      clearInterval(timer);
      scheme.removeEventListener("change", repaint);
      chart.close();
    },
  };
}
