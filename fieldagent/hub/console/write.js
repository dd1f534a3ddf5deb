// Sending to people, with what it would cost where they are reached by satellite alone.

import { Refused, call, me, push, trouble } from "./hub.js";
import { by, counted, element, put, tell } from "./text.js";

const FIELDS = { message: ["content"], waypoint: ["name", "latitude", "longitude", "notes"] };
const PAUSE = 400;
const TOLD = 6;

let key = crypto.randomUUID();
let timer = 0;
let asked = 0;

const kind = () => document.querySelector("[name=kind]:checked").value;
const people = () => [...document.querySelectorAll("[name=to]:enabled")];
const chosen = () => [...document.querySelectorAll("[name=to]:checked")];
const chosenGroups = () => [...document.querySelectorAll("[name=group]:checked")];

export function setUpWriting() {
  by("write-form").addEventListener("input", event => {
    if (event.target.id === "everybody")
      for (const box of people()) box.checked = event.target.checked;
    changed();
  });
  by("write-form").addEventListener("submit", async event => {
    event.preventDefault();
    by("send").disabled = true;
    await send().catch(trouble);
    by("send").disabled = false;
  });
}

/** Who can be written to; who has no device in use cannot. */
export async function loadPeople() {
  by("write").hidden = !me.mayPush;
  const [{ users }, { groups }] = await Promise.all([
    call("GET", "/api/users?limit=1000"), call("GET", "/api/groups"),
  ]);
  const others = users.filter(each => each.id !== me.id && !each.disabled && each.type !== "Integration");
  const picked = new Set([...chosen().map(box => box.value), ...chosenGroups().map(box => `group ${box.value}`)]);
  const teams = groups.filter(each => each.members.length).map(each => element("label", {}, element("input", {
    type: "checkbox", name: "group", id: `to-group-${each.id}`, value: each.id, "data-name": each.name,
    checked: picked.has(`group ${each.id}`),
  }), `${each.name} (${counted(each.members.length, "member")})`));
  put("people", [...teams, ...others.reverse().map(each => element("label", {}, element("input", {
    type: "checkbox", name: "to", id: `to-${each.id}`, value: each.id, "data-name": each.name,
    checked: picked.has(each.id), disabled: each.devices === 0,
  }), each.devices ? each.name : `${each.name} (no device)`))]);
}

function changed() {
  for (const [name, fields] of Object.entries(FIELDS))
    for (const each of fields) by(`field-${each}`).closest("label").hidden = name !== kind();
  by("everybody").checked = people().length > 0 && people().every(box => box.checked);
  // Another content is another item.
  key = crypto.randomUUID();
  for (const id of ["write-fault", "write-done"]) tell(id, "");
  clearTimeout(timer);
  timer = setTimeout(() => estimate().catch(() => tell("cost", "")), PAUSE);
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
  const devices = [];
  for (const each of addressees()) {
    devices.push(...(await call("POST", "/api/package/cost", written(each))).devices);
    if (question !== asked) return;
  }
  tell("cost", devices.length ? inWords(devices) : "");
}

function inWords(devices) {
  const away = devices.filter(each => !each.linked && each.satellite);
  const credits = away.reduce((sum, each) => sum + each.satellite.credits, 0);
  const paid = away.slice(0, TOLD).map(({ name, satellite }) => `${name}: ${counted(satellite.bytes, "byte")} in`
    + ` ${counted(satellite.parts, "message")}, ${counted(satellite.credits, "credit")}`
    + (satellite.creditsLeft === null ? "" : ` of ${satellite.creditsLeft} left today`));
  const free = devices.filter(each => each.linked).length;
  const silent = devices.filter(each => !each.linked && !each.satellite).map(each => each.name);
  return [
    free && `${counted(free, "device")} linked now, which costs nothing`,
    away.length && `by satellite ${counted(credits, "credit")} (${paid.join("; ")}${away.length > TOLD ? "; …" : ""})`,
    silent.length && `waits until they call: ${silent.slice(0, TOLD).join(", ")}`,
  ].filter(Boolean).join(" · ");
}

/** Everybody is one addressee of a waypoint, as of whatever is no message. */
function addressees() {
  const boxes = chosen();
  const teams = chosenGroups().map(box => ({ group: Number(box.value), name: box.dataset.name, boxes: [box] }));
  const each = boxes.map(box => ({ id: box.value, name: box.dataset.name, boxes: [box] }));
  return kind() !== "message" && by("everybody").checked ? [{ name: "everybody", boxes }] : [...teams, ...each];
}

/** One push for each, and who has got one is no longer chosen: sending again sends to the rest. */
async function send() {
  const those = addressees();
  if (!those.length) return tell("write-fault", "Choose who is to have it.");
  const done = [];
  try {
    for (const each of those) {
      const { id, group, name, boxes } = each;
      await push(written(each), `${key}-${group ? `group-${group}` : id ?? "all"}`);
      for (const box of boxes) box.checked = false;
      done.push(name);
    }
    for (const each of FIELDS[kind()]) by(`field-${each}`).value = "";
    changed();
    trouble();
  } catch (error) {
    const faults = error instanceof Refused ? error.faults.map(each => `${each.pointer.split("/").at(-1)} ${each.detail}`) : [];
    tell("write-fault", faults.join("; ") || (error instanceof TypeError
      ? "The hub did not answer. What you wrote is still here: press Send again when it is back; nobody gets it twice."
      : error.message));
    if (!(error instanceof Refused)) trouble(error);
  }
  if (done.length) tell("write-done", `Sent to ${done.join(", ")}. The conversation below tells what becomes of it.`);
}
