// What was sent, where, and how far it has come, in words.

import { placeInWords } from "./choices.js";
import { say, spoken } from "./language.js";
import { moment } from "./text.js";

await spoken;

const degrees = value => Number(value).toFixed(5);

export const where = position => position
  ? `${placeInWords([degrees(position.latitude), degrees(position.longitude)])}, ${moment(position.at)}`
  : say("no position is known");

/** Where a position is from, as far as its kit told. */
const SOURCES = { gps: say("by the kit's GPS"), browser: say("by the browser"), typed: say("typed"), "last posted": say("the last one posted") };

export function said(event) {
  if (event.type === "Message") return event.content;
  if (event.type === "Data") return say("data");
  return [event.name, placeInWords([event.latitude, event.longitude]), SOURCES[event.source], event.notes].filter(Boolean).join(", ");
}

/** How far something has come with a kit: nobody is known to have read it by any of these. */
export const howFar = (state, kit) => ({
  waiting: say("waits for {kit}", { kit }), "on its way": say("on its way to {kit}", { kit }),
  stored: say("on the disk of {kit}", { kit }), expired: say("expired for {kit}", { kit }),
  collapsed: say("replaced by a newer one for {kit}", { kit }),
})[state] ?? `${state} ${kit}`;

/** Since when a kit is revoked, and why where somebody said so. */
export const revokedSince = ({ since, why }) => moment(since) + (why && ` (${why})`);

/** Seconds: what took longer has waited on its way, perhaps for a signal. */
const AT_ONCE = 120;

/** When it came, and of when it is where that is another time: it is no news then. */
export function cameAt(unix, event) {
  const dated = event ? Date.parse(event.timestamp) / 1000 : unix;
  return moment(unix) + (Math.abs(unix - dated) > AT_ONCE ? ` ${say("(of {time})", { time: moment(dated) })}` : "");
}
