// Items, their positions and their states, as text.

import { placeInWords } from "./choices.js";
import { say, spoken } from "./language.js";
import { moment } from "./text.js";

await spoken;

const degrees = value => Number(value).toFixed(5);

export const where = position => position
  ? `${placeInWords([degrees(position.latitude), degrees(position.longitude)])}, ${moment(position.at)}`
  : say("no position is known");

/** Sources of a position that kits report. */
const SOURCES = { gps: say("by the kit's GPS"), browser: say("by the browser"), typed: say("typed"), "last posted": say("the last one posted") };

export function said(event) {
  if (event.type === "Message") return event.content;
  if (event.type === "Data") return say("data");
  return [event.name, placeInWords([event.latitude, event.longitude]), SOURCES[event.source], event.notes].filter(Boolean).join(", ");
}

/** Returns the state of an item at a kit. None of these states proves that a person has read it. */
export const howFar = (state, kit) => ({
  waiting: say("waits for {kit}", { kit }), "on its way": say("on its way to {kit}", { kit }),
  stored: say("on the disk of {kit}", { kit }), expired: say("expired for {kit}", { kit }),
  collapsed: say("replaced by a newer one for {kit}", { kit }),
})[state] ?? `${state} ${kit}`;

/** Returns the time of a revocation, and the reason if there is one. */
export const revokedSince = ({ since, why }) => moment(since) + (why && ` (${why})`);

/** Seconds. An item that took longer has waited on its way, perhaps for a signal. */
const AT_ONCE = 120;

/** Returns the time of arrival, and the date of the event if it is much earlier: then it is no
 * longer news. */
export function cameAt(unix, event) {
  const dated = event ? Date.parse(event.timestamp) / 1000 : unix;
  return moment(unix) + (Math.abs(unix - dated) > AT_ONCE ? ` ${say("({time})", { time: moment(dated) })}` : "");
}
