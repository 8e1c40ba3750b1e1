// A row of the list of jobs.
import { h, setAttribute, setText } from "./dom.js";
import { duration, fraction, glyphOf, grouped, isFinal, modeOf, number, secondsLeft, si, stateOf, timeOf, word } from "./format.js";
import { newSparkline, showSparkline } from "./sparkline.js";

/** The elements of a row, created once and then only updated. */
export class JobRow {
  /** @param {Set<string>} chosen jobs to compare @param {() => void} onChosen */
  constructor(chosen, onChosen) {
    this.id = "";
    this.chosen = chosen;
    this.pick = h("input", { type: "checkbox", onchange: () => {
      if (this.pick.checked) chosen.add(this.id);
      else chosen.delete(this.id);
      onChosen();
    } });
    this.glyph = h("span", { class: "glyph", "aria-hidden": "true" });
    this.state = h("span");
    this.name = h("a", { class: "name" });
    this.note = h("span", { class: "note" });
    this.owner = h("td", { class: "c-owner" });
    this.bar = h("i");
    this.progress = h("span", { class: "steps" });
    this.loss = h("span", { class: "number" });
    this.spark = newSparkline();
    this.speed = h("td", { class: "c-speed" });
    this.time = h("td", { class: "c-time" });
    this.precision = h("td", { class: "c-precision" });
    this.element = h("tr", {},
      h("td", { class: "c-pick" }, this.pick),
      h("td", { class: "c-state" }, h("span", { class: "state" }, this.glyph, this.state)),
      h("td", { class: "c-job" }, this.name, this.note), this.owner,
      h("td", { class: "c-progress" }, h("span", { class: "meter", "aria-hidden": "true" }, this.bar), this.progress),
      h("td", { class: "c-loss" }, this.loss, this.spark), this.speed, this.time, this.precision);
  }

  /** @param {any} job @param {number} index its row in the whole table */
  show(job, index) {
    const state = stateOf(job), progress = job.progress ?? {}, step = Number(progress.step ?? 0);
    if (this.id !== job.id) {
      this.id = job.id;
      this.name.href = `#/jobs/${encodeURIComponent(job.id)}`;
      this.pick.setAttribute("aria-label", `Compare ${job.id}`);
    }
    this.pick.checked = this.chosen.has(job.id);
    setAttribute(this.element, "aria-rowindex", String(index));
    setAttribute(this.element, "data-state", state);
    setText(this.glyph, glyphOf(state));
    setText(this.state, word(state));
    setText(this.name, job.id);
    const queue = state === "QUEUED" ? job.queue_reason || (Number(job.queue_position) > 0 ? `number ${job.queue_position} in the queue` : "") : "";
    setText(this.note, state === "FAILED" ? job.failure ?? "" : queue || job.waiting_reason || [job.restarts > 0 && `${job.restarts} restart${job.restarts > 1 ? "s" : ""}`,
      job.incidents > 0 && `${job.incidents} incident${job.incidents > 1 ? "s" : ""}`].filter(Boolean).join(" · "));
    setText(this.owner, job.owner ?? "");
    const part = fraction(job);
    this.bar.style.width = `${100 * part}%`;
    setText(this.progress, step > 0 || isFinal(state) ? `${grouped(step)} / ${grouped(progress.total_steps ?? 0)}` : "–");
    setText(this.loss, step > 0 ? number(progress.loss) : "–");
    setText(this.speed, state === "RUNNING" && progress.samples_per_second > 0 ? `${si(progress.samples_per_second)}/s` : "–");
    const left = secondsLeft(job);
    setText(this.time, Number.isFinite(left) ? `${duration(left)} left` : duration(timeOf(job)));
    setText(this.precision, modeOf(step > 0 ? progress.mode : job.precision) || "–");
    if (step > 1) showSparkline(this.spark, job.id, !isFinal(state));
  }
}
