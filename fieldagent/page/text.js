// Makes elements and formats text and times. Text from outside never becomes markup.

import { counted, kept, say } from "./language.js";

// Strangers can write text that the page shows. These characters hide text, reverse it or break its
// line.
const HIDING = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export const plain = text => String(text).replace(HIDING,
  each => "\\x" + each.charCodeAt(0).toString(16).padStart(2, "0"));

export const by = id => document.getElementById(id);

/** An element with these attributes and children. A child that is not an element becomes
 * text. A function handles the event that its attribute names, such as onclick. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  made.append(...children.flat().filter(each => each !== null && each !== undefined && each !== "")
    .map(each => each instanceof Node ? each : plain(each)));
  return made;
}

/** Sets the text only if it differs, because a screen reader reads each change aloud. */
export function tell(id, text) {
  const place = by(id);
  const said = plain(text);
  if (place.textContent !== said) place.textContent = said;
  place.hidden = said === "" && place.getAttribute("role") === null;
}

// If the page redraws a button while a finger presses it, the browser sends no click. So the page
// redraws by itself only while no finger presses.
const LET_GO = 300;
/** Milliseconds after which a press counts as ended. No browser reports the end of a press on a
 * scroll bar or in a context menu. */
const DOWN = 3_000;
let down = false;
let letsGo;
/** Waiting drawings: the newest one of each name. */
const waiting = new Map();

/** Calls `draw` now, or when no finger presses. A newer call with the same `what` replaces it. */
export function drawn(what, draw) {
  waiting.delete(what);
  if (down) waiting.set(what, draw);
  else draw();
}

function letGo() {
  down = false;
  for (const [what, draw] of waiting)
    try {
      drawn(what, draw);
    } catch (error) {
      // A failed drawing must not stop the others.
      reportError(error);
    }
}

addEventListener("pointerdown", () => { clearTimeout(letsGo); down = true; letsGo = setTimeout(letGo, DOWN); }, true);
// After a touch, the click follows a little later. After a scroll, no click follows.
for (const end of ["pointerup", "pointercancel", "blur"])
  addEventListener(end, () => { clearTimeout(letsGo); letsGo = setTimeout(letGo, LET_GO); });
// The result of a click is drawn immediately, because the button is still in its place.
addEventListener("click", () => { down = false; clearTimeout(letsGo); letsGo = setTimeout(letGo); }, true);

/** Replaces the elements of a place, like `drawn`. Keeps the focus and open details. */
export const put = (id, nodes) => drawn(id, () => putNow(id, nodes));

/** Current elements by place. */
const drawnThere = new WeakMap();

function putNow(id, nodes) {
  const place = by(id);
  // The focus has moved in the meantime.
  if (!place) return;
  const key = nodes.map(node => node.outerHTML).join("");
  if (drawnThere.get(place) === key) return;
  const used = place.contains(document.activeElement) ? document.activeElement.id : "";
  drawnThere.set(place, key);
  place.replaceChildren(...nodes);
  if (used) by(used)?.focus();
}

/** Seconds by which the server's clock is ahead of this browser's. */
let ahead = 0;
export const setClock = unix => { ahead = unix - Date.now() / 1000; };
/** Returns the server's Unix time. */
export const now = () => Date.now() / 1000 + ahead;

const day = unix => new Date(unix * 1000).toISOString().slice(0, 10);

/** Returns a time of day, with its date if that is not today's. */
function clock(unix, { seconds = false, from = now() } = {}) {
  const time = new Date(unix * 1000).toISOString().slice(11, seconds ? 19 : 16);
  return day(unix) === day(from) ? time : `${day(unix)} ${time}`;
}

/** True if the reader has chosen UTC instead of the local time. */
export const UTC = kept("times") === "utc";
/** Seconds by which the reader's local time is ahead of UTC at that time. */
const east = unix => -60 * new Date(unix * 1000).getTimezoneOffset();
const inUtc = (unix, options) => `${clock(unix, options)} UTC`;

/** Returns a Unix time in the reader's local time, or in UTC if the reader has chosen that. */
export function moment(unix, { seconds = false, from = now() } = {}) {
  if (UTC) return inUtc(unix, { seconds, from });
  return clock(unix + east(unix), { seconds, from: from + east(from) });
}

/** Returns the same as an element, which shows the time in UTC as its tooltip. */
export const time = unix =>
  element("time", { datetime: new Date(unix * 1000).toISOString(), title: inUtc(unix) }, moment(unix));

const YEAR = 31557600;

export function age(seconds) {
  if (seconds < 60) return say("less than a minute");
  if (seconds < 7200) return counted(Math.floor(seconds / 60), "{n} minute", "{n} minutes");
  if (seconds < 172800) return counted(Math.floor(seconds / 3600), "{n} hour", "{n} hours");
  if (seconds < YEAR) return counted(Math.floor(seconds / 86400), "{n} day", "{n} days");
  return counted(Math.floor(seconds / YEAR), "{n} year", "{n} years");
}

/** Returns the expected delivery time: within which time half of them arrived, and nine of ten. With
 * few earlier deliveries, it returns how many of ten arrived within the longest time. */
export function expected(found) {
  const times = [found.p90 === null ? upTo(10 * found.share, found.longest) : upTo(9, found.p90)];
  if (found.median !== null) times.unshift(say("half: {age} at most", { age: rounded(found.median) }));
  return times.join(", ");
}

const upTo = (n, seconds) => say("{n} of 10: {age} at most", { n: Math.round(n), age: rounded(seconds) });

/** Returns a duration as text, rounded up. */
export const rounded = seconds => age([60, 3600, 86400].reduce((found, unit) =>
  seconds > (unit === 60 ? 0 : 2 * unit) ? Math.ceil(seconds / unit) * unit : found, 60));

/** The unit of lengths, `m` or `ft`, and its metres. */
export const UNIT = kept("lengths") === "ft" ? "ft" : "m";
export const METRES = UNIT === "ft" ? 0.3048 : 1;

export const lengthInWords = metres => `${Math.round(metres / METRES)} ${UNIT}`;

/** Returns a time in the past as text, such as "5 minutes ago". */
export function ago(seconds) {
  if (seconds < 60) return say("less than a minute ago");
  if (seconds < 7200) return counted(Math.floor(seconds / 60), "{n} minute ago", "{n} minutes ago");
  if (seconds < 172800) return counted(Math.floor(seconds / 3600), "{n} hour ago", "{n} hours ago");
  if (seconds < YEAR) return counted(Math.floor(seconds / 86400), "{n} day ago", "{n} days ago");
  return counted(Math.floor(seconds / YEAR), "{n} year ago", "{n} years ago");
}

/** Returns the stage of an item with a person, as in docs/reference/local-api.md. An unknown stage
 * of a later version appears in its own text. */
export function stageInWords({ stage, who: name, detail, text }) {
  const who = name || say("the addressee");
  const [, part, parts] = stage === "radio" && detail?.match(/^(\d+)\/(\d+)/) || [];
  if (part) return say("part {part} of {parts} on {who}'s radio", { part, parts, who });
  const values = { who, detail };
  if (stage === "read")
    return !detail ? say("read at {who}'s kit", values)
      : detail === who ? say("read by {who}", values) : say("read by {detail}, at {who}'s kit", values);
  return {
    stored: say("on {who}'s kit", values), programs: say("with {who}'s programs", values),
    handed_over: say("passed on to {detail}, for {who}", values),
    nobody: say("{who} cannot be reached: {detail}", values), radio: say("on {who}'s radio", values),
  }[stage] ?? text;
}
