// The troubles of a kit, the worst first, and the order of kits. This module uses no clock, no page
// and no hub.

import { because, say, spoken, term } from "./language.js";

await spoken;

/** All kinds of trouble, the worst first, with their names. */
export const KINDS = {
  sos: "SOS", silent: say("silent"), battery: say("battery"), budget: say("budget"), update: say("update failed"), clock: say("clock"), other: say("trouble"),
};
const RANKS = Object.keys(KINDS);

/** Percent of a battery, share of a day's credits, seconds of silence, and seconds that a clock may
 * be ahead. */
const BATTERY_LOW = 20, CREDITS_LOW = 0.2, SILENT = 86_400, AHEAD = 120;

/** Result of offered settings in the hub's form: number, state, and reason. */
const OFFER = /^(\d+) (\w+)(?:: (.+))?$/s;

/** Returns the troubles of a `device` of the hub's list, the worst first, each with kind and text.
 * `incidents` are its SOS and alarms that are not closed. `dated` is the date of its last position
 * by its own clock, or null. All times are Unix seconds. */
export function troubles(device, incidents, dated, now) {
  const found = [];
  const add = (kind, text) => found.push({ kind, text });
  for (const { short: id, kind, calledOff } of incidents)
    if (kind === "sos") add("sos", calledOff ? say("{what}, called off", { what: `SOS ${id}` }) : `SOS ${id}`);
    else if (kind === "operator") add("other", say("alarm {id} about its operator", { id }));
    else if (kind === "fence") add("other", say("alarm {id} about a fence", { id }));
  if (device.disabled) return found;
  const silence = silenceOf(device, now);
  if (silence) add("silent", silence);
  for (const { channel, battery } of device.modems)
    if (battery !== null && battery < BATTERY_LOW) add("battery", say("battery of {channel} at {percent} %", { channel: term(channel), percent: battery }));
  if (device.credits) {
    const { perDay, sosReserve, spent } = device.credits;
    const left = Math.max(0, perDay - sosReserve - spent);
    if (left <= CREDITS_LOW * (perDay - sosReserve)) add("budget", say("{left} of {n} credits left today", { left, n: perDay - sosReserve }));
  }
  if (/ fell back to /.test(device.lastUpdate ?? "")) add("update", say("update: {what}", { what: because(device.lastUpdate) }));
  if (["refused", "back"].includes(OFFER.exec(device.settings ?? "")?.[2])) add("update", say("settings: {what}", { what: offered(device.settings) }));
  if (dated !== null && dated > now + AHEAD) add("clock", say("its clock is ahead"));
  if (device.rebuild) add("other", rebuilt(device.rebuild));
  for (const text of [device.trouble, device.satelliteTrouble]) if (text) add("other", text);
  return found.sort((one, other) => RANKS.indexOf(one.kind) - RANKS.indexOf(other.kind));
}

/** Returns the result of the last settings offer as text. */
export function offered(settings) {
  const [, number, state, why] = OFFER.exec(settings);
  return `${number} ${term(state)}${why ? `: ${because(why)}` : ""}`;
}

/** Returns the progress of returning a kit's items to a restored database, as text. */
function rebuilt({ state, missing, back, gone }) {
  if (state === "open") return say("the hub's database was restored: this kit has not returned its items yet");
  return say("the hub's database was restored: {missing} items were missing, {back} came back, {gone} are lost", { missing, back, gone });
}

function silenceOf({ lastContact, linked, checkIn }, now) {
  if (checkIn && checkIn.state !== "in time") return say("check-in {state}", { state: term(checkIn.state) });
  if (lastContact === null) return say("never heard");
  return !linked && !checkIn && now - lastContact > SILENT ? say("not heard for a day") : "";
}

/** Rank of a kit: that of its worst trouble. */
const rank = kit => kit.troubles.length ? RANKS.indexOf(kit.troubles[0].kind) : RANKS.length;

const byName = (one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }) || one.id - other.id;

const ORDERS = {
  trouble: (one, other) => rank(one) - rank(other) || byName(one, other),
  name: byName,
  heard: (one, other) => (one.lastContact ?? 0) - (other.lastContact ?? 0) || byName(one, other),
};

/** Returns the kits whose name, user name or IMEI contains all words of `find` and that have the
 * trouble `show`, sorted by `sort`. `show` is a kind, "any", or empty for all kits. */
export function listed(kits, { find = "", show = "", sort = "trouble" }) {
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  const has = kit => words.every(word => `${kit.name} ${kit.user.name} ${kit.imei ?? ""}`.toLowerCase().includes(word))
    && (!show || (show === "any" ? kit.troubles.length > 0 : kit.troubles.some(each => each.kind === show)));
  return kits.filter(has).sort(ORDERS[sort] ?? ORDERS.trouble);
}

/** Returns the number of kits with each kind of trouble. */
export const counts = kits => Object.fromEntries(RANKS.map(kind =>
  [kind, kits.filter(kit => kit.troubles.some(each => each.kind === kind)).length]));

/** Groups the points by squares of `cell` pixels: [{ x, y, those }]. */
export function clusters(points, cell) {
  const squares = new Map();
  for (const point of points) {
    const square = `${Math.floor(point.x / cell)} ${Math.floor(point.y / cell)}`;
    if (!squares.has(square)) squares.set(square, []);
    squares.get(square).push(point);
  }
  const middle = (those, axis) => those.reduce((sum, each) => sum + each[axis], 0) / those.length;
  return [...squares.values()].map(those => ({ x: middle(those, "x"), y: middle(those, "y"), those }));
}
