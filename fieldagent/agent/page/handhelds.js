// People nearby with a handheld, on the radio for text messages.

import { placeInWords } from "./choices.js";
import { counted, say, term } from "./language.js";
import { ago, by, element, moment, put } from "./text.js";

const SHOWN = 30;

/** Shows the people. `mesh` is the state of that radio, or null if there is none. `around` lists
 * the heard people, the last one first. */
export function showPeople(mesh, around, now) {
  by("handhelds").hidden = mesh === null;
  if (mesh === null) return;
  const state = `${term(mesh.state)}${mesh.reason ? `: ${mesh.reason}` : ""}`;
  const waiting = mesh.texts.waiting
    ? ` · ${counted(mesh.texts.waiting, "{n} text waiting for handhelds", "{n} texts waiting for handhelds")}` : "";
  put("people-radio", [element("p", { class: "condition" }, say("Handheld radio: {state}", { state }) + waiting)]);
  put("around", around.slice(0, SHOWN).map(each => element("li", {},
    element("strong", {}, each.name), each.known ? "" : ` ${say("(guest)")}`,
    element("span", { class: "hint" }, ` ${told(each, now).join(" · ")}`))));
}

/** The beginning of a public key, in the form that the apps of its firmware show. */
const short = handle => handle.length === 64 ? handle.slice(0, 12) : handle;

/** The last positions of those people, for the map. */
export const placesOf = (around, now) => around.filter(each => each.position?.at).map(each => ({
  sender: each.handle, name: each.known ? each.name : `${each.name} ${say("(guest)")}`,
  place: [each.position.latitude, each.position.longitude], at: each.position.at,
  seen: [ago(now - each.position.at), caveat(each)].filter(text => text !== "").join(", "),
  blurred: each.position.blurred,
}));

/** A warning for everything from a sender with unproved identity. */
const caveat = each => each.caveat.includes("APRS") ? say("by APRS, unproved call sign") : each.caveat;

function told(each, now) {
  const place = each.position;
  return [
    each.handle === each.name ? "" : short(each.handle), caveat(each),
    each.heard === null ? say("not heard by this kit") : say("heard {ago}", { ago: ago(now - each.heard) }),
    each.rssi === null ? "" : `${each.rssi} dBm`,
    each.hops === null ? "" : each.hops ? counted(each.hops, "{n} hop", "{n} hops") : say("direct"),
    each.battery === null ? "" : say("battery {percent} %", { percent: each.battery }),
    place === null ? "" : placeInWords([place.latitude.toFixed(4), place.longitude.toFixed(4)])
      + `${place.blurred ? `, ${say("blurred on purpose")}` : ""}${place.at ? `, ${moment(place.at)}` : ""}`,
    each.keyChanged ? say("has another key than before") : "",
    each.namesakeOf === null ? "" : say("has the name of {who}, but its key is unknown", { who: short(each.namesakeOf) }),
  ].filter(text => text !== "");
}
