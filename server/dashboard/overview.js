// The state of the machine: slots, queue, precision gate, workers and devices.
import { readAlerts } from "./alerts.js";
import { get } from "./api.js";
import { policyButton } from "./actions.js";
import { h, replace } from "./dom.js";
import { grouped, seconds, si, short, word } from "./format.js";

const EVERY_SECONDS = 5, ALERTS_SECONDS = 30, DAY_SECONDS = 86400, FAILED_PAGE = 100;

/** @param {string} title @param {any} value @param {any} note @param {string} [kind] */
const card = (title, value, note, kind = "") => h("div", { class: `card ${kind}` },
  h("h2", {}, title), h("p", { class: "value" }, value), h("p", { class: "note" }, note));

/** Cards above the list, and a panel beside it. Reads both every five seconds while the page is visible. */
export class Overview {
  /** @param {Promise<{caller: string, caller_role: string}>} caller */
  constructor(caller) {
    this.failures = 0;
    /** @type {any[]} Failed jobs, the newest first; read again when their number changes. */
    this.failed = [];
    caller.then((found) => { this.caller = found; }, () => {});
    this.attention = h("section", { class: "attention", hidden: true, "aria-label": "Needs attention" });
    this.cards = h("section", { class: "cards", "aria-label": "Overview" });
    this.panel = h("aside", { class: "panel", "aria-label": "Workers and devices" });
    /** @type {import("./alerts.js").Alert[]} */
    this.alerts = [];
    this.alertsTime = 0;
    /** @type {(stats: any) => void} */
    this.onStats = () => {};
    this.timer = setInterval(() => document.hidden || this.load().catch(() => {}), EVERY_SECONDS * 1000);
  }

  close() {
    clearInterval(this.timer);
  }

  async load() {
    const [stats, workers, policy] = await Promise.all([get("stats"), get("workers"), get("precision_policy")]);
    const failures = Number(stats.jobs_by_state?.FAILED ?? 0);
    if (failures !== this.failures) this.failed = (await get("jobs", { states: "JOB_STATE_FAILED", page_size: FAILED_PAGE })).jobs;
    this.failures = failures;
    this.showCards(stats, policy);
    this.showWorkers(workers);
    this.showAttention(workers);
    this.onStats(stats);
    if (Date.now() - this.alertsTime < ALERTS_SECONDS * 1000) return;
    this.alertsTime = Date.now();
    this.alerts = await readAlerts();
    this.showAttention(workers);
  }

  /** @param {any} stats @param {any} policy */
  showCards(stats, policy) {
    const by = (/** @type {string} */ state) => Number(stats.jobs_by_state?.[state] ?? 0);
    const running = by("RUNNING") + by("STARTING") + by("PAUSING") + by("CANCELLING");
    const window = stats.window ?? {};
    const open = policy.reduced_precision_enabled;
    const waiting = by("QUEUED") + by("RECOVERING");
    replace(this.cards,
      card("Running", grouped(running), `${stats.busy_workers} of ${stats.slots} slots busy`),
      card("Queue", grouped(waiting), by("PAUSED") ? `${by("PAUSED")} paused` : waiting ? "waiting for a slot" : "nothing waits"),
      card("Throughput", [si(window.samples_per_second ?? 0), h("small", {}, " samples/s")],
        `${grouped(window.steps ?? 0)} steps in the last ${Math.max(1, Math.round((window.seconds ?? 0) / 60))} min`),
      card("Reduced precision", [h("span", { class: `gate ${open ? "open" : "shut"}`, "aria-hidden": "true" }, open ? "●" : "○"), open ? " Allowed" : " Disabled",
        this.caller?.caller_role === "admin" && policyButton(policy, () => this.load())],
        [policy.reason, Number(window.reduced_precision_steps) > 0 && ` · ${(100 * window.overflow_rate).toFixed(2)} % overflows`]));
  }

  /**
   * Lists what a person should look at: alerts, failures of the last day, and devices that get no jobs.
   * @param {any} workers
   */
  showAttention(workers) {
    const recent = this.failed.filter((/** @type {any} */ job) => seconds(job.end_time) > Date.now() / 1000 - DAY_SECONDS);
    const newest = recent.sort((/** @type {any} */ a, /** @type {any} */ b) => seconds(b.end_time) - seconds(a.end_time))[0];
    const count = `${recent.length}${recent.length === FAILED_PAGE ? " or more" : ""} ${recent.length === 1 ? "job" : "jobs"}`;
    const items = [
      ...this.alerts.map(({ name, text }) => [text, " ", h("small", {}, name)]),
      newest && [`${count} failed in the last day, the newest: `, h("a", { href: `#/jobs/${encodeURIComponent(newest.id)}`, class: "mono" }, newest.id)],
      ...(workers.devices ?? []).filter((/** @type {any} */ device) => device.quarantined)
        .map((/** @type {any} */ device) => [`${device.name} gets no jobs: ${device.reason}`])].filter(Boolean);
    this.attention.hidden = items.length === 0;
    replace(this.attention, items.map((item) => h("p", {}, h("span", { class: "glyph", "aria-hidden": "true" }, "!"), " ", item)));
  }

  /** @param {any} workers */
  showWorkers(workers) {
    const devices = (workers.devices ?? []).map((/** @type {any} */ device) => h("li", { class: device.quarantined ? "bad" : "" },
      h("div", { class: "line" }, h("b", {}, device.name), h("span", { class: "muted" }, `${device.busy} of ${device.slots}`)),
      h("div", { class: "meter", "aria-hidden": "true" },
        h("i", { style: { width: `${device.slots ? Math.min(100, 100 * device.busy / device.slots) : 0}%` } })),
      device.quarantined && h("p", { class: "fault" }, `Quarantined: ${device.reason}`)));
    const list = (workers.workers ?? []).map((/** @type {any} */ worker) => {
      const state = worker.draining ? "DRAINING" : short(worker.state, "WORKER_STATE_");
      return h("li", {}, h("div", { class: "line" },
        h("span", { class: "mono" }, worker.id),
        worker.job_id ? h("a", { href: `#/jobs/${encodeURIComponent(worker.job_id)}`, class: "clip" }, worker.job_id)
          : h("span", { class: "muted" }, word(state))));
    });
    replace(this.panel, h("h2", {}, "Devices"), h("ul", {}, devices),
      h("h2", {}, "Workers"), list.length ? h("ul", {}, list) : h("p", { class: "muted" }, "None is attached."));
  }
}
