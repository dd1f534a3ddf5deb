// The receivers of a message: found by search, with the chosen ones shown.

import { all } from "./acts.js";
import { call, me } from "./hub.js";
import { counted, say } from "./language.js";
import { by, element, put, tell } from "./text.js";

/** Maximum number of shown receivers. In a longer list, a search is faster. */
const SHOWN = 8;

/** All possible receivers, groups first: key, name, search words, and whether they have a
 * device. */
let known = [];
const chosen = new Set();

export const everybody = () => known.filter(each => each.id && each.reached);
export const chosenOnes = () => known.filter(each => chosen.has(each.key));

/** Loads the possible receivers: users and groups with a device in use. */
export async function loadReceivers() {
  const [users, { groups }] = await Promise.all([all("/api/users?limit=1000", "users"), call("GET", "/api/groups")]);
  const teams = groups.filter(each => each.members.length).map(({ id, name, members }) =>
    ({ key: `group-${id}`, group: Number(id), name, words: `${name} (${counted(members.length, "{n} member", "{n} members")})`, reached: true }));
  const others = users.filter(each => each.id !== me.id && !each.disabled && each.type !== "Integration").reverse().map(({ id, name, devices }) =>
    ({ key: id, id, name, words: devices ? name : say("{name} (no device)", { name }), reached: devices > 0 }));
  known = [...teams, ...others];
  showReceivers();
}

export function choose(keys) {
  chosen.clear();
  for (const key of keys) chosen.add(key);
  showReceivers();
}

export function unchoose(key) {
  chosen.delete(key);
  showReceivers();
}

/** Shows the chosen receivers first, then the results of the search, or all receivers if they are
 * few. */
function showReceivers() {
  const words = by("to-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const few = known.length <= SHOWN;
  const found = few || words.length ? known.filter(each => words.every(word => each.words.toLowerCase().includes(word))) : [];
  const shown = few && !words.length ? known
    : [...chosenOnes().slice(0, SHOWN), ...found.filter(each => !chosen.has(each.key)).slice(0, SHOWN)];
  const whole = everybody();
  // Without known receivers, a press would choose no receiver.
  by("everyone").disabled = !whole.length;
  by("everyone").checked = whole.length > 0 && whole.every(each => chosen.has(each.key));
  by("to-search-label").hidden = few;
  const more = found.filter(each => !chosen.has(each.key)).length - SHOWN;
  tell("to-told", few ? "" : [counted(chosen.size, "{n} receiver chosen", "{n} receivers chosen"),
    words.length && !found.length ? say("there is no such name") : "", more > 0 ? say("{n} more names match: type more of the name", { n: more }) : ""].filter(Boolean).join(" · "));
  put("people", shown.map(each => element("label", {}, element("input", {
    type: "checkbox", name: "to", id: `to-${each.key}`, value: each.key, checked: chosen.has(each.key), disabled: !each.reached,
  }), each.words)));
  // Unchanged boxes have kept the state of a person's press.
  for (const box of by("people").querySelectorAll("input")) box.checked = chosen.has(box.value);
}

/** Handles a press or input in the list. */
export function take(target) {
  if (target.id === "everyone") choose(target.checked ? everybody().map(each => each.key) : []);
  else if (target.name === "to") {
    if (target.checked) chosen.add(target.value);
    else chosen.delete(target.value);
    showReceivers();
  } else if (target.id === "to-search") showReceivers();
}
