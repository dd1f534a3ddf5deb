// A stream of a server's events, which says so where nothing comes any more: a network that is gone,
// or a server that hangs, ends no connection.

import { parsed } from "./language.js";

/** Seconds after which the server shows that it lives, a part of the minute on which a kit is awake
 * anyway; and milliseconds after which it has not. */
const ALIVE = 3.75, SILENT = 5_000;
/** Milliseconds until a stream that does not begin is given up, and one that was refused is asked
 * for again. */
const BEGINS = 15_000, AGAIN = 3_000;

/** Listens to what is at `path` until `close` of what comes back is called.
 *
 * `events` has a function for each event's document. `connected` is called with whether anything may
 * have been missed; `alive` at each sign of life; `away` where the stream broke or fell silent, with
 * which of the two; `refused` where the server answers with an error. */
export function follow(path, events, { connected, alive = () => {}, away, refused = away }) {
  let source, timer, placed = false, lives = false;
  const address = `${path}${path.includes("?") ? "&" : "?"}alive=${ALIVE}`;

  function expect(milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(silent, milliseconds);
  }

  function heard() {
    // A server of before never says that it lives.
    if (lives) expect(SILENT);
    alive();
  }

  function begin() {
    const mine = source = new EventSource(address);
    placed = false;
    const current = act => event => { if (mine === source) act(event); };
    expect(BEGINS);
    mine.onopen = current(() => {
      clearTimeout(timer);
      heard();
      connected(!placed);
    });
    mine.addEventListener("alive", current(() => { lives = true; heard(); }));
    for (const [topic, take] of Object.entries(events))
      mine.addEventListener(topic, current(event => {
        heard();
        placed = event.lastEventId !== "";
        take(parsed(event.data));
      }));
    mine.onerror = current(() => {
      expect(BEGINS);
      if (mine.readyState !== EventSource.CLOSED) return away(false);
      clearTimeout(timer);
      timer = setTimeout(begin, AGAIN);
      refused(false);
    });
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function silent() {
    close();
    begin();
    away(true);
  }

  begin();
  return { close };
}
