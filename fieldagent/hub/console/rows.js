// Long lists: their first rows stand there, and more as somebody asks for them.

import { say } from "./language.js";
import { by, put } from "./text.js";

/** Rows that stand there at first, and that come with each press. */
const STEP = 100;

/** By list, how many of its rows are shown. */
const shown = new Map();

/** Draws the first rows of the list `id`, each made by `row`; the button `id`-more shows more. */
export function putRows(id, those, row) {
  const some = those.slice(0, shown.get(id) ?? STEP), rest = those.length - some.length, more = by(`${id}-more`);
  put(id, some.map(row));
  more.hidden = !rest;
  more.textContent = say("Show {n} more", { n: Math.min(STEP, rest) });
  more.onclick = () => {
    shown.set(id, some.length + STEP);
    putRows(id, those, row);
    // Who goes on by the keyboard does so where the new ones begin, and not behind them.
    by(id).children[some.length]?.querySelector("a, summary")?.focus();
  };
}

/** Lets the list `id` begin anew. */
export const fromTheTop = id => shown.delete(id);
