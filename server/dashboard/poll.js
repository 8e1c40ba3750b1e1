// Polling, for screens without a stream.
import { ApiError } from "./api.js";

/**
 * Calls `load` every few seconds while the page is visible, until it returns that nothing changes any more or the daemon refuses.
 * @param {import("./app.js").Frame} frame @param {number} seconds @param {boolean} live whether what is shown may change
 * @param {() => Promise<boolean>} load
 * @returns {() => void} ends it
 */
export function poll(frame, seconds, live, load) {
  frame.connection({ kind: live ? "live" : "closed" });
  if (!live) return () => {};
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const goesOn = await load();
      frame.connection({ kind: goesOn ? "live" : "closed" });
      if (!goesOn) clearInterval(timer);
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      const refused = status >= 400 && status < 500 && status !== 429;
      frame.connection({ kind: refused ? "refused" : "reconnecting", why: String(error) });
      if (!refused) return;
      clearInterval(timer);
      if (frame.current() && status !== 401) frame.failed(error);
    }
  }, seconds * 1000);
  return () => clearInterval(timer);
}
