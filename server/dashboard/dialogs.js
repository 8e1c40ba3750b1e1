// Dialogs: the request for a token, and the confirmation of an action.
import { h, replace } from "./dom.js";

/** @param {string} name @param {...any} children @returns {HTMLDialogElement} */
function open(name, ...children) {
  const title = h("h2", { id: "dialog-title" }, name);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, title, children);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for a token, once however many calls are refused.
 * @param {(token: string) => void} done @param {string} [fault] why the tab is not signed in
 */
export function askForToken(done, fault = "") {
  if (document.querySelector("dialog[open] .token")) return;
  const token = h("input", { type: "password", class: "token", id: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
  const dialog = open("Sign in", h("form", {
    onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      dialog.close();
      done(token.value.trim());
    },
  },
  h("p", { class: "muted" }, "This daemon asks for a token. It is kept until this tab is closed."),
  fault && h("p", { class: "fault", role: "alert" }, fault),
  h("label", { for: "token" }, "Token"), token,
  h("div", { class: "buttons" }, h("button", { class: "primary" }, "Sign in"))));
  token.focus();
}

/**
 * Asks before an action. Shows its error in the dialog and leaves it open.
 * @param {{title: string, text: string, button: string, danger?: boolean, field?: HTMLElement | null, act: () => Promise<any>}} question
 */
export function confirm(question) {
  const fault = h("p", { class: "fault", role: "alert" });
  const yes = h("button", { class: question.danger ? "danger" : "primary" }, question.button);
  const dialog = open(question.title, h("form", {
    onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      yes.disabled = true;
      try {
        await question.act();
        dialog.close();
      } catch (error) {
        replace(fault, error instanceof Error ? error.message : String(error));
        yes.disabled = false;
      }
    },
  },
  h("p", { class: "muted" }, question.text), question.field, fault,
  h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => dialog.close() }, "Go back"), yes)));
}
