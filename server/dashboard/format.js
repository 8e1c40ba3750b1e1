// Numbers, times and states as people read them.

const FINAL = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
export const FINAL_STATES = [...FINAL];
export const ACTIVE_STATES = ["QUEUED", "STARTING", "RUNNING", "PAUSING", "PAUSED", "RECOVERING", "CANCELLING"];
const GLYPHS = /** @type {Object<string, string>} */ ({
  QUEUED: "◌", STARTING: "◔", RUNNING: "●", PAUSING: "◑", PAUSED: "‖", RECOVERING: "↻", CANCELLING: "◑",
  SUCCEEDED: "✓", FAILED: "✕", CANCELLED: "–",
});

/**
 * Returns an enum value without the prefix of its type.
 * @param {string | undefined} value @param {string} prefix
 */
export function short(value, prefix) {
  const name = (value ?? "").startsWith(prefix) ? (value ?? "").slice(prefix.length) : value ?? "";
  return name === "UNSPECIFIED" ? "" : name;
}

/** @param {any} job */
export const stateOf = (job) => short(job.state, "JOB_STATE_");
/** @param {string} state */
export const isFinal = (state) => FINAL.has(state);
/** @param {string} state */
export const glyphOf = (state) => GLYPHS[state] ?? "";
/** @param {string | undefined} mode */
export const modeOf = (mode) => short(mode, "PRECISION_MODE_").replace("MIXED_", "Mixed ");

/**
 * Returns a name such as "RUNNING" as a word.
 * @param {string} name
 */
export function word(name) {
  const text = name.toLowerCase().replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {any} value @param {number} [digits] */
export function number(value, digits = 4) {
  const x = Number(value);
  if (value === null || value === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) return x.toExponential(2).replace("e+", "e").replace("-", "−");
  if (Number.isInteger(x)) return grouped(x);
  return String(Number(x.toPrecision(digits))).replace("-", "−");
}

/**
 * Returns a whole number with its digits in groups.
 * @param {any} value
 */
export function grouped(value) {
  return Math.round(Number(value)).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * Returns a number with a prefix of the SI, e.g. "12.3 k".
 * @param {any} value
 */
export function si(value) {
  let x = Number(value);
  if (!Number.isFinite(x)) return "–";
  for (const prefix of ["", " k", " M", " G"]) {
    if (Math.abs(x) < 1000) return `${Number(x.toPrecision(3))}${prefix}`;
    x /= 1000;
  }
  return `${Number(x.toPrecision(3))} T`;
}

/** @param {any} value */
export function bytes(value) {
  let x = Number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (x < 1024) return `${Number(x.toPrecision(3))} ${unit}`;
    x /= 1024;
  }
  return `${Number(x.toPrecision(3))} TiB`;
}

/** @param {number} ratio */
export const percent = (ratio) => `${Number((100 * ratio).toPrecision(2))} %`;

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/**
 * Returns Unix seconds; NaN without a time.
 * @param {string | null | undefined} time
 */
export const seconds = (time) => (time ? Date.parse(time) / 1000 : NaN);

/** @param {string | null | undefined} time */
export function clock(time) {
  if (!time) return "–";
  const date = new Date(time);
  const today = date.toDateString() === new Date().toDateString();
  const hours = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return today ? hours : `${date.toLocaleDateString([], { month: "short", day: "numeric" })} ${hours}`;
}

/**
 * Returns the part of its steps that a job has made, 0 to 1.
 * @param {any} job
 */
export function fraction(job) {
  const total = Number(job.progress?.total_steps ?? 0);
  return total > 0 ? Math.min(1, Number(job.progress.step) / total) : stateOf(job) === "SUCCEEDED" ? 1 : 0;
}

// Three years, in seconds. A job that trains until it is stopped has a larger max_steps than it will reach.
const LONGEST_LEFT = 1e8;

/**
 * Returns the seconds that a running job still needs at its speed so far; NaN if unknown.
 * @param {any} job
 */
export function secondsLeft(job) {
  const progress = job.progress;
  if (stateOf(job) !== "RUNNING" || job.waiting_reason || !progress || !(progress.step > 0) || !(progress.samples_per_second > 0)) return NaN;
  const samples = Number(progress.samples) / Number(progress.step);
  const seconds = (Number(progress.total_steps) - Number(progress.step)) * samples / progress.samples_per_second;
  return seconds < LONGEST_LEFT ? seconds : NaN;
}

/**
 * Returns the seconds from the start of a job to its end or now; NaN before it.
 * @param {any} job
 */
export function timeOf(job) {
  const end = job.end_time ? seconds(job.end_time) : Date.now() / 1000;
  return job.start_time ? end - seconds(job.start_time) : NaN;
}
