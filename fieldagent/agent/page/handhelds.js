// Who is around with a handheld, by the radio that people write to.

import { age, by, clock, counted, element, put } from "./text.js";

const SHOWN = 30;

/** `mesh` is how that radio is, null where there is none; `around` is who was heard, the last first. */
export function showPeople(mesh, around, now) {
  by("handhelds").hidden = mesh === null;
  if (mesh === null) return;
  const state = `${mesh.state}${mesh.reason ? `: ${mesh.reason}` : ""}`;
  const waiting = mesh.texts.waiting ? ` · ${counted(mesh.texts.waiting, "text")} on the way to people` : "";
  put("people-radio", [element("p", { class: "condition" }, `People's radio: ${state}${waiting}`)]);
  put("around", around.slice(0, SHOWN).map(each => element("li", {},
    element("strong", {}, each.name), each.known ? "" : " (guest)",
    element("span", { class: "hint" }, ` ${told(each, now).join(" · ")}`))));
}

/** Of a public key its beginning, by which the apps of its firmware show it. */
const short = handle => handle.length === 64 ? handle.slice(0, 12) : handle;

/** Where they were last, for the map. */
export const placesOf = (around, now) => around.filter(each => each.position?.at).map(each => ({
  sender: each.handle, name: each.known ? each.name : `${each.name} (guest)`,
  place: [each.position.latitude, each.position.longitude], at: each.position.at,
  seen: `${age(now - each.position.at)} ago`, blurred: each.position.blurred,
}));

function told(each, now) {
  const place = each.position;
  return [
    each.handle === each.name ? "" : short(each.handle),
    each.heard === null ? "not heard by this kit" : `heard ${age(now - each.heard)} ago`,
    each.rssi === null ? "" : `${each.rssi} dBm`,
    each.hops === null ? "" : each.hops ? counted(each.hops, "hop") : "direct",
    each.battery === null ? "" : `battery ${each.battery} %`,
    place === null ? "" : `${place.latitude.toFixed(4)} ${place.longitude.toFixed(4)}`
      + `${place.blurred ? ", blurred on purpose" : ""}${place.at ? `, ${clock(place.at)}` : ""}`,
    each.keyChanged ? "has another key than before" : "",
    each.namesakeOf === null ? "" : `has the name of ${short(each.namesakeOf)}, and is not known`,
  ].filter(text => text !== "");
}
