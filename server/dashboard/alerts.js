// The alerts of docs/alerts.md that would fire now, from the daemon's own data, without Prometheus.
import { get, page } from "./api.js";
import { bytes, duration, percent, seconds, stateOf } from "./format.js";

/** @typedef {{name: string, text: string}} Alert the alert's name in docs/alerts.md, and a sentence */
/** @typedef {{labels: Object<string, string>, value: number}} Sample */

// Thresholds of deploy/prometheus/genesis.rules.yml.
const STILL_SECONDS = 900, UNPROTECTED_SECONDS = 3600, CERTIFICATE_SECONDS = 7 * 86400;
const FREE_RATIO = 0.1, OVERFLOW_RATIO = 0.1, DIVERGENCE_RATIO = 0.05, WAIT_RATIO = 0.5;
const MAX_RUNNING = 100;

/**
 * Returns the samples of the text that Prometheus reads, by the name of the metric.
 * @param {string} text
 */
function samplesOf(text) {
  const samples = /** @type {Map<string, Sample[]>} */ (new Map());
  for (const [, name, labels, value] of text.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)) {
    const sample = { labels: Object.fromEntries([...(labels ?? "").matchAll(/(\w+)="([^"]*)"/g)].map((found) => found.slice(1))),
      value: Number(value.replace("Inf", "Infinity")) };
    samples.set(name, [...(samples.get(name) ?? []), sample]);
  }
  return samples;
}

/** @param {string} text @param {number} now Unix seconds @returns {Alert[]} */
function alertsOfMetrics(text, now) {
  const samples = samplesOf(text);
  const each = (/** @type {string} */ metric) => samples.get(`genesis_${metric}`) ?? [];
  const alerts = /** @type {Alert[]} */ ([]);
  const add = (/** @type {string} */ name, /** @type {string} */ said) => alerts.push({ name, text: said });
  for (const { labels, value } of each("volume_free_bytes")) {
    const size = each("volume_size_bytes").find((other) => other.labels.volume === labels.volume)?.value ?? Infinity;
    if (value / size < FREE_RATIO) add("GenesisDiskNearlyFull", `The disk of ${labels.volume} has ${bytes(value)} left, ${percent(value / size)}.`);
  }
  for (const { value } of each("unprotected_since_timestamp_seconds")) {
    if (now - value > UNPROTECTED_SECONDS) add("GenesisCheckpointTooOld", `A running job has had no checkpoint for ${duration(now - value)}.`);
  }
  for (const { value } of each("training_loss")) {
    if (!Number.isFinite(value)) add("GenesisNonFiniteLoss", "The loss of a running job is not finite.");
  }
  for (const { value } of each("loss_divergence_ratio")) {
    if (Math.abs(value) > DIVERGENCE_RATIO) add("FP16LossDivergence", `The loss of a running job is ${percent(Math.abs(value))} away from FP32's.`);
  }
  for (const { value } of each("rank_wait_ratio")) {
    if (value > WAIT_RATIO) add("GenesisRanksWait", `The ranks of a job wait for one of them, ${percent(value)} of the time.`);
  }
  for (const { value } of each("tls_certificate_not_after_timestamp_seconds")) {
    if (value - now < CERTIFICATE_SECONDS) add("GenesisCertificateExpires", value < now ? "The certificate has expired." : `The certificate expires in ${duration(value - now)}.`);
  }
  if (each("config_errors").some(({ value }) => value > 0)) add("GenesisConfigError", "A setting of the precision gate cannot be read, so that jobs train in FP32.");
  if (each("config_last_reload_success").some(({ value }) => value === 0)) add("GenesisReloadFailed", "The last reload of the settings failed; the log says why.");
  return alerts;
}

/**
 * Returns the alerts of jobs: lost workers, no step, overflows.
 * @param {any} stats over STILL_SECONDS @param {any[]} running @param {number} now @returns {Alert[]}
 */
function alertsOfJobs(stats, running, now) {
  const alerts = /** @type {Alert[]} */ ([]);
  const lost = Number(stats.jobs_by_state?.RECOVERING ?? 0), window = stats.window ?? {};
  if (lost) alerts.push({ name: "GenesisWorkerCrashLoop", text: `${lost} ${lost === 1 ? "job has" : "jobs have"} lost the worker and will continue from a checkpoint.` });
  const old = running.some((job) => stateOf(job) === "RUNNING" && now - seconds(job.start_time) > STILL_SECONDS);
  if (old && Number(window.steps) === 0 && window.seconds >= STILL_SECONDS) {
    alerts.push({ name: "GenesisNoProgress", text: `Jobs are running, but made no step in the last ${STILL_SECONDS / 60} min.` });
  }
  if (window.overflow_rate > OVERFLOW_RATIO) {
    alerts.push({ name: "FP16HighOverflowRate", text: `${percent(window.overflow_rate)} of the steps in reduced precision were skipped in the last ${Math.max(1, Math.round(window.seconds / 60))} min.` });
  }
  return alerts;
}

/** Returns the alerts that hold at this moment. @returns {Promise<Alert[]>} */
export async function readAlerts() {
  const [ready, metrics, stats, { jobs }] = await Promise.all([page("readyz").then((response) => response.json()), page("metrics").then((response) => response.text()),
    get("stats", { window_seconds: STILL_SECONDS }), get("jobs", { states: "JOB_STATE_RUNNING", page_size: MAX_RUNNING })]);
  const now = Date.now() / 1000;
  return [...ready.reasons.map((/** @type {string} */ reason) => ({ name: "GenesisNotReady", text: `Not ready: ${reason}` })),
    ...alertsOfMetrics(metrics, now), ...alertsOfJobs(stats, jobs, now)];
}
