// Long lists: the first rows are shown, and more rows on request.

import { say } from "./language.js";
import { by, put } from "./text.js";

/** Number of rows at first, and of further rows per press. */
const STEP = 100;

/** Number of shown rows of each list. */
const shown = new Map();

/** Draws the first rows of the list `id`, each made by `row`. The button `id`-more shows more. */
export function putRows(id, those, row) {
  const some = those.slice(0, shown.get(id) ?? STEP), rest = those.length - some.length, more = by(`${id}-more`);
  put(id, some.map(row));
  more.hidden = !rest;
  more.textContent = say("Show {n} more", { n: Math.min(STEP, rest) });
  more.onclick = () => {
    shown.set(id, some.length + STEP);
    putRows(id, those, row);
    // For a person with a keyboard, the focus goes to the first new row instead of the last one.
    by(id).children[some.length]?.querySelector("a, summary")?.focus();
  };
}

/** Resets the list `id` to its first rows. */
export const fromTheTop = id => shown.delete(id);
