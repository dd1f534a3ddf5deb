// What was sent, and where, in words.

import { clock } from "./text.js";

export const where = position => position
  ? `${Number(position.latitude).toFixed(5)} ${Number(position.longitude).toFixed(5)}, ${clock(position.at)} UTC`
  : "no position is known";

/** Where a position is from, as far as its kit told. */
const SOURCES = { gps: "by the kit's GPS", browser: "by the browser", typed: "typed", "last posted": "the last one posted" };

export function said(event) {
  if (event.type === "Message") return event.content;
  if (event.type === "Data") return "data";
  return [event.name, `${event.latitude} ${event.longitude}`, SOURCES[event.source], event.notes].filter(Boolean).join(", ");
}

/** Seconds: what took longer has waited on its way, perhaps for a signal. */
const AT_ONCE = 120;

/** When it came, and of when it is where that is another time: it is no news then. */
export function cameAt(unix, event) {
  const dated = event ? Date.parse(event.timestamp) / 1000 : unix;
  return `${clock(unix)} UTC` + (Math.abs(unix - dated) > AT_ONCE ? ` (of ${clock(dated)} UTC)` : "");
}
