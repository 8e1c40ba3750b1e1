// The actions on a job that the caller may take.
import { jobPath, post } from "./api.js";
import { confirm } from "./dialogs.js";
import { h } from "./dom.js";
import { isFinal, stateOf } from "./format.js";

/**
 * Returns the button of an admin that disables reduced precision for all jobs, or allows it again.
 * @param {any} policy @param {() => void} done
 */
export function policyButton(policy, done) {
  const allowed = policy.policy?.reduced_precision_allowed !== false;
  if (allowed && !policy.reduced_precision_enabled) return null;
  const reason = h("input", { id: "reason", maxlength: "1000", placeholder: "for later readers" });
  const running = h("select", { id: "running" }, [["NEW_ATTEMPTS", "go on unchanged"], ["NEXT_STEP", "change to FP32 at their next step"], ["AT_ONCE", "stop, and go on in FP32 from their last checkpoint"]]
    .map(([value, name]) => h("option", { value: `POLICY_APPLICATION_${value}` }, name)));
  const put = async () => {
    await post("precision_policy", { reduced_precision_allowed: !allowed, reason: reason.value, ...(allowed ? { application: running.value } : {}) }, "PUT");
    done();
  };
  return h("button", { class: "quiet", onclick: () => confirm({
    title: allowed ? "Train all jobs in FP32?" : "Allow reduced precision again?", button: allowed ? "Disable reduced precision" : "Allow", danger: allowed, act: put,
    text: allowed ? "Every attempt that starts from now on runs in FP32, until an admin allows reduced precision again." : "The environment and the settings file decide again.",
    field: h("div", {}, allowed && [h("label", { for: "running" }, "Running jobs "), running], h("label", { for: "reason" }, "Reason"), reason),
  }) }, allowed ? "Use FP32" : "Allow again");
}

/**
 * Returns whether the caller may change what this owner has, by the same rule as the daemon.
 * @param {{caller: string, caller_role: string}} caller @param {string} owner
 */
export const mayChange = (caller, owner) => caller.caller_role === "admin" || (caller.caller_role === "submitter" && caller.caller === owner);

/**
 * Returns the buttons for a job in its state. Jobs that have ended, or that the caller may not change, have none.
 * @param {any} job @param {{caller: string, caller_role: string}} caller @param {() => void} done
 */
export function actionsOf(job, caller, done) {
  const state = stateOf(job), path = jobPath(job.id);
  if (!mayChange(caller, job.owner) || isFinal(state)) return [];
  const act = (/** @type {string} */ verb, /** @type {() => Object<string, any>} */ body = () => ({})) => async () => {
    await post(`${path}:${verb}`, body());
    done();
  };
  const button = (/** @type {string} */ text, /** @type {Parameters<typeof confirm>[0]} */ question) =>
    h("button", { class: question.danger ? "danger quiet" : "", onclick: () => confirm(question) }, text);
  const buttons = [];
  if (state === "RUNNING") {
    const name = h("input", { id: "name", pattern: "[a-z0-9-]{1,63}", placeholder: "optional, e.g. before-warmup" });
    buttons.push(button("Checkpoint", {
      title: `Checkpoint ${job.id}?`, button: "Checkpoint", act: act("checkpoint", () => (name.value ? { name: name.value } : {})),
      text: "It is written at the next step boundary. A named checkpoint is kept until a user deletes it.",
      field: h("div", {}, h("label", { for: "name" }, "Name"), name),
    }));
  }
  if (["QUEUED", "STARTING", "RUNNING", "RECOVERING"].includes(state)) {
    buttons.push(button("Pause", {
      title: `Pause ${job.id}?`, button: "Pause", act: act("pause"), text: "It writes a checkpoint and frees its slot until it is resumed.",
    }));
  }
  if (state === "PAUSED") {
    buttons.push(button("Resume", { title: `Resume ${job.id}?`, button: "Resume", act: act("resume"), text: "It is queued again and continues from its checkpoint." }));
  }
  if (state !== "CANCELLING") {
    const now = h("input", { type: "checkbox", id: "now" });
    buttons.push(button("Cancel", {
      title: `Cancel ${job.id}?`, button: "Cancel the job", danger: true, act: act("cancel", () => ({ now: now.checked })),
      text: "It writes a checkpoint and stops. A cancelled job cannot be resumed.",
      field: h("label", { class: "check" }, now, " Stop immediately, without a checkpoint"),
    }));
  }
  return buttons;
}
