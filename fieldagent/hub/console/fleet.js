// The devices, in a table and on the map, and why one is silent.

import { call } from "./hub.js";
import { distressed } from "./desk.js";
import { lookAtMap, setUpMap } from "./map.js";
import { by, clock, element, put } from "./text.js";
import { where } from "./words.js";

let mapped = false;

/** Why nothing comes from it, as far as the hub can tell, and what to do. */
function silence(device) {
  const why = [];
  if (device.disabled) why.push("it is disabled");
  if (device.trouble) why.push(device.trouble);
  if (device.satelliteTrouble) why.push(`over satellite: ${device.satelliteTrouble}`);
  if (!device.lastContact) why.push("it has never called: look at its hub-token, or its IMEI here");
  else if (!device.linked && device.over === "ip") why.push("its link ended: no network, or no power");
  if (device.checkIn && device.checkIn.state !== "in time")
    why.push(`a word of it was due by ${clock(device.checkIn.due)} UTC`);
  if (device.waiting && !device.linked) why.push(`${device.waiting} wait for it`);
  return why.join("; ");
}

/** How each modem of it hears, and its battery, as it told last. */
const modems = device => device.modems.map(({ channel, signal, battery, at }) => {
  const heard = signal === null ? "no signal known" : `signal ${signal} of 5`;
  return `${channel}: ${heard}${battery === null ? "" : `, battery ${battery} %`} (${clock(at)} UTC)`;
}).join("; ") || "not told";

const row = each => element("tr", {}, [
  each.name,
  each.user.name,
  each.linked ? "linked now" : each.lastContact ? `${clock(each.lastContact)} UTC over ${each.over}` : "never",
  where(each.position),
  modems(each),
  each.checkIn ? `${each.checkIn.state}, ${each.checkIn.rule}` : "none",
  String(each.waiting),
  silence(each),
].map(text => element("td", {}, text)));

export async function showFleet() {
  const { devices } = await call("GET", "/api/devices?limit=1000");
  put("devices", devices.map(row));
  if (!mapped) {
    // Only once it is seen: a map that is hidden has no size.
    mapped = true;
    await setUpMap(call);
  }
  const placed = devices.filter(each => each.position);
  await lookAtMap(call, placed.map(({ user, position }) => ({
    sender: user.id, name: user.name, place: [position.latitude, position.longitude], at: position.at,
  })), distressed());
}
