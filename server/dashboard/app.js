// The frame of the page: addresses, connection, and the signed-in caller.
import { askForToken } from "./dialogs.js";
import * as api from "./api.js";
import { h, replace } from "./dom.js";
import { showCompare } from "./compare.js";
import { showJob } from "./job.js";
import { showJobs } from "./jobs.js";
import { showSweep, showSweeps } from "./sweeps.js";

/**
 * The parts of the frame that a screen uses.
 * @typedef {Object} Frame
 * @property {HTMLElement} main
 * @property {Promise<{caller: string, caller_role: string}>} caller
 * @property {(state: api.StreamState) => void} connection
 * @property {(error: unknown) => void} failed
 * @property {() => boolean} current whether the screen is still shown
 */
/** @typedef {{close: () => void}} Screen */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const connection = /** @type {HTMLElement} */ (document.getElementById("connection"));
const account = /** @type {HTMLElement} */ (document.getElementById("account"));
const nav = /** @type {HTMLElement} */ (document.getElementById("nav"));
const PAGES = [["#/", "Jobs"], ["#/sweeps", "Sweeps"], ["#/compare", "Compare"]];
const STATES = { connecting: "connecting", live: "live", reconnecting: "reconnecting", refused: "refused", resting: "paused", closed: "" };

/** @type {Screen | undefined} */
let screen;
let visit = 0;
/** @type {Promise<any> | undefined} */
let caller;

/** @param {api.StreamState} state */
function showConnection(state) {
  connection.className = `connection ${state.kind}`;
  connection.title = state.why ?? "";
  replace(connection, STATES[state.kind] && h("i", { "aria-hidden": "true" }), STATES[state.kind]);
}

/** @param {{caller: string, caller_role: string}} server */
function showAccount(server) {
  const name = server.caller && server.caller !== "anonymous" ? `${server.caller} · ${server.caller_role}` : "";
  replace(account, name && h("span", { class: "muted who" }, name),
    api.hasToken() && h("button", { class: "quiet", onclick: signOut }, "Sign out"));
}

/** @param {string} token */
function signIn(token) {
  api.setToken(token);
  caller = undefined;
  show();
}

const ask = () => askForToken(signIn, api.hasToken() ? "The daemon did not accept the token." : "");

function signOut() {
  api.signOut();
  caller = undefined;
  show();
}

/**
 * Signs in by the code of a link (genesis.open), after removing it from the address bar.
 * @param {string} path @param {URLSearchParams} query
 */
async function followLink(path, query) {
  const code = query.get("login");
  if (code === null) return;
  query.delete("login");
  const rest = String(query);
  history.replaceState(null, "", `#${path}${rest && `?${rest}`}`);
  try {
    await api.signInWith(code);
    caller = undefined;
  } catch (error) {
    if (api.hasToken()) return;  // The tab stays signed in.
    askForToken(signIn, error instanceof Error ? error.message : String(error));
    throw error;
  }
}

/** @param {unknown} error */
function failed(error) {
  if (error instanceof api.ApiError && error.status === 401) {
    return replace(main, h("div", { class: "empty" }, h("h1", {}, "Signed out"),
      h("p", {}, h("button", { class: "primary", onclick: ask }, "Sign in"))));
  }
  const text = error instanceof Error ? error.message : String(error);
  replace(main, h("div", { class: "empty" },
    h("h1", {}, error instanceof api.ApiError && error.status === 404 ? "Not found" : "This page could not be loaded"), h("p", {}, text),
    h("p", {}, h("button", { onclick: show }, "Try again"), " ", h("a", { href: "#/" }, "All jobs"))));
  if (error instanceof TypeError || error instanceof ReferenceError) throw error;
}

/** @param {string} part part of an address, which may not be valid */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  const mine = ++visit;
  screen?.close();
  screen = undefined;
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const chosen = new URLSearchParams(query);
  const parts = path.split("/").filter(Boolean).map(decoded);
  for (const link of nav.querySelectorAll("a")) {
    const here = link.getAttribute("href") === (["compare", "sweeps"].includes(parts[0]) ? `#/${parts[0]}` : "#/");
    link.toggleAttribute("data-here", here);
    if (here && !parts[1] && parts[0] !== "jobs") link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = parts[1] ? `${parts[1]} · Genesis` : "Genesis";
  showConnection({ kind: "connecting" });
  try {
    await followLink(path, chosen);
    caller ??= api.get("server");
    caller.then(showAccount, () => { caller = undefined; });
    const frame = {
      main, caller, failed,
      connection: (/** @type {api.StreamState} */ state) => mine === visit && showConnection(state),
      current: () => mine === visit,
    };
    const opened = parts[0] === "jobs" && parts[1] ? await showJob(frame, parts[1])
      : parts[0] === "compare" ? await showCompare(frame, (chosen.get("ids") ?? "").split(",").filter(Boolean))
        : parts[0] === "sweeps" ? await (parts[1] ? showSweep(frame, parts[1]) : showSweeps(frame))
          : await showJobs(frame);
    if (mine === visit) screen = opened;
    else opened.close();
  } catch (error) {
    if (mine === visit) {
      showConnection({ kind: "closed" });
      failed(error);
    }
  }
}

api.whenUnauthorized(ask);
replace(nav, PAGES.map(([href, text]) => h("a", { href }, text)));
addEventListener("hashchange", () => {
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  show();
});
show();
