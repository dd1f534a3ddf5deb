// Devices: an administrator adds and changes them.

import { act, all, button, choice, deeds, emptied, filled, flag, fold, form, line, longList, once, sure } from "./acts.js";
import { call, me } from "./hub.js";
import { say, spoken } from "./language.js";
import { by, element } from "./text.js";
import { cost } from "./usage.js";

await spoken;

/** The content of the settings file for the kit's card, or of agent.properties. */
const properties = told => [
  `hub-address=${location.origin}`,
  told.hubToken && `hub-token=${told.hubToken}`,
  told.satelliteKey && `satellite-key=${told.satelliteKey}`,
].filter(Boolean).join("\n") + "\n";

const taken = told => told.deadLettersTaken ? ` ${say("{n} earlier messages were processed.", { n: told.deadLettersTaken })}` : "";

function change(device) {
  const id = `device-${device.id}`, { name } = device;
  const path = `/api/devices/${device.id}`;
  const patch = (body, done) => act(async () => done + taken(await call("PATCH", path, body)), loadDevices);
  const saved = () => {
    const { imei, ...body } = filled(id, ["name", "imei", "relay"]);
    // An unchanged IMEI is left out.
    return patch(imei && imei !== device.imei ? { ...body, imei } : body, say("{name} is changed.", { name }));
  };
  const renew = (what, title) => act(async () => {
    const told = await call("POST", `${path}/${what}`);
    once(title, properties(told), "fieldagent.properties");
    return say("{name} has a new key: enter it at the kit.", { name });
  }, loadDevices);
  const gone = () => act(async () => {
    await call("DELETE", path);
    return say("{name} is deleted.", { name });
  }, loadDevices);
  const off = device.disabled;
  return fold(id, [device.name, device.user.name, device.imei, device.revoked ? say("revoked") : off && say("disabled")].filter(Boolean).join(", "),
    () => [form(say("Change {name}", { name }), saved, { id: `${id}-save`, text: say("Save") },
      line(`${id}-name`, say("Name"), { value: device.name, maxlength: "80" }),
      line(`${id}-imei`, say("IMEI of its modem"), { value: device.imei || "", inputmode: "numeric" }),
      flag(`${id}-relay`, say("May relay items of other kits"), device.relay)),
    cost(device),
    deeds(
      device.revoked
        ? button(`${id}-revoke`, say("Restore"), sure(say("Restore {name}, with the items that it sent while it was revoked?", { name }),
          () => patch({ revoked: false }, say("{name} is enabled.", { name }))))
        : button(`${id}-revoke`, say("Revoke (stolen)"), sure(say("Items from the kit of {name} no longer count as its user's. Its SOS still rings. Continue?", { name }),
          () => patch({ revoked: true }, say("{name} is revoked.", { name })))),
      device.revoked ? "" : button(`${id}-off`, off ? say("Enable") : say("Disable"),
        () => patch({ disabled: !off }, off ? say("{name} is enabled.", { name }) : say("{name} is disabled.", { name }))),
      button(`${id}-token`, say("New token"), sure(say("The kit of {name} loses its link until it has the new token. Continue?", { name }),
        () => renew("token", say("The new token of {name}", { name })))),
      button(`${id}-key`, say("New satellite-key"), sure(say("Satellite messages of {name} wait until the kit has the new key. Continue?", { name }),
        () => renew("key", say("The new satellite-key of {name}", { name })))),
      button(`${id}-delete`, say("Delete"), sure(say("Delete {name} for good, with what waits for it?", { name }), gone)))]);
}

export async function loadDevices() {
  const [devices, users] = [await all("/api/devices?limit=1000", "devices"), await all("/api/users?limit=1000", "users")];
  longList("admin-devices", devices, change, say("No device yet."));
  const before = by("new-device-userId")?.value;
  by("new-device-user").replaceChildren(choice("new-device-userId", say("Whose it is"),
    users.filter(each => !each.disabled && each.type !== "Integration").reverse().map(each => [each.id, each.name]), before));
}

const MEMBERS = ["name", "userId", "imei", "operator", "creditsPerDay", "sosReserve", "tagged", "relay"];

/** Returns the check-in rule of the form: an interval or a time of day. The API accepts only one of
 * the two. */
const checkIn = rule => rule === "by" ? { checkInBy: by("new-device-checkInBy").value.trim() }
  : rule ? { checkInEvery: Number(rule) } : {};

const add = () => act(async () => {
  const body = { ...filled("new-device", MEMBERS), ...checkIn(by("new-device-checkIn").value) };
  const told = await call("POST", "/api/devices", body);
  const { name } = body;
  emptied("new-device", ["name", "imei"], body);
  once(say("For the card of {name}: fieldagent.properties", { name }), properties(told), "fieldagent.properties");
  return say("{name} is added.", { name }) + taken(told);
}, loadDevices);

const RULES = [["", say("whenever the kit does")], ["10800", say("every 3 hours")], ["43200", say("every 12 hours")], ["86400", say("every 24 hours")],
  ["by", say("each day by a time")]];

function checkInFields() {
  const time = line("new-device-checkInBy", say("That time, in UTC"), { placeholder: "18:00", maxlength: "5" });
  const rule = choice("new-device-checkIn", say("Check-in"), RULES, "");
  const changed = () => { time.hidden = rule.querySelector("select").value !== "by"; };
  rule.addEventListener("change", changed);
  changed();
  return [rule, time];
}

export const newDevice = () => form(say("Add a device"), add, { id: "new-device-add", text: say("Add the device") },
  line("new-device-name", say("Name of the new device"), { maxlength: "80" }),
  element("div", { id: "new-device-user" }),
  line("new-device-imei", say("IMEI of its modem, if it has one"), { inputmode: "numeric" }),
  choice("new-device-operator", say("Satellite operator"), [["", say("as usual ({name})", { name: me.operators[0] })], ...me.operators.map(each => [each, each])], ""),
  line("new-device-creditsPerDay", say("Maximum credits per UTC day for messages to the device (empty: no limit)"), { type: "number", min: "0" }),
  line("new-device-sosReserve", say("Credits of these that only an SOS may use"), { type: "number", min: "0" }),
  ...checkInFields(),
  flag("new-device-tagged", say("Authenticate its satellite messages")),
  flag("new-device-relay", say("May relay items of other kits")));
