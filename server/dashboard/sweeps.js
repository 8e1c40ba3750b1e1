// The list of sweeps, and the page of one: its trials, best first.
import { mayChange } from "./actions.js";
import { get, post } from "./api.js";
import { confirm } from "./dialogs.js";
import { h, replace, setText } from "./dom.js";
import { clock, glyphOf, grouped, isFinal, number, short, stateOf, word } from "./format.js";
import { poll } from "./poll.js";

const EVERY_SECONDS = 2, MOST_COMPARED = 8;

/** @param {any} sweep */
const sweepState = (sweep) => short(sweep.state, "SWEEP_STATE_");
/** @param {string} state */
const badge = (state) => h("span", { class: "state", "data-state": state }, h("span", { class: "glyph", "aria-hidden": "true" }, glyphOf(state) || "◌"), state ? word(state) : "Not submitted");
/** @param {string[]} names */
const head = (names) => h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));
/** @param {string} id */
const sweepLink = (id) => h("a", { href: `#/sweeps/${encodeURIComponent(id)}`, class: "mono" }, id);

/**
 * Returns the trials with a value, best first and those stopped early last, then the others, by number.
 * @param {any} sweep @returns {any[]}
 */
function ranked(sweep) {
  const sign = sweep.spec.maximize ? -1 : 1;
  const key = (/** @type {any} */ trial) => (Number.isFinite(Number(trial.best_value ?? NaN)) ? sign * Number(trial.best_value) : Infinity);
  const stopped = (/** @type {any} */ trial) => Number.isFinite(key(trial)) && trial.stopped_early === true;
  return [...(sweep.trials ?? [])].sort((a, b) => Number(key(a) === Infinity) - Number(key(b) === Infinity) || Number(stopped(a)) - Number(stopped(b))
    || (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.number - b.number));
}

/** @param {any} sweep */
function table(sweep) {
  const fields = (sweep.spec.parameters ?? []).map((/** @type {any} */ each) => each.field);
  return h("div", { class: "scroll" }, h("table", { class: "plain" }, head(["Job", "State", "Step", `Best ${sweep.spec.metric}`, ...fields, "Note"]),
    h("tbody", {}, ranked(sweep).map((trial) => {
      const state = stateOf(trial), best = trial.number === sweep.best_trial;
      return h("tr", { class: best ? "best" : "" },
        h("th", { scope: "row" }, state ? h("a", { href: `#/jobs/${encodeURIComponent(trial.job_id)}`, class: "mono" }, trial.job_id) : h("span", { class: "mono muted" }, trial.job_id)),
        h("td", {}, badge(state)),
        [Number(trial.step) ? grouped(trial.step) : "–", `${number(trial.best_value)}${best ? " ★" : ""}`, ...fields.map((/** @type {string} */ field) => trial.parameters?.[field] ?? "–")]
          .map((text) => h("td", { class: "right" }, text)),
        h("td", { class: "wrap" }, trial.stopped_early ? `stopped: ${trial.reason}` : trial.reason ?? ""));
    }))));
}

/** @param {import("./app.js").Frame} frame @returns {Promise<import("./app.js").Screen>} */
export async function showSweeps(frame) {
  const load = async () => {
    const { sweeps } = await get("sweeps");
    if (!frame.current()) return false;
    replace(frame.main, h("h1", {}, "Sweeps"), sweeps?.length
      ? h("section", { class: "box scroll", tabindex: "0", "aria-label": "Sweeps" }, h("table", { class: "plain" }, head(["Sweep", "State", "Trials ended", "Metric", "Owner", "Created"]),
        h("tbody", {}, sweeps.map((/** @type {any} */ sweep) => h("tr", {}, h("th", { scope: "row" }, sweepLink(sweep.id)), h("td", {}, badge(sweepState(sweep))),
          h("td", { class: "right" }, `${sweep.ended_trials} of ${sweep.trial_count}`),
          [sweep.spec.metric, sweep.owner, clock(sweep.create_time)].map((text) => h("td", {}, text)))))))
      : h("p", { class: "muted" }, "None. A sweep searches for good values of fields of a job: genesisctl sweep --help"));
    return true;
  };
  return { close: poll(frame, EVERY_SECONDS, await load(), load) };
}

/** @param {import("./app.js").Frame} frame @param {string} id @returns {Promise<import("./app.js").Screen>} */
export async function showSweep(frame, id) {
  const path = `sweeps/${encodeURIComponent(id)}`;
  const title = h("h1", { class: "mono" }, id), state = h("span"), note = h("p", { class: "reason" }), buttons = h("div", { class: "actions" }), place = h("div");
  const caller = await frame.caller;
  let shown = false;
  const load = async () => {
    const { sweep } = await get(path);
    if (!frame.current()) return false;
    const ended = isFinal(sweepState(sweep)), best = (sweep.trials ?? [])[sweep.best_trial ?? -1];
    replace(state, badge(sweepState(sweep)));
    setText(note, `${sweep.ended_trials} of ${sweep.trial_count} trials ended${best ? `; best ${sweep.spec.metric} ${number(best.best_value)} at step ${grouped(best.best_step)} by ${best.job_id}` : ""}`);
    const compared = ranked(sweep).filter((trial) => stateOf(trial)).slice(0, MOST_COMPARED).map((trial) => trial.job_id);
    replace(buttons, compared.length > 1 && h("a", { href: `#/compare?ids=${compared.map(encodeURIComponent).join(",")}` }, `Compare the best ${compared.length}`),
      mayChange(caller, sweep.owner) && sweepState(sweep) === "RUNNING" && h("button", { class: "danger quiet", onclick: () => confirm({
        title: `Cancel ${id}?`, button: "Cancel the sweep", danger: true, text: "Its jobs write a checkpoint and stop, and no more are submitted.",
        act: async () => {
          await post(`${path}:cancel`, {});
          await load();
        },
      }) }, "Cancel"));
    replace(place, table(sweep));
    if (!shown) replace(frame.main, h("header", { class: "job-head" }, h("div", { class: "title" }, title, state, h("div", { class: "spacer" }), buttons), note), h("section", { class: "box", tabindex: "0", "aria-label": "Trials" }, h("h2", {}, "Trials"), place));
    shown = true;
    return !ended;
  };
  return { close: poll(frame, EVERY_SECONDS, await load(), load) };
}
