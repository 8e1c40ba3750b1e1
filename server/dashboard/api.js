// Calls of /v1, and the stream of events.

const TOKEN = "genesis-token";
// A watch sends a bookmark after ten silent seconds. After this many, the connection counts as lost.
const SILENT_SECONDS = 25;
const HIDDEN_SECONDS = 30;
const MAX_WAIT_SECONDS = 15;

/** An error response of the daemon, or the lack of any response (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Called when the daemon asks for a token. */
let onUnauthorized = () => {};

/** @param {() => void} callback */
export function whenUnauthorized(callback) {
  onUnauthorized = callback;
}

export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

/**
 * Keeps the token until the tab is closed; an empty one removes it.
 * @param {string} token
 */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

/** @typedef {Object<string, string | number | boolean | string[] | undefined>} Query */

/** @param {string} path @param {Query} [query] */
function address(path, query) {
  const url = new URL(`v1/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query ?? {})) {
    const values = Array.isArray(value) ? value : value === undefined || value === "" ? [] : [value];
    for (const each of values) url.searchParams.append(name, String(each));
  }
  return url;
}

/** @param {URL} url @param {RequestInit} [options] */
async function send(url, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(url, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "The daemon does not respond.");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.message ?? `The daemon responds ${response.status}.`);
}

/** @param {URL} url @param {RequestInit} [options] */
async function request(url, options) {
  try {
    return await send(url, options);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) onUnauthorized();
    throw error;
  }
}

/** @param {string} path @param {Query} [query] @returns {Promise<any>} */
export async function get(path, query) {
  return (await request(address(path, query))).json();
}

/**
 * Returns the response of a page beside the dashboard, whatever its status.
 * @param {string} path
 */
export const page = (path) => fetch(new URL(path, document.baseURI), { cache: "no-store" });

/** @param {string} path @param {Object<string, any>} body @param {string} [method] @returns {Promise<any>} */
export async function post(path, body, method = "POST") {
  const response = await request(address(path), {
    method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
  });
  return response.json();
}

const session = () => new URL("dashboard/session", document.baseURI);

/**
 * Signs this tab in by the code of a link, which works once.
 * @param {string} code
 */
export async function signInWith(code) {
  const response = await send(session(), { method: "POST", body: JSON.stringify({ code }), headers: { "Content-Type": "application/json" } });
  setToken((await response.json()).token);
}

/** Forgets the token, and ends the session if it is that of a link. */
export function signOut() {
  send(session(), { method: "DELETE" }).catch(() => {});
  setToken("");
}

/** @param {string} job */
export const jobPath = (job) => `jobs/${encodeURIComponent(job)}`;

/**
 * @typedef {Object} StreamState
 * @property {"connecting" | "live" | "reconnecting" | "refused" | "resting" | "closed"} kind
 * @property {string} [why]
 */

/**
 * A WatchJobs stream that reconnects with its cursor. Hidden pages soon hold no connection, because browsers allow only six for each server.
 */
export class Stream {
  /**
   * @param {Query} filter
   * @param {{cursor: number, message: (message: any) => void, state: (state: StreamState) => void, reconnected: () => void}} options
   */
  constructor(filter, options) {
    this.filter = filter;
    this.options = options;
    this.cursor = options.cursor;
    this.closed = false;
    this.abort = new AbortController();
    this.wake = () => {};
    this.visibility = () => this.onVisibility();
    document.addEventListener("visibilitychange", this.visibility);
    this.run();
  }

  close() {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.visibility);
    clearTimeout(this.rest);
    this.abort.abort();
    this.wake();
  }

  onVisibility() {
    clearTimeout(this.rest);
    if (document.hidden) this.rest = setTimeout(() => this.abort.abort(), HIDDEN_SECONDS * 1000);
    else this.wake();
  }

  async run() {
    let failures = 0;
    let reconnects = false;
    this.options.state({ kind: "connecting" });
    while (!this.closed) {
      let why = "the daemon closed the connection";
      try {
        await this.read(() => {
          failures = 0;
          this.options.state({ kind: "live" });
          if (reconnects) this.options.reconnected();
        });
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
          return this.options.state({ kind: "refused", why: error.message });
        }
        why = error instanceof ApiError ? error.message : "the connection was lost";
      }
      if (this.closed) break;
      reconnects = true;
      if (document.hidden) {
        this.options.state({ kind: "resting" });
        await new Promise((resolve) => { this.wake = () => resolve(undefined); });
      } else {
        const wait = Math.min(2 ** failures++, MAX_WAIT_SECONDS);
        this.options.state({ kind: "reconnecting", why });
        await new Promise((resolve) => {
          this.wake = () => resolve(undefined);
          setTimeout(resolve, wait * 1000);
        });
      }
    }
    this.options.state({ kind: "closed" });
  }

  /**
   * Reads messages until the stream ends.
   * @param {() => void} opened
   */
  async read(opened) {
    this.abort = new AbortController();
    const abort = this.abort;
    let silence = setTimeout(() => abort.abort(), SILENT_SECONDS * 1000);
    try {
      const query = { ...this.filter, cursor: this.cursor, skip_dropped: true };
      const response = await request(address("jobs:watch", query), { signal: abort.signal });
      const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
      const decoder = new TextDecoder();
      let text = "";
      opened();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENT_SECONDS * 1000);
        const lines = (text + decoder.decode(value, { stream: true })).split("\n");
        text = lines.pop() ?? "";
        for (const line of lines.filter((each) => each.trim())) this.take(JSON.parse(line));
      }
    } finally {
      clearTimeout(silence);
    }
  }

  /** @param {any} message */
  take(message) {
    if (message.error?.status === "UNAUTHENTICATED") onUnauthorized();
    if (message.error) throw new ApiError(message.error.code ?? 0, message.error.message ?? "the watch ended");
    if (Number(message.cursor) > this.cursor) this.cursor = Number(message.cursor);
    this.options.message(message);
  }
}
