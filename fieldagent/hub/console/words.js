// What was sent, and where, in words.

import { clock } from "./text.js";

export const where = position => position
  ? `${Number(position.latitude).toFixed(5)} ${Number(position.longitude).toFixed(5)}, ${clock(position.at)} UTC`
  : "no position is known";

export function said(event) {
  if (event.type === "Message") return event.content;
  if (event.type === "Data") return "data";
  return [event.name, `${event.latitude} ${event.longitude}`, event.notes].filter(Boolean).join(", ");
}
