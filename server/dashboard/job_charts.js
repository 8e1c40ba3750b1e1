// The charts of one job: one choice of x, zoom, smoothing for all of them.
import { Chart } from "./chart.js";
import { AXES, POINTS, append, indexOf, loadCurves, missingSteps, orNull, placeOf, resolution, smooth, throughput, xsOf } from "./curves.js";
import { h, replace, setText } from "./dom.js";
import { bytes, grouped, isFinal, number, si, stateOf, word } from "./format.js";

const STYLES = /** @type {Object<string, {glyph: string, color: string, line: boolean, name: string}>} */ ({
  restart: { glyph: "↻", color: "--orange", line: true, name: "restart" },
  fallback: { glyph: "▼", color: "--purple", line: true, name: "precision change" },
  incident: { glyph: "!", color: "--red", line: true, name: "incident" },
  checkpoint: { glyph: "◆", color: "--muted", line: false, name: "checkpoint" },
  nan: { glyph: "✕", color: "--red", line: true, name: "loss not finite" },
});
const COARSE_SECONDS = 3;
// Kept while the tab is open: the same for every job.
const choice = { axis: /** @type {import("./curves.js").Axis} */ ("step"), smoothing: 0.6, logarithmic: false };

export class JobCharts {
  /** @param {string} job */
  constructor(job) {
    this.job = job;
    /** @type {import("./curves.js").Points | undefined} */
    this.all = undefined;
    /** @type {import("./curves.js").Points | undefined} */
    this.zoomed = undefined;
    /** @type {[number, number] | null} */
    this.range = null;
    this.again = false;
    this.extending = false;
    this.readTime = 0;
    this.steps = 0;
    this.ended = false;
    this.request = 0;
    const common = { zoom: (/** @type {[number, number] | null} */ range) => this.zoom(range), sync: "job" };
    const one = (/** @type {string} */ label, /** @type {string} */ color, /** @type {(value: number) => string} */ format) =>
      [{ label, color, kind: /** @type {const} */ ("edge"), silent: true }, { label, color, kind: /** @type {const} */ ("edge"), silent: true },
        { label, color, kind: /** @type {const} */ ("line"), format }];
    this.loss = new Chart({ ...common, title: "Loss", height: 300, bands: [[2, 1]], series: [
      { label: "lowest", color: "--blue", kind: "edge", silent: true }, { label: "highest", color: "--blue", kind: "edge", silent: true },
      { label: "raw", color: "--blue", kind: "faint" }, { label: "smoothed", color: "--blue", kind: "line" },
      { label: "FP32 (window mean)", color: "--orange", kind: "dashed" }, { label: "held-out", color: "--green", kind: "points" }] });
    this.scale = new Chart({ ...common, title: "Loss scale and skipped steps", logarithmic: true, y2: true, series: [
      { label: "scale", color: "--purple", kind: "step", format: si }, { label: "skipped", color: "--red", kind: "bars", scale: "y2" }] });
    this.speed = new Chart({ ...common, title: "Throughput", series: [{ label: "samples/s", color: "--green", kind: "line", format: si }] });
    this.norm = new Chart({ ...common, title: "Gradient norm", bands: [[2, 1]], logarithmic: true, series: one("norm", "--blue", (value) => number(value, 3)) });
    this.rate = new Chart({ ...common, title: "Learning rate", series: [{ label: "rate", color: "--orange", kind: "line" }] });
    this.memory = new Chart({ ...common, title: "Device memory", series: [{ label: "allocated", color: "--purple", kind: "line", format: bytes }] });
    this.charts = [this.loss, this.scale, this.speed, this.norm, this.rate, this.memory];
    /** @type {Map<string, Chart>} */
    this.metrics = new Map();
    this.common = common;
    this.note = h("span", { class: "muted note", role: "status" });
    this.reset = h("button", { class: "quiet", hidden: true, onclick: () => this.zoom(null) }, "Show all");
    this.key = h("div", { class: "key-row" });
    this.grid = h("div", { class: "grid" }, this.charts.slice(1).map((chart) => chart.element));
    this.element = h("section", { class: "box charts", "aria-label": "Curves" }, h("h2", { class: "hidden" }, "Curves"), this.tools(), this.loss.element, this.key,
      this.grid);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => this.charts.forEach((chart) => chart.rebuild());
    this.scheme.addEventListener("change", this.onScheme);
  }

  tools() {
    const axis = h("select", { id: "axis", onchange: () => {
      choice.axis = axis.value;
      this.range = null;
      this.zoomed = undefined;
      for (const chart of this.charts) chart.axis = choice.axis;
      this.charts.forEach((chart) => chart.rebuild());
      this.redraw();
    } }, AXES.map(([value, name]) => h("option", { value, selected: value === choice.axis }, name)));
    const slider = h("input", { type: "range", id: "smooth", min: "0", max: "0.99", step: "0.01", value: choice.smoothing, oninput: () => {
      choice.smoothing = Number(slider.value);
      this.redraw();
    } });
    const log = h("input", { type: "checkbox", id: "log", checked: choice.logarithmic, onchange: () => {
      choice.logarithmic = log.checked;
      this.loss.setLogarithmic(log.checked);
    } });
    this.loss.logarithmic = choice.logarithmic;
    for (const chart of this.charts) chart.axis = choice.axis;
    return h("div", { class: "tools" },
      h("label", { for: "axis" }, "x "), axis, h("label", { for: "smooth" }, "Smoothing "), slider, h("label", { class: "check" }, log, " Logarithmic"),
      h("div", { class: "spacer" }), this.note, this.reset);
  }

  async load() {
    this.all = await loadCurves(this.job).catch((error) => {
      if (error.status === 401) throw error;
      return undefined;
    });
  }

  start() {
    this.redraw();
  }

  /**
   * Reads the steps that are new, or all of them.
   * @param {boolean} again whether earlier steps may have changed
   */
  async extend(again) {
    this.again = this.again || again;
    if (this.extending) return;
    this.extending = true;
    try {
      const end = this.all?.last[this.all.last.length - 1] ?? 0;
      const grain = Math.max(1, ...(this.all?.counts ?? [])), made = this.steps - end;
      // A point of fewer steps than the points before it would look like another curve.
      if (grain > 1 && !this.again && (made < grain || Date.now() < this.readTime + COARSE_SECONDS * 1000)) return;
      const whole = !this.all || this.again || end === 0 || this.all.last.length >= 2 * POINTS;
      this.readTime = Date.now();
      this.again = false;
      const points = grain > 1 ? Math.min(POINTS, Math.round(made / grain)) : POINTS;
      const more = await (whole ? loadCurves(this.job) : loadCurves(this.job, end + 1, 0, points));
      if (whole || !this.all) this.all = more;
      else if (!append(this.all, more)) this.all = await loadCurves(this.job);
    } finally {
      this.extending = false;
    }
  }

  /**
   * Shows a range of x at once, and then with finer points.
   * @param {[number, number] | null} range
   */
  async zoom(range) {
    if (!this.all || this.all.last.length === 0) return;
    const xs = xsOf(this.all, choice.axis), low = xs[0], high = xs[xs.length - 1];
    const inside = range ? /** @type {[number, number]} */ ([Math.max(low, range[0]), Math.min(high, range[1])]) : null;
    const request = ++this.request;
    this.range = inside && inside[1] > inside[0] && (inside[0] > low || inside[1] < high) ? inside : null;
    this.zoomed = undefined;
    this.redraw();
    if (!this.range) return;
    const first = this.all.first[Math.max(0, indexOf(xs, this.range[0]) - 1)];
    const last = this.all.last[Math.min(xs.length - 1, indexOf(xs, this.range[1]) + 1)];
    const finer = await loadCurves(this.job, first, last).catch(() => undefined);
    if (request !== this.request || !finer) return;
    this.zoomed = finer;
    this.redraw();
  }

  /** @param {any} job @param {import("./curves.js").Mark[]} marks @param {any[]} history */
  show(job, marks, history) {
    this.marks = marks;
    this.history = history;
    this.steps = Number(job.progress?.step ?? 0);
    this.ended = isFinal(stateOf(job));
    this.redraw();
  }

  redraw() {
    const points = this.zoomed ?? this.all;
    if (!points || !this.element.isConnected) return;
    const xs = xsOf(points, choice.axis), marks = this.drawn(points, xs);
    const { loss, loss_scale: scale, grad_norm: norm, learning_rate: rate, memory_bytes: memory } = points.metrics;
    const edges = (/** @type {{min: number[], max: number[]}} */ metric) => [orNull(metric.min), orNull(metric.max)];
    const lines = marks.filter((mark) => mark.line && mark.kind !== "nan");
    const positive = (/** @type {(number | null)[]} */ values) => (choice.logarithmic ? values.map((value) => (value !== null && value > 0 ? value : null)) : values);
    this.loss.show([xs, ...[...edges(loss), orNull(loss.mean), orNull(smooth(loss.mean, choice.smoothing)), this.baseline(points), this.heldOut(points)].map(positive)],
      marks, this.range);
    const skipped = points.skipped.map((count) => (count > 0 ? count : null));
    const scaled = scale.mean.some((value) => value > 1);
    const noScale = xs.map(() => null);
    this.scale.show([xs, scaled ? orNull(scale.mean) : noScale, scaled || skipped.some(Boolean) ? skipped : noScale], lines, this.range);
    this.speed.show([xs, orNull(smooth(throughput(points), choice.smoothing))], lines, this.range);
    this.norm.show([xs, ...[norm.min, norm.max, norm.mean].map((values) => values.map((value) => (value > 0 && Number.isFinite(value) ? value : null)))], lines, this.range);
    this.rate.show([xs, orNull(rate.mean)], lines, this.range);
    this.memory.show([xs, memory.mean.map((value) => (value > 0 ? value : null))], lines, this.range);
    this.showMetrics(points, xs);
    for (const chart of [this.scale, this.memory]) chart.element.hidden = !chart.note.hidden;
    const missing = missingSteps(this.all ?? points, this.ended ? this.steps : 0);
    setText(this.note, [resolution(points), missing > 0 && `${grouped(missing)} steps are missing`].filter(Boolean).join(" · "));
    this.reset.hidden = !this.range;
    this.showKey(marks);
  }

  /** @param {import("./curves.js").Points} points @param {number[]} xs @returns {import("./chart.js").Drawn[]} */
  drawn(points, xs) {
    const drawn = [];
    for (const mark of this.marks ?? []) {
      const style = STYLES[mark.kind], place = style ? placeOf(points, mark) : -1;
      if (place >= 0) drawn.push({ x: xs[place], kind: mark.kind, ...style });
    }
    let last = -2;
    points.metrics.loss.mean.forEach((value, i) => {
      if (!Number.isNaN(value) || points.counts[i] === 0) return;
      if (i !== last + 1) drawn.push({ x: xs[i], kind: "nan", ...STYLES.nan });
      last = i;
    });
    return drawn;
  }

  /**
   * Returns the FP32 loss of the history's rows at their steps.
   * @param {import("./curves.js").Points} points
   */
  baseline(points) {
    const column = /** @type {(number | null)[]} */ (points.last.map(() => null));
    for (const row of this.history ?? []) {
      const place = row.baseline_loss === undefined || row.baseline_loss === null ? -1 : placeOf(points, { kind: "state", time: 0, step: Number(row.step), text: "" });
      if (place >= 0) column[place] = Number(row.baseline_loss);
    }
    return column;
  }

  /** @param {import("./curves.js").Points} points */
  heldOut(points) {
    return this.measured(points, "evaluation", (mark) => mark.value);
  }

  /**
   * Returns a value of the evaluations or reports at their steps.
   * @param {import("./curves.js").Points} points @param {string} kind @param {(mark: import("./curves.js").Mark) => number | undefined} value
   */
  measured(points, kind, value) {
    const column = /** @type {(number | null)[]} */ (points.last.map(() => null));
    for (const mark of this.marks ?? []) {
      const place = mark.kind === kind ? placeOf(points, mark) : -1;
      if (place >= 0 && Number.isFinite(value(mark))) column[place] = value(mark) ?? null;
    }
    return column;
  }

  /**
   * Shows a chart for each metric that evaluations or reports name.
   * @param {import("./curves.js").Points} points @param {number[]} xs
   */
  showMetrics(points, xs) {
    for (const kind of ["evaluation", "report"]) {
      const marks = (this.marks ?? []).filter((mark) => mark.kind === kind);
      for (const name of new Set(marks.flatMap((mark) => Object.keys(mark.metrics ?? {})))) this.showMetric(kind, name, points, xs);
    }
  }

  /** @param {string} kind @param {string} name @param {import("./curves.js").Points} points @param {number[]} xs */
  showMetric(kind, name, points, xs) {
    const key = `${kind} ${name}`;
    let chart = this.metrics.get(key);
    if (!chart) {
      const title = kind === "report" ? `Reported ${name}` : `Held-out ${word(name).toLowerCase()}`;
      chart = new Chart({ ...this.common, title, series: [{ label: name, color: kind === "report" ? "--orange" : "--green", kind: "dots" }] });
      chart.axis = choice.axis;
      this.metrics.set(key, chart);
      this.charts.push(chart);
      this.grid.append(chart.element);
    }
    chart.show([xs, this.measured(points, kind, (mark) => mark.metrics?.[name])], [], this.range);
  }

  /** @param {import("./chart.js").Drawn[]} marks */
  showKey(marks) {
    const counts = Object.entries(STYLES).map(([kind, style]) => ({ style, count: marks.filter((mark) => mark.kind === kind).length })).filter(({ count }) => count > 0);
    const text = counts.map(({ style, count }) => `${count} ${style.name}`).join();
    if (this.key.getAttribute("data-text") === text) return;
    this.key.setAttribute("data-text", text);
    replace(this.key, counts.map(({ style, count }) => h("span", { class: "key" },
      h("span", { style: { color: `var(${style.color})` }, "aria-hidden": "true" }, style.glyph), ` ${style.name} `, h("b", {}, String(count)))));
  }

  close() {
    this.scheme.removeEventListener("change", this.onScheme);
    for (const chart of this.charts) chart.close();
  }
}
