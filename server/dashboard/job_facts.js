// The facts about a job other than its curves: precision, machine, times, specification, log.
import { get, jobPath } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, clock, duration, grouped, isFinal, modeOf, seconds, short, stateOf, word } from "./format.js";

const LOG_BYTES = 16384, LOG_SECONDS = 3;

/** @param {string} name @param {any} value */
const fact = (name, value) => (value ? [h("dt", {}, name), h("dd", {}, value)] : []);

/**
 * Returns a message as indented lines, without fields that are empty, 0, false or unspecified.
 * @param {any} value @param {string} [indent] @returns {string}
 */
export function outline(value, indent = "") {
  return Object.entries(value ?? {}).filter(([, each]) => !isEmpty(each)).map(([name, each]) =>
    (typeof each === "object" && !Array.isArray(each) ? `${indent}${name}:\n${outline(each, `${indent}  `)}`
      : `${indent}${name}: ${Array.isArray(each) ? JSON.stringify(each) : each}\n`)).join("");
}

/** @param {any} value @returns {boolean} */
function isEmpty(value) {
  return value === null || value === "" || value === 0 || value === "0" || value === false || String(value).endsWith("_UNSPECIFIED")
    || (typeof value === "object" && Object.values(value).every(isEmpty));
}

/**
 * Explains a failure: cause, message with its cure, the last log lines.
 * @param {any} element @param {any} job
 */
export function showFailure(element, job) {
  const failure = job.failure;
  element.hidden = !failure;
  if (!failure || element.childNodes.length) return;
  const how = failure.signal > 0 ? `Signal ${failure.signal} ended the worker.` : failure.exit_code > 0 ? `The worker exited with ${failure.exit_code}.` : "";
  replace(element, h("h2", {}, `Failed: ${word(short(failure.cause, "FAILURE_CAUSE_"))}`), h("p", {}, failure.message), how && h("p", { class: "muted" }, how),
    (failure.log_tail ?? []).length > 0 && h("details", { open: true }, h("summary", {}, "Last log lines"),
      h("pre", { tabindex: "0" }, failure.log_tail.join("\n"))));
}

/** The column beside the charts. */
export class JobFacts {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.list = h("dl", { class: "facts" });
    this.spec = h("pre", { tabindex: "0" });
    this.lines = h("pre", { tabindex: "0" });
    this.log = h("details", { ontoggle: () => this.readLog() }, h("summary", {}, "Log"), this.lines);
    this.element = h("aside", { class: "panel", "aria-label": "Details" }, h("h2", {}, "Details"), this.list,
      h("details", {}, h("summary", {}, "Specification"), this.spec), this.log,
      h("p", { class: "muted links" }, "As JSON: ",
        h("a", { href: `v1/${jobPath(id)}` }, "job"), " · ", h("a", { href: `v1/${jobPath(id)}/curves` }, "curves"), " · ",
        h("a", { href: `v1/events?filter.job_id=${encodeURIComponent(id)}` }, "events")));
    this.offset = 0;
    this.text = "";
    this.timer = setInterval(() => !document.hidden && this.log.open && !this.ended && this.readLog(), LOG_SECONDS * 1000);
  }

  close() {
    clearInterval(this.timer);
  }

  /** @param {any} job */
  show(job) {
    const precision = job.precision ?? {}, mode = job.progress?.mode ?? precision.mode, checkpoint = job.latest_checkpoint;
    const ranks = job.ranks ?? [];
    const text = JSON.stringify([job.state, job.owner, job.labels, precision, mode, checkpoint?.id, job.restarts, job.worker, job.evaluation?.step, job.reported_metrics, ranks.length, job.priority]);
    const ended = isFinal(stateOf(job));
    // The worker's last lines may have come since the last reading.
    if (ended && !this.ended) setTimeout(() => this.readLog(), LOG_SECONDS * 1000);
    this.ended = ended;
    if (this.text === text) return;
    this.text = text;
    const metrics = Object.entries(job.evaluation?.metrics ?? {}).filter(([name]) => name !== "loss");
    replace(this.list,
      fact("Owner", job.owner), fact("Priority", Number(job.priority) !== 0 && String(job.priority)),
      fact("Labels", Object.keys(job.labels ?? {}).length > 0 && Object.entries(job.labels).map(([name, value]) => h("span", { class: "chip" }, `${name}=${value}`))),
      fact("Precision", modeOf(mode) || "–"), fact("", h("span", { class: "muted" }, precision.reason ?? "")),
      fact("Execution", precision.execution),
      fact("Device", job.worker?.device ?? precision.device), fact("Worker", job.worker && `${job.worker.worker_id}, process ${job.worker.pid}`),
      fact("Processes", ranks.length > 0 && `${ranks.length} ranks`),
      fact("Submitted", clock(job.create_time)), fact("Started", job.start_time && clock(job.start_time)), fact("Ended", job.end_time && clock(job.end_time)),
      fact("Waited", job.start_time && duration(seconds(job.start_time) - seconds(job.create_time))),
      fact("Restarts", job.restarts > 0 && String(job.restarts)),
      fact("Skipped steps", Number(job.progress?.skipped_steps) > 0 && grouped(job.progress.skipped_steps)),
      fact("Checkpoint", checkpoint && `step ${grouped(checkpoint.step)}, ${bytes(checkpoint.size_bytes)}`),
      metrics.flatMap(([name, value]) => fact(word(name), String(Number(Number(value).toPrecision(4))))),
      (job.reported_metrics ?? []).flatMap((/** @type {any} */ { name, value, step }) =>
        fact(`Reported ${name}`, `${Number(Number(value).toPrecision(4))} at step ${grouped(step ?? 0)}`)),
      fact("Host memory", Number(job.peak_memory_bytes) > 0 && bytes(job.peak_memory_bytes)),
      fact("Device memory", Number(job.peak_device_bytes) > 0 && bytes(job.peak_device_bytes)));
    replace(this.spec, outline(job.spec));
  }

  /** Appends what the log has gained, and keeps its end in view. */
  async readLog() {
    if (!this.log.open || this.reading) return;
    this.reading = true;
    try {
      if (this.offset === 0) {
        const { artifacts } = await get(`${jobPath(this.id)}/artifacts`);
        const size = Number((artifacts ?? []).find((/** @type {any} */ each) => each.name === "log.txt")?.size_bytes ?? 0);
        this.offset = Math.max(0, size - LOG_BYTES);
      }
      for (;;) {
        const { piece } = await get(`${jobPath(this.id)}/artifacts/log.txt:read`, { offset: this.offset, limit: LOG_BYTES });
        if (!piece) return;
        const raw = Uint8Array.from(atob(piece), (letter) => letter.charCodeAt(0));
        this.offset += raw.length;
        this.lines.append(new TextDecoder().decode(raw));
        this.lines.scrollTop = this.lines.scrollHeight;
      }
    } catch {
      if (!this.lines.textContent) this.lines.textContent = "This job has no log.";
    } finally {
      this.reading = false;
    }
  }
}
