// The screen of one job.
import { Stream, get, jobPath } from "./api.js";
import { actionsOf } from "./actions.js";
import { h, replace, setText, throttled } from "./dom.js";
import { JobFacts, showFailure } from "./job_facts.js";
import { JobCharts } from "./job_charts.js";
import { markOf } from "./curves.js";
import { showRanks } from "./ranks.js";
import { clock, duration, fraction, glyphOf, grouped, isFinal, number, secondsLeft, si, stateOf, timeOf, word } from "./format.js";

const MAX_PAGES = 20, SHOWN_MARKS = 200, RANKS_SECONDS = 5;
const GLYPHS = { restart: "↻", fallback: "▼", checkpoint: "◆", evaluation: "○", report: "◇", incident: "!", state: "·" };

/**
 * Returns the newest job's ID for "newest", so that #/jobs/newest is an address that stays.
 * @param {string} id
 */
async function resolve(id) {
  if (id !== "newest") return id;
  const { jobs } = await get("jobs", { page_size: 1 });
  if (!jobs.length) throw new Error("There is no job yet.");
  return jobs[0].id;
}

/** A job with its events and curves, kept up to date. */
class JobScreen {
  /** @param {import("./app.js").Frame} frame @param {string} id */
  constructor(frame, id) {
    this.frame = frame;
    this.id = id;
    /** @type {any} */
    this.job = undefined;
    /** @type {{caller: string, caller_role: string} | undefined} */
    this.caller = undefined;
    /** @type {import("./curves.js").Mark[]} */
    this.marks = [];
    /** @type {any[]} */
    this.history = [];
    /** @type {Set<number>} */
    this.seen = new Set();
    this.cursor = 0;
    this.shownMarks = -1;
    this.actionsFor = "";
    this.draw = throttled(() => this.frame.current() && this.drawNow());
    this.charts = new JobCharts(id);
    this.facts = new JobFacts(id);
    this.state = h("span", { class: "state" });
    this.reason = h("p", { class: "reason" });
    this.actions = h("div", { class: "actions" });
    this.bar = h("i");
    this.numbers = h("dl", { class: "numbers" });
    this.failure = h("section", { class: "failure", hidden: true, "aria-label": "Why it failed" });
    this.ranks = h("section", { class: "box", hidden: true, "aria-labelledby": "ranks" });
    this.timeline = h("ol", { class: "timeline" });
    // The stream has the progress of the job, not of its ranks.
    this.timer = setInterval(() => {
      if (!document.hidden && (this.job?.ranks ?? []).length && !isFinal(stateOf(this.job))) this.refreshJob();
    }, RANKS_SECONDS * 1000);
  }

  async load() {
    const [job, caller] = await Promise.all([get(jobPath(this.id)), this.frame.caller, this.loadHistory(), this.loadEvents(), this.charts.load()]);
    this.job = job.job;
    this.caller = caller;
  }

  /** Reads the FP32 baseline; without a history the charts show none. */
  async loadHistory() {
    const rows = [];
    try {
      for (let token = "", page = 0; page < MAX_PAGES && (page === 0 || token); ++page) {
        const history = await get("history", { job_id: this.id, page_size: 1000, page_token: token });
        rows.push(...(history.rows ?? []));
        token = history.next_page_token;
      }
    } catch (error) {
      if (/** @type {any} */ (error).status === 401) throw error;
    }
    this.history = rows;
  }

  async loadEvents() {
    for (let page = 0, more = true; more && page < MAX_PAGES; ++page) {
      const events = await get("events", { "filter.job_id": this.id, cursor: this.cursor, skip_dropped: true, page_size: 1000 });
      this.takeEvents(events.events ?? []);
      this.cursor = Number(events.cursor);
      more = events.more;
    }
  }

  /** @param {any[]} events */
  takeEvents(events) {
    for (const event of events) {
      if (this.seen.has(Number(event.sequence))) continue;
      this.seen.add(Number(event.sequence));
      const mark = markOf(event);
      if (mark) this.marks.push({ ...mark, sequence: Number(event.sequence) });
    }
  }

  show() {
    replace(this.frame.main,
      h("header", { class: "job-head" },
        h("div", { class: "title" }, h("h1", { class: "mono" }, this.id), this.state, h("div", { class: "spacer" }), this.actions),
        this.reason, h("div", { class: "meter tall", "aria-hidden": "true" }, this.bar), this.numbers),
      this.failure,
      h("div", { class: "columns" },
        h("div", { class: "wide" }, this.charts.element, this.ranks,
          h("section", { class: "box", "aria-labelledby": "timeline" }, h("h2", { id: "timeline" }, "Timeline"), this.timeline)),
        this.facts.element));
    this.drawNow();
    this.charts.start();
  }

  /** @param {any} message */
  take(message) {
    for (const each of message.progress ?? []) {
      this.job.progress = each.progress;
      if (!isFinal(stateOf(this.job))) this.job.state = each.state;
    }
    const events = message.events ?? [];
    this.takeEvents(events);
    if (events.length) this.refresh();
    // After a restart or a fallback, some steps run a second time.
    const again = events.some((/** @type {any} */ event) => event.state_changed || event.precision_changed);
    if (events.length || (message.progress ?? []).length) this.charts.extend(again).then(() => this.draw()).catch(() => {});
    this.draw();
  }

  async refresh() {
    // A refused call has asked for a token.
    await Promise.all([this.refreshJob(), this.loadHistory().catch(() => {})]);
    this.draw();
  }

  async refreshJob() {
    try {
      this.job = (await get(jobPath(this.id))).job;
      this.draw();
    } catch (error) {
      if (/** @type {any} */ (error).status === 404) this.frame.failed(error);
    }
  }

  drawNow() {
    const job = this.job, state = stateOf(job), progress = job.progress ?? {};
    this.state.setAttribute("data-state", state);
    replace(this.state, h("span", { class: "glyph", "aria-hidden": "true" }, glyphOf(state)), word(state));
    setText(this.reason, job.failure ? "" : job.queue_reason || job.waiting_reason || job.state_reason || "");
    this.bar.style.width = `${100 * fraction(job)}%`;
    this.bar.parentNode.setAttribute("data-state", state);
    const left = secondsLeft(job);
    const shown = /** @type {[string, any][]} */ ([
      ["Step", [grouped(progress.step ?? 0), h("small", {}, ` of ${grouped(progress.total_steps ?? 0)}`)]],
      ["Loss", Number(progress.step) > 0 ? number(progress.loss) : "–"],
      ["Held-out loss", job.evaluation ? number(job.evaluation.loss) : "–"],
      ["FP32 baseline", progress.baseline_loss > 0 ? number(progress.baseline_loss) : "–"],
      ["Speed", progress.samples_per_second > 0 ? [si(progress.samples_per_second), h("small", {}, " samples/s")] : "–"],
      state === "RUNNING" ? ["Time left", duration(left)] : ["Took", duration(timeOf(job))],
    ]);
    replace(this.numbers, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    if (this.caller && this.actionsFor !== `${state} ${job.owner}`) {
      this.actionsFor = `${state} ${job.owner}`;
      replace(this.actions, actionsOf(job, this.caller, () => this.refresh()));
    }
    showFailure(this.failure, job);
    showRanks(this.ranks, job);
    this.facts.show(job);
    this.showTimeline();
    this.charts.show(job, this.marks, this.history);
  }

  showTimeline() {
    if (this.shownMarks === this.marks.length) return;
    this.shownMarks = this.marks.length;
    const marks = [...this.marks].sort((a, b) => b.time - a.time || (b.sequence ?? 0) - (a.sequence ?? 0)).slice(0, SHOWN_MARKS);
    replace(this.timeline, marks.map((mark) => h("li", { class: mark.kind },
      h("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[mark.kind]),
      h("time", {}, clock(new Date(mark.time * 1000).toISOString())),
      h("span", { class: "at" }, mark.step === undefined ? "" : `step ${grouped(mark.step)}`), h("span", { class: "what" }, mark.text))));
  }

  close() {
    clearInterval(this.timer);
    this.charts.close();
    this.facts.close();
  }
}

/** @param {import("./app.js").Frame} frame @param {string} name @returns {Promise<import("./app.js").Screen>} */
export async function showJob(frame, name) {
  const screen = new JobScreen(frame, await resolve(name));
  await screen.load();
  /** @type {Stream | undefined} */
  let stream;
  if (frame.current()) {
    screen.show();
    stream = new Stream({ "filter.job_id": screen.id }, {
      cursor: screen.cursor, state: frame.connection, message: (message) => screen.take(message),
      reconnected: () => screen.load().then(() => screen.draw()).catch(() => {}),
    });
  }
  return {
    close: () => {
      stream?.close();
      screen.close();
    },
  };
}
