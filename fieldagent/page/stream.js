// A stream of events from a server. It reports silence, because a lost network or a server that
// hangs does not end a connection.

import { parsed } from "./language.js";

/** ALIVE: seconds between two signs of life, a fraction of the minute in which a kit is awake in
 * any case. SILENT: milliseconds after which the server counts as silent. */
const ALIVE = 3.75, SILENT = 5_000;
/** BEGINS: milliseconds to wait for a stream to start. AGAIN: milliseconds until a refused stream
 * is tried again. */
const BEGINS = 15_000, AGAIN = 3_000;

/** Listens to `path` until `close` of the returned object is called. `events` contains a function
 * for the document of each event. `connected` is called with true if events may have been missed,
 * and `alive` at each sign of life. `away` is called if the stream broke (false) or fell silent
 * (true), and `refused` if the server answers with an error. */
export function follow(path, events, { connected, alive = () => {}, away, refused = away }) {
  let source, timer, placed = false, lives = false;
  const address = `${path}${path.includes("?") ? "&" : "?"}alive=${ALIVE}`;

  function expect(milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(silent, milliseconds);
  }

  function heard() {
    // Earlier versions of the server send no signs of life.
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
