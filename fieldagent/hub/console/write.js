// Messages to people, with the cost if they are in range only by satellite.

import { takeGrid } from "./choices.js";
import { Away, Refused, call, me, push, trouble } from "./hub.js";
import { counted, say } from "./language.js";
import { choose, chosenOnes, loadReceivers, take, unchoose } from "./receivers.js";
import { by, expected, tell } from "./text.js";

const FIELDS = { message: ["content"], waypoint: ["name", "latitude", "longitude", "notes"] };
const PAUSE = 400;
const TOLD = 6;
/** Maximum number of receivers with an estimate, because each one needs its own request. */
const ESTIMATED = 20;

let key = crypto.randomUUID();
let timer = 0;
let asked = 0;

const kind = () => document.querySelector("[name=kind]:checked").value;

/** Id of the selected kit's user, or null. */
let kitUser = null;

/** Chooses the user of that kit as receiver, unless the person has chosen others or has already
 * written a text. */
export function chooseKit(user) {
  const those = chosenOnes().map(each => each.key);
  const ours = !those.length || (those.length === 1 && those[0] === kitUser);
  if (ours && FIELDS[kind()].every(each => !by(`field-${each}`).value.trim())) choose(user ? [user] : []);
  kitUser = user;
}

export async function loadPeople() {
  by("write").hidden = !me.mayPush;
  await loadReceivers();
}

export function setUpWriting() {
  by("write-form").addEventListener("input", event => {
    take(event.target);
    if (event.target.id === "to-search") return;
    // Changed content is a new item, which needs a new key. For the same content, each receiver has
    // its own key.
    if (event.target.id !== "everyone" && event.target.name !== "to") key = crypto.randomUUID();
    changed();
  });
  takeGrid(by("field-latitude"), by("field-longitude"), fault => tell("write-fault", fault));
  by("write-form").addEventListener("submit", async event => {
    event.preventDefault();
    by("send").disabled = true;
    await send().catch(trouble);
    by("send").disabled = false;
  });
}

function changed() {
  for (const [name, fields] of Object.entries(FIELDS))
    for (const each of fields) by(`field-${each}`).closest("label").hidden = name !== kind();
  for (const id of ["write-fault", "write-done"]) tell(id, "");
  clearTimeout(timer);
  timer = setTimeout(estimate, PAUSE);
}

function written({ id, group }) {
  const item = {};
  for (const each of FIELDS[kind()]) {
    const text = by(`field-${each}`).value.trim();
    if (text) item[each] = text;
  }
  return { sourceUserId: me.id, workspaceId: me.workspaceId, targetUserId: id, targetGroup: group,
    receipt: by("receipt").checked ? "read" : null, [kind()]: item };
}

async function estimate() {
  const question = ++asked;
  if (FIELDS[kind()].every(each => !by(`field-${each}`).value.trim())) return tell("cost", "");
  const devices = [], those = addressees();
  if (those.length > ESTIMATED)
    return tell("cost", say("The cost is shown for at most {most} recipients; you chose {n}.", { most: ESTIMATED, n: those.length }));
  for (const each of those) {
    const told = await call("POST", "/api/package/cost", written(each)).catch(() => null);
    if (question !== asked) return;
    if (!told) return tell("cost", "");
    devices.push(...told.devices);
  }
  tell("cost", devices.length ? inWords(devices) : "");
}

function inWords(devices) {
  const away = devices.filter(each => !each.linked && each.satellite);
  const credits = away.reduce((sum, each) => sum + each.satellite.credits, 0);
  const paid = away.slice(0, TOLD).map(({ name, satellite }) => `${name}: ${say("{bytes} in {messages}", {
    bytes: counted(satellite.bytes, "{n} byte", "{n} bytes"), messages: counted(satellite.parts, "{n} message", "{n} messages"),
  })}, ${counted(satellite.credits, "{n} credit", "{n} credits")}`
    + (satellite.creditsLeft === null ? "" : ` ${say("of {n} left today", { n: satellite.creditsLeft })}`));
  const free = devices.filter(each => each.linked).length;
  const silent = devices.filter(each => !each.linked && !each.satellite).map(each => each.name);
  const [only, ...others] = devices;
  return [
    free && counted(free, "{n} device linked now, which costs nothing", "{n} devices linked now, which costs nothing"),
    away.length && `${say("by satellite {credits}", { credits: counted(credits, "{n} credit", "{n} credits") })} (${paid.join("; ")}${away.length > TOLD ? "; …" : ""})`,
    silent.length && say("waits until they call: {names}", { names: silent.slice(0, TOLD).join(", ") }),
    only.expected && !others.length && say("on the disk of {name}: {times}", { name: only.name, times: expected(only.expected) }),
  ].filter(Boolean).join(" · ");
}

/** Returns the addressees. "All" is one addressee, except for a message. */
function addressees() {
  const those = chosenOnes();
  return kind() !== "message" && by("everyone").checked ? [{ key: "all", name: say("everyone") }] : those;
}

/** Pushes the item to each addressee. A successful addressee is no longer chosen, so a repetition
 * sends only to the rest. */
async function send() {
  const those = addressees();
  if (!those.length) return tell("write-fault", say("Choose a recipient."));
  const done = [], mine = key;
  // All addressees get the content at the time of the press.
  const bodies = those.map(written);
  try {
    for (const [at, each] of those.entries()) {
      await push(bodies[at], `${mine}-${each.key}`);
      if (each.key === "all") choose([]);
      else unchoose(each.key);
      done.push(each.name);
    }
    // Text that was typed meanwhile belongs to the next item.
    if (key === mine) {
      for (const each of FIELDS[kind()]) by(`field-${each}`).value = "";
      key = crypto.randomUUID();
      changed();
    }
    trouble();
  } catch (error) {
    tell("write-fault", error instanceof Away
      ? say("The hub did not answer. Your text is still here. Press Send again when the hub is back; no one gets it twice.")
      : error instanceof Refused ? by("field-latitude").gridFault || error.inWords(by("write-form")) : error.message);
    if (!(error instanceof Refused || error instanceof Away)) trouble(error);
  }
  if (done.length) tell("write-done", say("Sent to {names}. The conversation shows the progress.", { names: done.join(", ") }));
  chooseKit(kitUser);
}
