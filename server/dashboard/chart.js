// A chart: uPlot with our axes, marks and keys. Charts of one page share cursor and zoom.
import { h, replace } from "./dom.js";
import { clock, duration, number, si } from "./format.js";

const uPlot = /** @type {any} */ (globalThis).uPlot;

/**
 * @typedef {Object} Series
 * @property {string} label
 * @property {string} color a variable of style.css, e.g. "--blue"
 * @property {"line" | "faint" | "edge" | "points" | "dots" | "step" | "bars" | "dashed"} kind
 * @property {string} [scale] "y", or "y2" for an axis on the right
 * @property {(value: number) => string} [format]
 * @property {boolean} [silent] not in the legend
 */
/** @typedef {{x: number, kind: string, glyph: string, color: string, line: boolean}} Drawn */

/** @param {string} name */
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** @param {string} hex @param {number} alpha */
const faded = (hex, alpha) => `${hex}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;

/** @param {string} axis @param {number} value */
export function axisText(axis, value) {
  if (axis === "training") return duration(value);
  if (axis === "clock") return clock(new Date(value * 1000).toISOString());
  return si(value);
}

const DAY_SECONDS = 86400;
// Distances between the ticks of a duration axis, in seconds.
const DURATIONS = [0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * DAY_SECONDS)];

/**
 * Returns the texts of ticks of the clock, in local time: the date stands below the first tick of each day, seconds only if ticks are that close.
 * @param {number[]} times Unix seconds
 */
export function clockTicks(times) {
  const close = times.length > 1 && times[1] - times[0] < 60;
  let day = "";
  return times.map((time) => {
    const date = new Date(time * 1000), before = day;
    day = date.toLocaleDateString([], { month: "short", day: "numeric" });
    if (times[1] - times[0] >= DAY_SECONDS) return day;
    const text = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(close ? { second: "2-digit" } : {}), hourCycle: "h23" });
    return day === before ? text : `${text}\n${day}`;
  });
}

/**
 * Returns 1, 2 and 5 times the powers of ten between two values, or only the powers if there are many.
 * @param {number} low @param {number} high
 */
function logarithmicSplits(low, high) {
  const splits = [];
  const factors = Math.log10(high / low) > 2.5 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
    splits.push(...factors.map((factor) => factor * 10 ** power).filter((value) => value >= low && value <= high));
  }
  return splits;
}

/**
 * Draws the marks of a chart over its curves.
 * @param {any} plot @param {Drawn[]} marks
 */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio;
  const { min, max } = plot.scales.x;
  ctx.save();
  ctx.lineWidth = ratio;
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  for (const mark of marks) {
    if (mark.x < min || mark.x > max) continue;
    const x = Math.round(plot.valToPos(mark.x, "x", true));
    ctx.strokeStyle = ctx.fillStyle = color(mark.color);
    if (mark.line) {
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x + 0.5, bbox.top + 4 * ratio);
      ctx.lineTo(x + 0.5, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(mark.glyph, x, bbox.top);
    } else {
      ctx.fillText(mark.glyph, x, bbox.top + bbox.height - 2 * ratio);
    }
  }
  ctx.restore();
}

/** One panel with a title, a legend that follows the cursor, and the plot. */
export class Chart {
  /**
   * @param {{title: string, series: Series[], height?: number, bands?: [number, number][], logarithmic?: boolean, y2?: boolean,
   *   zoom: (range: [number, number] | null) => void, sync: string}} options
   */
  constructor(options) {
    this.options = options;
    this.axis = "step";
    this.logarithmic = options.logarithmic ?? false;
    /** @type {[number, number] | null} */
    this.range = null;
    /** @type {any[]} */
    this.data = [[]];
    /** @type {Drawn[]} */
    this.marks = [];
    this.legend = h("div", { class: "legend" });
    this.plot = h("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${options.title}. Plus and minus zoom, arrows move, zero shows all.`,
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.onKey(event) });
    this.note = h("p", { class: "none", hidden: true }, "Nothing was recorded.");
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("h3", {}, options.title), this.legend), this.plot, this.note);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.plot);
  }

  close() {
    this.observer.disconnect();
    this.u?.destroy();
  }

  size() {
    return { width: Math.max(120, this.plot.clientWidth), height: this.options.height ?? 170 };
  }

  resize() {
    if (this.u && Math.abs(this.u.width - this.plot.clientWidth) > 1) this.u.setSize(this.size());
  }

  /** @param {string} axis */
  setAxis(axis) {
    this.axis = axis;
    this.rebuild();
  }

  /** @param {boolean} logarithmic */
  setLogarithmic(logarithmic) {
    this.logarithmic = logarithmic;
    this.rebuild();
  }

  rebuild() {
    this.u?.destroy();
    this.u = undefined;
    this.show(this.data, this.marks, this.range);
  }

  /** @param {any[]} data x, then a column for each series @param {Drawn[]} marks @param {[number, number] | null} range */
  show(data, marks, range) {
    this.data = data;
    this.marks = marks;
    this.range = range;
    const empty = !data.slice(1).some((column) => column.some((/** @type {any} */ value) => value !== null));
    this.note.hidden = !empty;
    this.plot.hidden = empty;
    if (empty || !this.plot.isConnected) return;
    if (this.u) this.u.setData(data, true);
    else this.u = new uPlot(this.uplotOptions(), data, this.plot);
    this.showLegend(this.u.cursor.idx);
  }

  uplotOptions() {
    const grid = { stroke: color("--grid"), width: 1 }, ticks = { show: false };
    const axis = { stroke: color("--muted"), grid, ticks, font: "11px system-ui, sans-serif" };
    const splits = this.logarithmic ? { splits: (/** @type {any} */ u) => logarithmicSplits(u.scales.y.min, u.scales.y.max) } : {};
    const log = { distr: this.logarithmic ? 3 : 1 };
    const isClock = this.axis === "clock";
    return {
      ...this.size(), legend: { show: false }, ms: 1e-3,
      cursor: {
        sync: { key: this.options.sync, setSeries: false, scales: ["x", null] }, drag: { x: true, y: false, setScale: false },
        points: { size: 6 }, y: false,
        bind: { dblclick: () => () => this.options.zoom(null) },
      },
      scales: {
        x: { time: isClock, range: (/** @type {any} */ u, /** @type {number} */ low, /** @type {number} */ high) => this.range ?? (low === high ? [low - 1, high + 1] : [low, high]) },
        y: log, y2: { range: (/** @type {any} */ u, /** @type {number} */ low, /** @type {number} */ high) => [0, Math.max(1, high) * 4] },
      },
      axes: [
        { ...axis, space: 90, size: isClock ? 44 : 28, gap: 6, ...(this.axis === "training" ? { incrs: DURATIONS } : {}),
          values: (/** @type {any} */ u, /** @type {number[]} */ splits) => (isClock ? clockTicks(splits) : splits.map((value) => axisText(this.axis, value))) },
        { ...axis, ...splits, size: 56, gap: 6, filter: (/** @type {any} */ u, /** @type {number[]} */ found) => found,
          values: (/** @type {any} */ u, /** @type {number[]} */ found) => found.map((value) => this.format(this.options.bands?.length ? 3 : 1)(value)) },
        ...(this.options.y2 ? [{ ...axis, scale: "y2", side: 1, size: 40, grid: { show: false }, values: (/** @type {any} */ u, /** @type {number[]} */ splits) => splits.map((value) => si(value)) }] : []),
      ],
      bands: (this.options.bands ?? []).map((series) => ({ series, fill: faded(color(this.options.series[series[0] - 1].color), 0.16) })),
      series: [{}, ...this.options.series.map((series) => this.uplotSeries(series))],
      hooks: {
        draw: [(/** @type {any} */ u) => drawMarks(u, this.marks)],
        setCursor: [(/** @type {any} */ u) => this.showLegend(u.cursor.idx)],
        setSelect: [(/** @type {any} */ u) => {
          const { left, width } = u.select;
          if (width < 4) return;
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.options.zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
        }],
      },
    };
  }

  /** @param {Series} series */
  uplotSeries(series) {
    const stroke = color(series.color), points = { show: false }, scale = series.scale ?? "y";
    switch (series.kind) {
      case "edge": return { scale, stroke: "transparent", width: 0, points };
      case "faint": return { scale, stroke: faded(stroke, 0.35), width: 1, points };
      case "dashed": return { scale, stroke, width: 1.5, dash: [6, 4], spanGaps: true, points };
      case "points": return { scale, stroke, width: 0, paths: () => null, points: { show: true, size: 7, fill: color("--surface"), stroke, width: 2 } };
      case "dots": return { scale, stroke, width: 1.5, spanGaps: true, points: { show: true, size: 5, fill: stroke } };
      case "step": return { scale, stroke, width: 1.5, paths: uPlot.paths.stepped({ align: 1 }), points };
      case "bars": return { scale, stroke, fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.6, 3] }), points };
      default: return { scale, stroke, width: 1.75, spanGaps: this.options.sync === "compare", points };
    }
  }

  /** @param {number} column */
  format(column) {
    return this.options.series[column - 1].format ?? ((/** @type {number} */ value) => number(value, 3));
  }

  /**
   * Shows the values at the cursor, or the newest.
   * @param {number | null | undefined} index
   */
  showLegend(index) {
    const parts = this.options.series.map((series, i) => {
      const column = this.data[i + 1];
      if (series.silent || !column.some((/** @type {any} */ value) => value !== null && value !== undefined)) return null;
      let at = index ?? column.length - 1;
      while (at > 0 && column[at] === null && (index === null || index === undefined)) --at;
      const value = column[at];
      return h("span", { class: "key" }, h("i", { class: series.kind, style: { color: `var(${series.color})` }, "aria-hidden": "true" }),
        series.label, " ", h("b", {}, value === null || value === undefined ? "–" : this.format(i + 1)(value)));
    });
    const x = index === null || index === undefined ? null : this.data[0][index];
    replace(this.legend, x === null || x === undefined ? null : h("span", { class: "key at" }, axisText(this.axis, x)), parts);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (!this.u) return;
    const { min, max } = this.u.scales.x, width = max - min;
    const ranges = /** @type {Object<string, [number, number] | null>} */ ({
      "+": [min + width / 4, max - width / 4], "=": [min + width / 4, max - width / 4], "-": [min - width / 2, max + width / 2],
      ArrowLeft: [min - width / 4, max - width / 4], ArrowRight: [min + width / 4, max + width / 4], 0: null,
    });
    if (event.ctrlKey || event.metaKey || !(event.key in ranges)) return;
    event.preventDefault();
    this.options.zoom(ranges[event.key]);
  }
}
