// When a message is likely to have arrived, by how long those before it took.

import { say } from "./language.js";
import { age } from "./text.js";

/** Times within which a half and nine of ten arrive; of fewer, how many and within which. */
export function expected(found) {
  const times = [found.most === null ? upTo(10 * found.share, found.last) : upTo(9, found.most)];
  if (found.half !== null) times.unshift(say("half: {age} at most", { age: rounded(found.half) }));
  return times.join(", ");
}

const upTo = (n, seconds) => say("{n} of 10: {age} at most", { n: Math.round(n), age: rounded(seconds) });

/** A time that something takes, no shorter than it is. */
export const rounded = seconds => age([60, 3600, 86400].reduce((found, unit) =>
  seconds > (unit === 60 ? 0 : 2 * unit) ? Math.ceil(seconds / unit) * unit : found, 60));
