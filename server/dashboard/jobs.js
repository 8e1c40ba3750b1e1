// The first screen: all jobs, live.
import { ApiError, Stream, get, jobPath } from "./api.js";
import { h, replace, setText, throttled } from "./dom.js";
import { ACTIVE_STATES, FINAL_STATES, grouped, isFinal, seconds, stateOf } from "./format.js";
import { JobRow } from "./job_row.js";
import { Overview } from "./overview.js";
import { forgetWanted } from "./sparkline.js";

const PAGE = 50, MAX_LISTED = 1000, MAX_REFRESHES = 50, MAX_COMPARED = 8;
const GROUPS = /** @type {[string, string[]][]} */ ([
  ["All", [...ACTIVE_STATES, ...FINAL_STATES]], ["Active", ACTIVE_STATES],
  ["Succeeded", ["SUCCEEDED"]], ["Failed", ["FAILED"]], ["Cancelled", ["CANCELLED"]]]);
const RANK = ["RUNNING", "CANCELLING", "PAUSING", "STARTING", "RECOVERING", "QUEUED", "PAUSED"];
// Each of these groups of active jobs is read up to MAX_LISTED, in the order in which jobs start.
const LISTED = [RANK.filter((state) => state !== "QUEUED" && state !== "PAUSED"), ["QUEUED"], ["PAUSED"]];
// Kept while the tab is open, so that the way back leads to the same list.
const choice = { group: "All", text: "" };
/** @type {Set<string>} */
const chosen = new Set();

/**
 * Returns the filter of ListJobs for what was typed: an ID's beginning, owner:NAME, label:KEY=VALUE.
 * @param {string} text
 */
function filterOf(text) {
  /** @type {Object<string, any>} */
  const filter = {};
  for (const part of text.trim().split(/\s+/).filter(Boolean)) {
    const [, kind, value] = /^(owner|label):(.*)$/.exec(part) ?? [];
    const key = kind === "label" ? value.split("=")[0] : "";
    if (kind === "owner") filter.owner = value;
    // The value is a list, because api.js leaves out an empty string, which matches any value here.
    else if (key) filter[`labels.${key}`] = [value.slice(key.length + 1)];
    else if (kind !== "label") filter.id_prefix = part.toLowerCase();
  }
  return filter;
}

/**
 * Keeps what the list shows of a job; a job in full has some 10 kB.
 * @param {any} job
 */
const slim = (job) => ({
  id: job.id, state: job.state, state_reason: job.state_reason, owner: job.owner, progress: job.progress, precision: job.precision?.mode,
  create_time: job.create_time, start_time: job.start_time, end_time: job.end_time, queue_position: job.queue_position,
  queue_reason: job.queue_reason, waiting_reason: job.waiting_reason, restarts: job.restarts, incidents: (job.incidents ?? []).length, failure: job.failure?.message,
});

/** The list: active jobs first, then ended ones by pages. Only the visible rows are elements. */
class JobList {
  /** @param {import("./app.js").Frame} frame */
  constructor(frame) {
    this.frame = frame;
    /** @type {Map<string, any>} */
    this.jobs = new Map();
    /** @type {any[]} */
    this.shown = [];
    /** @type {Map<string, JobRow>} */
    this.rows = new Map();
    this.nextPage = "";
    this.more = false;
    this.counted = 0;
    this.cursor = 0;
    this.generation = 0;
    this.loadingMore = false;
    /** @type {Set<string>} */
    this.stale = new Set();
    this.draw = throttled(() => this.drawNow());
    this.onScroll = () => this.drawNow();
    this.body = h("tbody");
    this.before = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
    this.after = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
    this.empty = h("p", { class: "empty", role: "status" });
    this.table = h("table", { class: "jobs" }, h("caption", { class: "hidden" }, "Jobs"),
      h("thead", {}, h("tr", {}, h("th", { class: "c-pick" }, h("span", { class: "hidden" }, "Compare")),
        ["State", "Job", "Owner", "Progress", "Loss", "Speed", "Time", "Precision"].map((name) =>
          h("th", { class: `c-${name.toLowerCase()}`, scope: "col" }, name)))),
      this.body);
    // Times advance even if no message arrives.
    this.timer = setInterval(() => this.draw(), 1000);
    addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("resize", this.onScroll);
  }

  close() {
    ++this.generation;
    clearInterval(this.timer);
    removeEventListener("scroll", this.onScroll);
    removeEventListener("resize", this.onScroll);
  }

  states() {
    return GROUPS.find(([name]) => name === choice.group)?.[1] ?? [];
  }

  async load() {
    const generation = ++this.generation;
    const filter = filterOf(choice.text);
    const named = (/** @type {string[]} */ states) => states.map((state) => `JOB_STATE_${state}`);
    const ended = this.states().filter(isFinal);
    const none = { jobs: [], next_page_token: "", cursor: 0 };
    this.endedQuery = { ...filter, states: named(ended), page_size: PAGE };
    const kinds = this.states().some((state) => !isFinal(state)) ? LISTED : [];
    const pages = await Promise.all([
      ended.length ? get("jobs", this.endedQuery) : none,
      ...kinds.map((states) => get("jobs", { ...filter, states: named(states), order: "JOB_ORDER_PRIORITY", page_size: MAX_LISTED }))]);
    if (generation !== this.generation) return;
    this.jobs.clear();
    for (const job of pages.flatMap((page) => page.jobs)) this.jobs.set(job.id, slim(job));
    this.nextPage = pages[0].next_page_token;
    this.more = pages.slice(1).some((page) => page.next_page_token);
    this.cursor = Math.min(...pages.map((page) => Number(page.cursor) || Infinity).filter(Number.isFinite), Infinity);
    if (!Number.isFinite(this.cursor)) this.cursor = -1;
    this.sort();
    this.draw();
  }

  async loadMore() {
    if (!this.nextPage || this.loadingMore) return;
    this.loadingMore = true;
    const generation = this.generation;
    try {
      const page = await get("jobs", { ...this.endedQuery, page_token: this.nextPage });
      if (generation !== this.generation) return;
      for (const job of page.jobs) this.jobs.set(job.id, slim(job));
      this.nextPage = page.next_page_token;
      this.sort();
      this.draw();
    } finally {
      this.loadingMore = false;
    }
  }

  sort() {
    const group = (/** @type {any} */ job) => (isFinal(stateOf(job)) ? RANK.length : RANK.indexOf(stateOf(job)));
    const states = new Set(this.states());
    this.shown = [...this.jobs.values()].filter((job) => states.has(stateOf(job))).sort((a, b) => group(a) - group(b)
      || Number(a.queue_position ?? 0) - Number(b.queue_position ?? 0) || seconds(b.create_time) - seconds(a.create_time));
  }

  /** @param {any} message */
  take(message) {
    for (const each of message.progress ?? []) {
      const job = this.jobs.get(each.job_id);
      if (job) Object.assign(job, { progress: each.progress, waiting_reason: each.waiting_reason, state: isFinal(stateOf(job)) ? job.state : each.state });
      // A response in flight may be older than this message.
      if (!job || this.refreshing) this.stale.add(each.job_id);
    }
    for (const event of message.events ?? []) {
      if (event.deleted) this.jobs.delete(event.job_id);
      else if (event.state_changed || event.updated || event.incident || event.precision_changed) this.stale.add(event.job_id);
      const job = this.jobs.get(event.job_id);
      if (job && event.state_changed) Object.assign(job, { state: event.state, state_reason: event.state_changed.reason });
    }
    if ((message.events ?? []).length) this.sort();
    this.refresh();
    this.draw();
  }

  /** Reads the jobs that changed: one by one if they are few, otherwise the list. */
  async refresh() {
    if (this.refreshing || this.stale.size === 0) return;
    this.refreshing = true;
    try {
      const generation = this.generation;
      const ids = [...this.stale];
      this.stale.clear();
      if (ids.length > MAX_REFRESHES) await this.load();
      else await Promise.all(ids.map((id) => this.refreshOne(id, generation)));
    } catch {
      // The stream reports a lost daemon, and the list is read again when it is back.
    } finally {
      this.refreshing = false;
      if (this.stale.size) setTimeout(() => this.refresh(), 200);
    }
  }

  /** @param {string} id @param {number} generation */
  async refreshOne(id, generation) {
    const filter = filterOf(choice.text);
    try {
      const { job } = await get(jobPath(id));
      const labelled = Object.entries(filter).every(([name, value]) => !name.startsWith("labels.")
        || (name.slice(7) in (job.labels ?? {}) && (value[0] === "" || job.labels[name.slice(7)] === value[0])));
      if (generation !== this.generation || !labelled || (filter.owner && job.owner !== filter.owner)
        || !id.startsWith(filter.id_prefix ?? "")) return;
      this.jobs.set(id, slim(job));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
      this.jobs.delete(id);
    }
    this.sort();
    this.draw();
  }

  drawNow() {
    const height = matchMedia("(max-width: 640px)").matches ? 76 : 44;
    const top = this.table.getBoundingClientRect().top + 36;
    const first = Math.max(0, Math.floor(-top / height) - 5);
    const last = Math.min(this.shown.length, first + Math.ceil(innerHeight / height) + 12);
    const visible = this.shown.slice(first, last);
    const kept = new Set(visible.map((job) => job.id));
    for (const [id, row] of this.rows) {
      if (kept.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    this.before.firstChild.style.height = `${first * height}px`;
    this.after.firstChild.style.height = `${Math.max(0, this.shown.length - last) * height}px`;
    if (!this.before.parentNode) replace(this.body, this.before, this.after);
    forgetWanted();
    let place = this.before;
    for (const [i, job] of visible.entries()) {
      let row = this.rows.get(job.id);
      if (!row) this.rows.set(job.id, row = new JobRow(chosen, () => this.onChosen()));
      row.show(job, first + i + 2);
      if (place.nextSibling !== row.element) place.after(row.element);
      place = row.element;
    }
    setText(this.empty, this.note());
    this.table.setAttribute("aria-rowcount", String(this.nextPage ? -1 : this.shown.length + 1));
    if (last > this.shown.length - 30) this.loadMore().catch(() => {});
  }

  /** Returns what is said below the list. */
  note() {
    if (this.more) return `Only the first ${grouped(MAX_LISTED)} of the jobs that wait are listed. Filter by ID, owner or label to find others.`;
    if (this.shown.length) return "";
    if (choice.text || choice.group !== "All") return "No job matches.";
    return this.counted > 0 ? "None of the jobs is shown to you." : "No jobs yet. Submit one with: genesisctl train -f job.yaml";
  }

  onChosen() {}
}

/** @param {import("./app.js").Frame} frame @returns {Promise<import("./app.js").Screen>} */
export async function showJobs(frame) {
  const list = new JobList(frame);
  const overview = new Overview(frame.caller);
  const counts = /** @type {Map<string, Element>} */ (new Map());
  const reload = () => list.load().catch(frame.failed);
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "States" }, GROUPS.map(([name]) => {
    const count = h("span", { class: "count" });
    counts.set(name, count);
    return h("button", { "aria-pressed": String(choice.group === name), onclick: (/** @type {any} */ event) => {
      choice.group = name;
      for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab === event.currentTarget));
      reload();
    } }, name, count);
  }));
  let typing = 0;
  const search = h("input", { type: "search", "aria-label": "Filter: start of an ID, owner:NAME or label:KEY=VALUE", placeholder: "ID, owner:ann, label:team=radio", value: choice.text,
    oninput: () => {
      choice.text = search.value;
      clearTimeout(typing);
      typing = setTimeout(reload, 250);
    } });
  const compare = h("a", { class: "button primary", href: "#/compare" });
  list.onChosen = () => {
    while (chosen.size > MAX_COMPARED) chosen.delete(/** @type {string} */ (chosen.values().next().value));
    compare.hidden = chosen.size < 2;
    compare.href = `#/compare?ids=${[...chosen].map(encodeURIComponent).join(",")}`;
    setText(compare, `Compare ${chosen.size}`);
  };
  list.onChosen();
  overview.onStats = (stats) => {
    for (const [name, states] of GROUPS) {
      const sum = states.reduce((total, state) => total + Number(stats.jobs_by_state?.[state] ?? 0), 0);
      setText(/** @type {Element} */ (counts.get(name)), grouped(sum));
      if (name === GROUPS[0][0]) list.counted = sum;
    }
  };
  const slash = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    search.focus();
  };
  addEventListener("keydown", slash);
  replace(frame.main, h("h1", { class: "hidden" }, "Jobs"), overview.attention, overview.cards,
    h("div", { class: "columns" },
      h("section", { class: "list", "aria-label": "Jobs" }, h("div", { class: "tools" }, tabs, h("div", { class: "spacer" }), search, compare), list.table, list.empty),
      overview.panel));
  const close = () => {
    stream?.close();
    overview.close();
    list.close();
    removeEventListener("keydown", slash);
  };
  /** @type {Stream | undefined} */
  let stream;
  try {
    overview.load().catch(() => {});
    await list.load();
  } catch (error) {
    close();
    throw error;
  }
  if (frame.current()) {
    stream = new Stream({}, {
      cursor: list.cursor, state: frame.connection, message: (message) => list.take(message),
      reconnected: () => {
        list.load().catch(() => {});
        overview.load().catch(() => {});
      },
    });
  }
  return { close };
}
