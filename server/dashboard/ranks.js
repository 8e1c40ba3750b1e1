// The processes of one job: where each runs, how fast, and which one the others wait for.
import { h, replace } from "./dom.js";
import { bytes, grouped } from "./format.js";

const milliseconds = (/** @type {any} */ value) => (value > 0 ? `${Number((1000 * value).toPrecision(3))} ms` : "–");

/**
 * Shows one row for each rank; nothing for a job of one process.
 * @param {any} element @param {any} job
 */
export function showRanks(element, job) {
  const ranks = job.ranks ?? [];
  element.hidden = ranks.length === 0;
  if (element.hidden) return;
  const slowest = Math.max(...ranks.map((/** @type {any} */ rank) => rank.step_seconds ?? 0));
  const busy = (/** @type {any} */ rank) => (slowest > 0 ? 100 * (rank.step_seconds - rank.wait_seconds) / slowest : 0);
  replace(element, h("h2", { id: "ranks" }, "Ranks"), h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Rank", "Device", "Step", "Step time", "Of it waiting", "Memory", "Computing", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ranks.map((/** @type {any} */ rank) => h("tr", { class: rank.straggler ? "bad" : "" },
      h("th", { scope: "row" }, String(rank.rank)),
      h("td", { class: "mono" }, [rank.host, rank.worker?.device].filter(Boolean).join("/") || "–"),
      [rank.step > 0 ? grouped(rank.step) : "–", milliseconds(rank.step_seconds), milliseconds(rank.wait_seconds),
        rank.device_bytes > 0 ? bytes(rank.device_bytes) : "–"].map((text) => h("td", { class: "right" }, text)),
      h("td", { class: "meter-cell" }, h("div", { class: "meter", "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(0, Math.min(100, busy(rank)))}%` } }))),
      h("td", {}, rank.ended ? "ended" : rank.straggler ? h("span", { class: "fault" }, "the others wait for it") : "")))))));
}
