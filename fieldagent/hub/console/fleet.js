// The kits, those in trouble first: a list that is searched and filtered, the one that is looked at
// in full, and all of them on the map.

import { all } from "./acts.js";
import { lookAtChart, showTrail } from "./chart.js";
import { distressed, incidentsOf } from "./desk.js";
import { here, list } from "./place.js";
import { counted } from "./language.js";
import { age, by, clock, drawn, element, put, tell } from "./text.js";
import { counts, KINDS, listed, troubles } from "./trouble.js";
import { where } from "./words.js";

/** More rows stand there once somebody asks for them. */
const SHOWN = 100;

let kits = [];
let whole = false;
/** By device, the date of its last position as its own clock had it. */
let dated = new Map();

/** Milliseconds between two looks at all of them: the more there are, the longer. */
export const pause = () => Math.max(2000, 15 * kits.length);

const now = () => Date.now() / 1000;

export async function showFleet() {
  const devices = await all("/api/devices?limit=1000", "devices");
  kits = devices;
  judge();
  dated = await lookAtChart(kits, distressed());
  judge();
}

/** What is wrong with each, by what is known now. */
export function judge() {
  for (const kit of kits) kit.troubles = troubles(kit, incidentsOf(kit.id), dated.get(kit.name) ?? null, now());
  showKits();
  showKit();
}

export const kitOf = id => kits.find(each => each.id === id);

const heard = kit => kit.linked ? "linked now" : kit.lastContact ? `${age(now() - kit.lastContact)} ago` : "never";

const badge = ({ kind, text }) => element("span", { class: `badge ${kind}` }, text);

function row(kit, chosen) {
  return element("li", {}, element("a", {
    href: `/console/kit/${kit.id}`, id: `kit-${kit.id}`, "data-place": true, "aria-current": kit.id === chosen ? "true" : null,
  }, element("b", {}, kit.name), element("span", { class: "quiet" }, ` ${kit.user.name} · ${heard(kit)}`),
  ...kit.troubles.slice(0, 3).map(badge), kit.troubles.length > 3 ? element("span", { class: "quiet" }, ` and ${kit.troubles.length - 3} more`) : ""));
}

export function showKits() {
  const place = here();
  const those = listed(kits, place);
  const some = whole ? those : those.slice(0, SHOWN);
  put("kits", some.map(kit => row(kit, place.kit)));
  const found = counts(kits), troubled = kits.filter(each => each.troubles.length).length;
  put("kit-show", [["", `All kits (${kits.length})`], ["any", `In trouble (${troubled})`],
    ...Object.entries(KINDS).map(([kind, words]) => [kind, `${words} (${found[kind]})`])]
    .map(([value, words]) => element("option", { value }, words)));
  by("kit-show").value = place.show;
  by("kits-more").hidden = some.length === those.length;
  by("kits-more").textContent = `Show all ${those.length}`;
  tell("kits-told", !kits.length ? "No kit yet." : those.length ? `${counted(those.length, "{n} kit", "{n} kits")}${troubled && !place.show ? `, ${troubled} in trouble` : ""}` : "None is so.");
}

/** How each modem of it hears, and its battery, as it told last. */
const modems = kit => kit.modems.map(({ channel, signal, battery, at }) => {
  const hears = signal === null ? "no signal known" : `signal ${signal} of 5`;
  return `${channel}: ${hears}${battery === null ? "" : `, battery ${battery} %`} (${clock(at)} UTC)`;
}).join("; ") || "not told";

/** Why nothing comes from it, as far as the hub can tell, and what to do. */
function silence(kit) {
  const why = [];
  if (kit.revoked) why.push(`it is revoked since ${clock(kit.revoked.since)} UTC${kit.revoked.why && ` (${kit.revoked.why})`}: what comes from it is kept apart`);
  else if (kit.disabled) why.push("it is disabled");
  if (kit.trouble) why.push(kit.trouble);
  if (kit.satelliteTrouble) why.push(`over satellite: ${kit.satelliteTrouble}`);
  if (!kit.lastContact) why.push("it has never called: look at its hub-token, or its IMEI here");
  else if (!kit.linked && kit.over === "ip") why.push("its link ended: no network, or no power");
  if (kit.checkIn && kit.checkIn.state !== "in time")
    why.push(`a word of it was due by ${clock(kit.checkIn.due)} UTC`);
  if (kit.waiting && !kit.linked) why.push(`${kit.waiting} wait for it`);
  return why.join("; ");
}

const facts = kit => [
  ["User", kit.user.name],
  ["Heard of last", kit.linked ? "linked now" : kit.lastContact ? `${clock(kit.lastContact)} UTC over ${kit.over}` : "never"],
  ["Position", where(kit.position)],
  ["Signal and battery", modems(kit)],
  ["Check-in", kit.checkIn ? `${kit.checkIn.state}, ${kit.checkIn.rule}` : "none"],
  ["Credits", kit.credits ? `${kit.credits.spent} of ${kit.credits.perDay} spent today` : ""],
  ["Waiting", String(kit.waiting)],
  ["Program", [kit.version, kit.lastUpdate].filter(Boolean).join("; ")],
  ["Settings", kit.settings],
  ["Why it is silent", silence(kit)],
];

/** The kit that is looked at, above its conversation. */
function showKit() {
  const id = here().kit, kit = kitOf(id);
  tell("talk-title", kit ? `Conversation with ${kit.name}` : id ? `No kit ${id} is here` : "Conversation of all");
  by("kit-all").hidden = !id;
  by("kit").hidden = !kit;
  const incidents = kit ? incidentsOf(id) : [];
  put("kit-troubles", kit ? [...incidents.map(each => element("li", {},
    element("a", { href: `/console/sos/${each.id}`, "data-place": true }, `To the card of SOS ${each.id}`))),
  ...kit.troubles.map(each => element("li", {}, badge(each)))] : []);
  put("kit-facts", kit ? facts(kit).filter(([, text]) => text).flatMap(([name, text]) =>
    [element("dt", {}, name), element("dd", {}, text)]) : []);
}

/** The place is another: what is known of the kit there is shown at once. */
export function lookAtKit() {
  showKits();
  showKit();
  return showTrail(kitOf(here().kit));
}

export function setUpFleet() {
  const place = here();
  by("kit-find").value = place.find;
  by("kit-sort").value = place.sort || "trouble";
  const changed = how => { whole = false; list(how); drawn("kits", showKits); };
  by("kit-find").addEventListener("input", () => changed({ find: by("kit-find").value.trim() }));
  by("kit-show").addEventListener("change", () => changed({ show: by("kit-show").value }));
  by("kit-sort").addEventListener("change", () => changed({ sort: by("kit-sort").value }));
  by("kits-more").addEventListener("click", () => { whole = true; showKits(); });
}
