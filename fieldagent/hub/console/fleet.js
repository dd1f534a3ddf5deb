// The kits, those in trouble first: a list with search and filters, the selected kit in full, and
// all kits on the map.

import { all } from "./acts.js";
import { lookAtChart, showTrail } from "./chart.js";
import { distressed, incidentsOf, nameOf, pathOf } from "./desk.js";
import { here, list } from "./place.js";
import { because, counted, say, term } from "./language.js";
import { ago, by, drawn, element, moment, now, put, tell } from "./text.js";
import { fromTheTop, putRows } from "./rows.js";
import { counts, KINDS, listed, troubles } from "./trouble.js";
import { revokedSince, where } from "./words.js";

/** `isTold` is false before the first answer. Until then the page does not claim that a kit exists
 * or is missing. */
let kits = [], isTold = false;
/** Number of the last request, and of the request whose answer is shown. Answers to earlier
 * requests are dropped. */
let asked = 0, answered = 0;
/** Date of each device's last position by the device's own clock. */
let dated = new Map();

/** Milliseconds between two loads of all kits. It grows with their number. */
export const pause = () => Math.max(2000, 15 * kits.length);

export async function showFleet() {
  const question = ++asked, devices = await all("/api/devices?limit=1000", "devices");
  if (question < answered) return;
  answered = question;
  kits = devices;
  isTold = true;
  judge();
  dated = await lookAtChart(kits, distressed());
  judge();
}

/** Finds the troubles of each kit from the current data. */
export function judge() {
  for (const kit of kits) kit.troubles = troubles(kit, incidentsOf(kit.id), dated.get(kit.name) ?? null, now());
  showKits();
  showKit();
}

export const kitOf = id => kits.find(each => each.id === id);

const heard = kit => kit.linked ? say("linked now") : kit.lastContact ? ago(now() - kit.lastContact) : say("never");

const badge = ({ kind, text }) => element("span", { class: `badge ${kind}` }, text);

function row(kit, chosen) {
  return element("li", {}, element("a", {
    href: `/console/kit/${kit.id}`, id: `kit-${kit.id}`, "data-place": true, "aria-current": kit.id === chosen ? "true" : null,
  }, element("b", {}, kit.name), element("span", { class: "quiet" }, ` ${kit.user.name} · ${heard(kit)}`),
  ...kit.troubles.slice(0, 3).map(badge), kit.troubles.length > 3 ? element("span", { class: "quiet" }, ` ${say("and {n} more", { n: kit.troubles.length - 3 })}`) : ""));
}

function showKits() {
  const place = here();
  const those = listed(kits, place);
  putRows("kits", those, kit => row(kit, place.kit));
  const found = counts(kits), troubled = kits.filter(each => each.troubles.length).length;
  const kinds = [["", say("All kits ({n})", { n: kits.length })], ["any", say("In trouble ({n})", { n: troubled })],
    ...Object.entries(KINDS).map(([kind, words]) => [kind, `${words} (${found[kind]})`])];
  // The kinds stay the same, only their numbers change. An open list must stay open.
  if (!by("kit-show").options.length) by("kit-show").append(...kinds.map(([value]) => element("option", { value })));
  kinds.forEach(([, words], at) => { by("kit-show").options[at].textContent = words; });
  if (by("kit-show").value !== place.show) by("kit-show").value = place.show;
  tell("kits-told", !isTold ? "" : !kits.length ? say("No kit yet.") : those.length ? `${counted(those.length, "{n} kit", "{n} kits")}${troubled && !place.show ? say(", {n} in trouble", { n: troubled }) : ""}` : say("No kit is in this state."));
}

/** Returns the last reported signal and battery of each modem. */
const modems = kit => kit.modems.map(({ channel, signal, battery, at }) => {
  const hears = signal === null ? say("no signal known") : say("signal {bars} of 5", { bars: signal });
  return `${term(channel)}: ${hears}${battery === null ? "" : `, ${say("battery {percent} %", { percent: battery })}`} (${moment(at)})`;
}).join("; ") || say("not notified");

/** Returns the known reasons for the silence of a kit, and advice. */
function silence(kit) {
  const why = [];
  if (kit.revoked) why.push(say("revoked since {since}: its messages are kept separate", { since: revokedSince(kit.revoked) }));
  else if (kit.disabled) why.push(say("it is disabled"));
  if (kit.trouble) why.push(kit.trouble);
  if (kit.satelliteTrouble) why.push(say("over satellite: {why}", { why: kit.satelliteTrouble }));
  if (!kit.lastContact) why.push(say("it has never connected: check its hub-token, or its IMEI here"));
  else if (!kit.linked && kit.over === "ip") why.push(say("its link ended: no network, or no power"));
  if (kit.checkIn && kit.checkIn.state !== "in time")
    why.push(say("check-in was due by {time}", { time: moment(kit.checkIn.due) }));
  if (kit.waiting && !kit.linked) why.push(say("{n} wait for it", { n: kit.waiting }));
  return why.join("; ");
}

const facts = kit => [
  [say("User"), kit.user.name],
  [say("Last heard"), kit.linked ? say("linked now") : kit.lastContact ? say("{time} over {bearer}", { time: moment(kit.lastContact), bearer: term(kit.over) }) : say("never")],
  [say("Position"), where(kit.position)],
  [say("Signal and battery"), modems(kit)],
  [say("Check-in"), kit.checkIn ? `${term(kit.checkIn.state)}, ${kit.checkIn.rule}` : say("none")],
  [say("Credits"), kit.credits ? say("{spent} of {n} spent today", { spent: kit.credits.spent, n: kit.credits.perDay }) : ""],
  [say("Waiting"), String(kit.waiting)],
  [say("Program"), [kit.version, kit.lastUpdate && because(kit.lastUpdate)].filter(Boolean).join("; ")],
  [say("Settings"), kit.settings && offered(kit.settings)],
  [say("Why it is silent"), silence(kit)],
];

/** Shows the selected kit above its conversation. */
function showKit() {
  const id = here().kit, kit = kitOf(id);
  tell("talk-title", kit ? say("Conversation with {kit}", { kit: kit.name }) : id && isTold ? say("No kit {id} is here", { id }) : say("All messages"));
  by("kit-all").hidden = !id;
  by("kit").hidden = !kit;
  const incidents = kit ? incidentsOf(id) : [];
  put("kit-troubles", kit ? [...incidents.map(each => element("li", {},
    element("a", { href: `/console/${pathOf(each)}`, "data-place": true }, say("Show {what}", { what: nameOf(each) })))),
  ...kit.troubles.map(each => element("li", {}, badge(each)))] : []);
  put("kit-facts", kit ? facts(kit).filter(([, text]) => text).flatMap(([name, text]) =>
    [element("dt", {}, name), element("dd", {}, text)]) : []);
}

/** Shows the kit of the new address with the data that is already here. */
export function lookAtKit() {
  showKits();
  showKit();
  return showTrail(kitOf(here().kit));
}

export function setUpFleet() {
  const place = here();
  by("kit-find").value = place.find;
  by("kit-sort").value = place.sort || "trouble";
  const changed = how => { fromTheTop("kits"); list(how); drawn("kits", showKits); };
  by("kit-find").addEventListener("input", () => changed({ find: by("kit-find").value.trim() }));
  by("kit-show").addEventListener("change", () => changed({ show: by("kit-show").value }));
  by("kit-sort").addEventListener("change", () => changed({ sort: by("kit-sort").value }));
}
