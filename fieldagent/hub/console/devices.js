// Devices, as an administrator adds and changes them.

import { act, all, button, choice, deeds, filled, flag, fold, form, line, list, once, sure } from "./acts.js";
import { call, me } from "./hub.js";
import { by, element } from "./text.js";
import { cost } from "./usage.js";

/** The file that the kit takes from its card, or what stands in its agent.properties. */
const properties = told => [
  `hub-address=${location.origin}`,
  told.hubToken && `hub-token=${told.hubToken}`,
  told.satelliteKey && `satellite-key=${told.satelliteKey}`,
].filter(Boolean).join("\n") + "\n";

const taken = told => told.deadLettersTaken ? ` ${told.deadLettersTaken} messages of before were taken in.` : "";

function change(device) {
  const id = `device-${device.id}`;
  const path = `/api/devices/${device.id}`;
  const patch = (body, done) => act(async () => done + taken(await call("PATCH", path, body)), loadDevices);
  const saved = () => {
    const { imei, ...body } = filled(id, ["name", "imei", "relay"]);
    // The same again is no change.
    return patch(imei && imei !== device.imei ? { ...body, imei } : body, `${device.name} is changed.`);
  };
  const renew = (what, title) => act(async () => {
    const told = await call("POST", `${path}/${what}`);
    once(title, properties(told), "fieldagent.properties");
    return `${device.name} has a new one: the kit needs it.`;
  }, loadDevices);
  const gone = () => act(async () => {
    await call("DELETE", path);
    return `${device.name} is deleted.`;
  }, loadDevices);
  const off = device.disabled;
  return fold(id, [device.name, device.user.name, device.imei, device.revoked ? "revoked" : off && "disabled"].filter(Boolean).join(", "),
    form(`Change ${device.name}`, saved, { id: `${id}-save`, text: "Save" },
      line(`${id}-name`, "Name", { value: device.name, maxlength: "80" }),
      line(`${id}-imei`, "IMEI of its modem", { value: device.imei || "", inputmode: "numeric" }),
      flag(`${id}-relay`, "May bring what others sent", device.relay)),
    cost(device),
    deeds(
      device.revoked
        ? button(`${id}-revoke`, "Restore", sure(`Take ${device.name} back into use, with what it sent while it was revoked?`,
          () => patch({ revoked: false }, `${device.name} is in use again.`)))
        : button(`${id}-revoke`, "Revoke (stolen)", sure(`Whoever has the kit of ${device.name} speaks for nobody any more; an SOS of it still rings. Go on?`,
          () => patch({ revoked: true }, `${device.name} is revoked.`))),
      device.revoked ? "" : button(`${id}-off`, off ? "Enable" : "Disable",
        () => patch({ disabled: !off }, `${device.name} is ${off ? "in use again" : "out of use"}.`)),
      button(`${id}-token`, "New token", sure(`The kit of ${device.name} loses its link until it has the new token. Go on?`,
        () => renew("token", `The new token of ${device.name}`))),
      button(`${id}-key`, "New satellite-key", sure(`What ${device.name} sends by satellite waits until the kit has the new key. Go on?`,
        () => renew("key", `The new satellite-key of ${device.name}`))),
      button(`${id}-delete`, "Delete", sure(`Delete ${device.name} for good, with what waits for it?`, gone))));
}

export async function loadDevices() {
  const [devices, users] = [await all("/api/devices?limit=1000", "devices"), await all("/api/users?limit=1000", "users")];
  list("admin-devices", devices.map(change), "No device yet.");
  const before = by("new-device-userId")?.value;
  by("new-device-user").replaceChildren(choice("new-device-userId", "Whose it is",
    users.filter(each => !each.disabled && each.type !== "Integration").reverse().map(each => [each.id, each.name]), before));
}

const MEMBERS = ["name", "userId", "imei", "operator", "creditsPerDay", "sosReserve", "tagged", "relay"];

/** Until when an item of it is to come, as the form has it; the API is told one of the two. */
const checkIn = rule => rule === "by" ? { checkInBy: by("new-device-checkInBy").value.trim() }
  : rule ? { checkInEvery: Number(rule) } : {};

const add = () => act(async () => {
  const body = { ...filled("new-device", MEMBERS), ...checkIn(by("new-device-checkIn").value) };
  const told = await call("POST", "/api/devices", body);
  const { name } = body;
  for (const each of ["name", "imei"]) by(`new-device-${each}`).value = "";
  once(`For the card of ${name}: fieldagent.properties`, properties(told), "fieldagent.properties");
  return `${name} is added.` + taken(told);
}, loadDevices);

const RULES = [["", "whenever it does"], ["10800", "every 3 hours"], ["43200", "every 12 hours"], ["86400", "every 24 hours"],
  ["by", "each day by a time"]];

function checkInFields() {
  const time = line("new-device-checkInBy", "That time, in UTC", { placeholder: "18:00", maxlength: "5" });
  const rule = choice("new-device-checkIn", "An item of it is to come", RULES, "");
  const changed = () => { time.hidden = rule.querySelector("select").value !== "by"; };
  rule.addEventListener("change", changed);
  changed();
  return [rule, time];
}

export const newDevice = () => form("Add a device", add, { id: "new-device-add", text: "Add the device" },
  line("new-device-name", "Name of the new device", { maxlength: "80" }),
  element("div", { id: "new-device-user" }),
  line("new-device-imei", "IMEI of its modem, where it has one", { inputmode: "numeric" }),
  choice("new-device-operator", "Who carries its satellite messages", [["", `as usual (${me.operators[0]})`], ...me.operators.map(each => [each, each])], ""),
  line("new-device-creditsPerDay", "Most credits to it on a UTC day; empty is without a limit", { type: "number", min: "0" }),
  line("new-device-sosReserve", "Of these, for an SOS alone", { type: "number", min: "0" }),
  ...checkInFields(),
  flag("new-device-tagged", "Authenticate its satellite messages"),
  flag("new-device-relay", "May bring what others sent"));
