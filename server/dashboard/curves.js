// The curves of a job as columns of numbers, and where its events lie on them.
import { get, jobPath } from "./api.js";

export const POINTS = 1000;
const METRICS = ["loss", "loss_scale", "grad_norm", "learning_rate", "step_seconds", "memory_bytes"];

/**
 * Points of a job, each of one or more steps. A metric without a finite value in a point is NaN there.
 * @typedef {Object} Points
 * @property {number[]} first @property {number[]} last @property {number[]} counts @property {number[]} skipped
 * @property {number[]} training @property {number[]} times @property {number[]} samples
 * @property {Object<string, {min: number[], max: number[], mean: number[]}>} metrics
 * @property {number} newest newest step of the job
 */
/** @typedef {"step" | "training" | "clock" | "samples"} Axis */

const zone = new Intl.DateTimeFormat([], { timeZoneName: "short" }).formatToParts().find((part) => part.type === "timeZoneName")?.value;
/** The choices of x for charts, with their names for people. The clock is that of the browser. */
export const AXES = /** @type {[Axis, string][]} */ ([["step", "Step"], ["training", "Training time"], ["clock", `Clock, ${zone}`], ["samples", "Samples"]]);

const numbers = (/** @type {any[] | undefined} */ list) => (list ?? []).map(Number);

/** @param {any} response @returns {Points} */
function read(response) {
  const metrics = /** @type {Points["metrics"]} */ ({});
  for (const name of METRICS) metrics[name] = { min: [], max: [], mean: [] };
  for (const curve of response.curves ?? []) {
    metrics[curve.metric] = { min: numbers(curve.min), max: numbers(curve.max), mean: numbers(curve.mean) };
  }
  return withGaps({
    first: numbers(response.first_steps), last: numbers(response.last_steps), counts: numbers(response.counts),
    skipped: numbers(response.skipped), training: numbers(response.training_seconds), times: numbers(response.times),
    samples: numbers(response.samples), metrics, newest: Number(response.last_step ?? 0),
  });
}

/**
 * Adds a point of no steps where steps are missing, so that no line is drawn across them.
 * @param {Points} points @returns {Points}
 */
function withGaps(points) {
  for (let i = points.last.length - 1; i > 0; --i) {
    if (points.first[i] <= points.last[i - 1] + 1) continue;
    points.first.splice(i, 0, points.last[i - 1] + 1);
    points.last.splice(i, 0, points.first[i + 1] - 1);
    points.counts.splice(i, 0, 0);
    points.skipped.splice(i, 0, 0);
    for (const name of /** @type {const} */ (["training", "times", "samples"])) {
      points[name].splice(i, 0, (points[name][i - 1] + points[name][i]) / 2);
    }
    for (const metric of Object.values(points.metrics)) {
      for (const part of /** @type {const} */ (["min", "max", "mean"])) metric[part].splice(i, 0, NaN);
    }
  }
  return points;
}

/**
 * Returns how many steps are missing: those of gaps, and those after the last point of a job that has made `made` steps.
 * @param {Points} points @param {number} made
 */
export function missingSteps(points, made) {
  const gaps = points.counts.reduce((sum, count, i) => (count > 0 ? sum : sum + points.last[i] - points.first[i] + 1), 0);
  return gaps + Math.max(0, made - points.newest);
}

/**
 * Reads the points between two steps.
 * @param {string} job @param {number} [from] @param {number} [to] @param {number} [points] at most
 */
export async function loadCurves(job, from = 0, to = 0, points = POINTS) {
  return read(await get(`${jobPath(job)}/curves`, { from_step: from, to_step: to, points }));
}

/**
 * Appends later points. Returns false if steps were made again, so that all must be read again.
 * @param {Points} points @param {Points} more
 */
export function append(points, more) {
  const end = points.last[points.last.length - 1] ?? 0;
  if (more.newest < end) return false;
  points.newest = more.newest;
  let skip = more.first.findIndex((step) => step > end);
  if (skip < 0) skip = more.first.length;
  for (const name of /** @type {const} */ (["first", "last", "counts", "skipped", "training", "times", "samples"])) {
    points[name].push(...more[name].slice(skip));
  }
  for (const [name, metric] of Object.entries(points.metrics)) {
    for (const part of /** @type {const} */ (["min", "max", "mean"])) metric[part].push(...more.metrics[name][part].slice(skip));
  }
  return true;
}

/** @param {Points} points @param {Axis} axis */
export function xsOf(points, axis) {
  return { step: points.last, training: points.training, clock: points.times, samples: points.samples }[axis];
}

/**
 * Returns the first index whose value is not below x.
 * @param {number[]} ascending @param {number} x
 */
export function indexOf(ascending, x) {
  let low = 0, high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Returns training examples per second in each point.
 * @param {Points} points
 */
export function throughput(points) {
  return points.samples.map((samples, i) => {
    const steps = points.last[i] - (points.last[i - 1] ?? points.first[i] - 1);
    const made = samples - (points.samples[i - 1] ?? samples * (1 - steps / Math.max(1, points.last[i])));
    return made / Math.max(1, steps) / points.metrics.step_seconds.mean[i];
  });
}

/**
 * Smooths by an exponential moving average that is corrected for its start, so that a constant curve stays constant.
 * @param {number[]} values @param {number} weight 0 to below 1
 */
export function smooth(values, weight) {
  let sum = 0, total = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return NaN;
    sum = sum * weight + (1 - weight) * value;
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/**
 * Returns values as uPlot expects them: null where there is none.
 * @param {number[]} values
 */
export const orNull = (values) => values.map((value) => (Number.isFinite(value) ? value : null));

/**
 * Says how many steps a point stands for.
 * @param {Points} points
 */
export function resolution(points) {
  const n = points.last.length;
  if (n === 0) return "No curves yet";
  const each = Math.max(1, Math.round(points.counts.reduce((sum, count) => sum + count, 0) / points.counts.filter(Boolean).length));
  return each === 1 ? "Every step is shown" : `One point is ${each} steps`;
}

/**
 * An event of a job, as a mark for the charts and a row for the list.
 * @typedef {Object} Mark
 * @property {"restart" | "fallback" | "checkpoint" | "evaluation" | "report" | "incident" | "state"} kind
 * @property {number} time Unix seconds
 * @property {number} [step]
 * @property {string} text
 * @property {number} [sequence] number of the event
 * @property {number} [value] held-out loss
 * @property {Object<string, number>} [metrics] of an evaluation or a report, by name
 */

/** @param {any} event @returns {Mark | null} */
export function markOf(event) {
  const time = Date.parse(event.time) / 1000;
  const changed = event.state_changed, precision = event.precision_changed;
  const name = (/** @type {string} */ mode) => mode.replace("PRECISION_MODE_", "");
  if (changed) {
    return { kind: changed.to === "JOB_STATE_RECOVERING" ? "restart" : "state", time, text: changed.reason || changed.to.replace("JOB_STATE_", "") };
  }
  if (precision) {
    return { kind: "fallback", time, step: Number(precision.step), text: `${name(precision.from)} → ${name(precision.to)}: ${precision.reason}` };
  }
  if (event.incident) {
    const { step, message, verdict, module } = event.incident;
    return { kind: "incident", time, step: Number(step), text: [message, verdict && `diagnosis: ${verdict}`, module].filter(Boolean).join(" · ") };
  }
  if (event.checkpoint_written) {
    const { step, name: label } = event.checkpoint_written;
    return { kind: "checkpoint", time, step: Number(step), text: label ? `Checkpoint ${label}` : "Checkpoint" };
  }
  if (event.evaluated) {
    const { step, loss, best, metrics } = event.evaluated;
    return { kind: "evaluation", time, step: Number(step), value: Number(loss), metrics, text: `Held-out loss ${Number(Number(loss).toPrecision(4))}${best ? ", the best so far" : ""}` };
  }
  if (event.metrics_reported) {
    const { step, reporter } = event.metrics_reported;
    const metrics = Object.fromEntries(Object.entries(event.metrics_reported.values ?? {}).map(([name, value]) => [name, Number(value)]));
    const values = Object.entries(metrics).map(([name, value]) => `${name} ${Number(value.toPrecision(4))}`).join(", ");
    return { kind: "report", time, step: Number(step), metrics, text: `${reporter} reported ${values}` };
  }
  return null;
}

/**
 * Returns the index of the point at which a mark lies; -1 if it lies outside.
 * @param {Points} points @param {Mark} mark
 */
export function placeOf(points, mark) {
  const n = points.last.length;
  if (n === 0) return -1;
  if (mark.step === undefined) {
    const i = indexOf(points.times, mark.time);
    return mark.time < points.times[0] - 1 ? -1 : Math.min(i, n - 1);
  }
  const i = indexOf(points.last, mark.step);
  return mark.step < points.first[0] - 1 || i >= n ? (mark.step === points.last[n - 1] + 1 ? n - 1 : -1) : i;
}
