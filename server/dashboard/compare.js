// Several jobs side by side: curves, last, best, lowest and highest values, and differences of their specifications.
import { get, jobPath } from "./api.js";
import { Chart } from "./chart.js";
import { AXES, loadCurves, orNull, smooth, throughput, xsOf } from "./curves.js";
import { h, replace, setText } from "./dom.js";
import { bandOf, groupKeys, groupsOf } from "./groups.js";
import { bytes, glyphOf, grouped, isFinal, number, si, stateOf, word } from "./format.js";
import { poll } from "./poll.js";

const COLORS = ["--blue", "--orange", "--green", "--red", "--purple", "--sky", "--brown", "--muted"];
const EVERY_SECONDS = 3;
const METRICS = /** @type {[string, string, (value: number) => string][]} */ ([
  ["loss", "Loss", number], ["grad_norm", "Gradient norm", number], ["learning_rate", "Learning rate", number],
  ["throughput", "Samples per second", si], ["loss_scale", "Loss scale", si], ["memory_bytes", "Device memory", bytes]]);
const choice = { metric: "loss", axis: /** @type {import("./curves.js").Axis} */ ("step"), smoothing: 0.6, logarithmic: false, group: "" };

/** @typedef {{id: string, job: any, points: import("./curves.js").Points}} Entry */

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

/**
 * Returns the smoothed curve of a job over the chosen x.
 * @param {Entry} entry @returns {[number[], (number | null)[]]}
 */
function curveOf(entry) {
  const values = orNull(smooth(valuesOf(entry).mean, choice.smoothing));
  return [xsOf(entry.points, choice.axis), values.map((value) => (choice.logarithmic && !(value !== null && value > 0) ? null : value))];
}

/**
 * Returns the columns of lowest, highest and mean for each group of jobs.
 * @param {Entry[]} entries
 */
function bands(entries) {
  const found = [...groupsOf(entries, choice.group).values()].map((group) => bandOf(group.map(curveOf)));
  return join(found.flatMap((band) => [band.low, band.high, band.mean]
    .map((values) => /** @type {[number[], (number | null)[]]} */ ([band.xs, values]))));
}

/**
 * Returns a chart with a line for each job, or a line in a band for each group.
 * @param {Entry[]} entries @param {(range: [number, number] | null) => void} zoom
 */
function newChart(entries, zoom) {
  const line = (/** @type {string} */ label, /** @type {string} */ color) => ({ label, color, kind: /** @type {const} */ ("line") });
  const edge = (/** @type {string} */ color) => ({ label: "", color, kind: /** @type {const} */ ("edge"), silent: true });
  const groups = choice.group ? [...groupsOf(entries, choice.group)] : [];
  const series = choice.group
    ? groups.flatMap(([name, group], i) => [edge(COLORS[i]), edge(COLORS[i]), line(`${name} (${group.length})`, COLORS[i])])
    : entries.map((entry, i) => line(entry.id, COLORS[i]));
  const chart = new Chart({ title: "Curves", height: 340, sync: "compare", zoom, series,
    bands: groups.map((_, i) => /** @type {[number, number]} */ ([3 * i + 2, 3 * i + 1])) });
  chart.logarithmic = choice.logarithmic;
  chart.axis = choice.axis;
  return chart;
}

/** @param {Entry[]} entries */
function summary(entries) {
  const format = METRICS.find(([name]) => name === choice.metric)?.[2] ?? number;
  const least = (/** @type {number[]} */ values) => values.reduce((low, value) => (value < low ? value : low), Infinity);
  const groups = choice.group ? [...groupsOf(entries, choice.group).values()] : entries.map((entry) => [entry]);
  const colorOf = (/** @type {Entry} */ entry) => `var(${COLORS[groups.findIndex((group) => group.includes(entry))]})`;
  const shown = (/** @type {number | undefined} */ value) => (Number.isFinite(value) ? format(/** @type {number} */ (value)) : "–");
  return h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Job", "State", "Step", "Last", "Lowest", "Highest", "Best held-out loss"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, entries.map((entry) => {
      const values = valuesOf(entry), state = stateOf(entry.job);
      const last = [...values.mean].reverse().find(Number.isFinite);
      return h("tr", {},
        h("th", { scope: "row" }, h("i", { class: "swatch", style: { background: colorOf(entry) }, "aria-hidden": "true" }),
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
 * @param {string} id @returns {Promise<Entry>}
 */
async function load(id) {
  const [{ job }, points, events] = await Promise.all([
    get(jobPath(id)), loadCurves(id), get("events", { "filter.job_id": id, "filter.kinds": "evaluated", page_size: 1000, skip_dropped: true })]);
  job.best = (events.events ?? []).map((/** @type {any} */ event) => Number(event.evaluated.loss)).filter(Number.isFinite)
    .reduce((/** @type {number} */ low, /** @type {number} */ loss) => Math.min(low, loss), Infinity);
  return { id, job, points };
}

/** @param {import("./app.js").Frame} frame @param {string[]} ids @returns {Promise<import("./app.js").Screen>} */
export async function showCompare(frame, ids) {
  if (ids.length < 2) {
    frame.connection({ kind: "closed" });
    replace(frame.main, h("div", { class: "empty" }, h("h1", {}, "Compare"), h("p", {}, "Choose two to eight jobs in the list, then press Compare."), h("p", {}, h("a", { href: "#/" }, "All jobs"))));
    return { close: () => {} };
  }
  let entries = await Promise.all(ids.slice(0, COLORS.length).map((id) => load(id)));
  const table = h("div"), note = h("span", { class: "muted note" });
  /** @type {[number, number] | null} */
  let range = null;
  const zoom = (/** @type {[number, number] | null} */ to) => {
    range = to;
    draw();
  };
  if (!groupKeys(entries).includes(choice.group)) choice.group = "";
  let chart = newChart(entries, zoom);
  const place = h("div", {}, chart.element);
  function rebuild() {
    chart.close();
    chart = newChart(entries, zoom);
    replace(place, chart.element);
  }
  function draw() {
    chart.show(choice.group ? bands(entries) : join(entries.map(curveOf)), [], range);
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
  const axis = control(h("select", { id: "axis" }, AXES.map(([value, name]) => h("option", { value, selected: value === choice.axis }, name))), () => {
    choice.axis = axis.value;
    range = null;
    chart.setAxis(choice.axis);
  });
  const keys = groupKeys(entries);
  const group = control(h("select", { id: "group" }, h("option", { value: "" }, "Each job"),
    keys.map((key) => h("option", { value: key, selected: key === choice.group }, `Mean by ${key}`))), () => {
    choice.group = group.value;
    rebuild();
  });
  const slider = control(h("input", { type: "range", id: "smooth", min: "0", max: "0.99", step: "0.01", value: choice.smoothing }), () => { choice.smoothing = Number(slider.value); });
  const log = control(h("input", { type: "checkbox", checked: choice.logarithmic }), () => {
    choice.logarithmic = log.checked;
    chart.setLogarithmic(log.checked);
  });
  if (!frame.current()) return { close: () => chart.close() };
  replace(frame.main, h("h1", {}, `Compare ${entries.length} jobs`),
    ids.length > entries.length && h("p", { class: "muted" }, `The address names ${ids.length} jobs; these are the first ${entries.length}.`),
    h("section", { class: "box charts", "aria-label": "Curves" }, h("h2", { class: "hidden" }, "Curves"),
      h("div", { class: "tools" }, h("label", { for: "metric" }, "Metric "), metric, h("label", { for: "axis" }, "x "), axis, h("label", { for: "smooth" }, "Smoothing "), slider,
        h("label", { class: "check" }, log, " Logarithmic"), keys.length > 0 && [h("label", { for: "group" }, "Lines "), group], h("div", { class: "spacer" }), note), place),
    h("section", { class: "box" }, h("h2", {}, "Values"), table),
    h("section", { class: "box" }, h("h2", {}, "Differences of the specifications"), differences(entries)));
  draw();
  const running = () => entries.some((entry) => !isFinal(stateOf(entry.job)));
  const endPoll = poll(frame, EVERY_SECONDS, running(), async () => {
    entries = await Promise.all(entries.map((entry) => (isFinal(stateOf(entry.job)) ? entry : load(entry.id))));
    if (frame.current()) draw();
    return running();
  });
  const scheme = matchMedia("(prefers-color-scheme: dark)"), repaint = () => chart.rebuild();
  scheme.addEventListener("change", repaint);
  return {
    close: () => {
      endPoll();
      scheme.removeEventListener("change", repaint);
      chart.close();
    },
  };
}
