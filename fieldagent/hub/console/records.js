// What an administrator looks through: what could not be used, and who did what.

import { act, all, button, choice, deeds, list, sure } from "./acts.js";
import { call, trouble } from "./hub.js";
import { by, clock, element } from "./text.js";

/** As people read it, where it is text; the beginning of it. */
function content(payload) {
  const text = atob(payload);
  const shown = /^[\x20-\x7e]*$/.test(text) ? `“${text}”`
    : `hex ${[...text].map(each => each.charCodeAt(0).toString(16).padStart(2, "0")).join("")}`;
  return shown.length > 80 ? `${shown.slice(0, 80)}…` : shown;
}

function letter(each, devices) {
  const id = `letter-${each.id}`;
  const discard = () => act(async () => {
    await call("DELETE", `/api/dead-letters/${each.id}`);
    return "It is removed.";
  }, loadLetters);
  const assign = () => act(async () => {
    const device = by(`${id}-device`);
    const name = device.selectedOptions[0].text;
    const { deadLettersTaken } = await call("PATCH", `/api/devices/${device.value}`, { imei: each.imei });
    return `${name} has the IMEI ${each.imei}, and ${deadLettersTaken} of its messages were taken in.`;
  }, loadLetters);
  const unknown = each.device === null && each.imei && devices.length > 0;
  return element("li", { class: "row" },
    `${clock(each.received)} UTC, ${each.device || `IMEI ${each.imei}`} over ${each.way}: ${each.reason} `,
    element("code", {}, content(each.payload)),
    unknown ? choice(`${id}-device`, `Device whose modem has the IMEI ${each.imei}`, devices) : "",
    deeds(
      ...unknown ? [button(`${id}-assign`, "It is that one's", assign)] : [],
      button(`${id}-remove`, "Remove", sure("Remove this message for good?", discard))));
}

export async function loadLetters() {
  const { deadLetters } = await call("GET", "/api/dead-letters");
  const devices = await all("/api/devices?limit=1000", "devices");
  const named = devices.map(each => [String(each.id), each.name]);
  list("admin-letters", deadLetters.map(each => letter(each, named)), "All that came could be used.");
  by("letters-replay").hidden = deadLetters.length === 0;
}

export const replayLetters = () => button("letters-replay", "Take in what can be used by now", () => act(async () => {
  const { deadLettersTaken } = await call("POST", "/api/dead-letters/replay");
  return `${deadLettersTaken} were taken in.`;
}, loadLetters));

const WHO = { shell: "at the hub's machine", hub: "the hub" };

const entry = ({ at, by: who, action, detail }) => element("li", {},
  element("span", { class: "quiet" }, `${clock(at)} UTC `),
  `${who.kind === "user" ? who.name || `user ${who.id}` : WHO[who.kind]}: ${action}${detail && `, ${detail}`}`);

let older = null;

export async function loadAudit(more) {
  const told = await call("GET", more || "/api/audit?limit=50");
  older = told.next;
  by("audit-older").hidden = !older;
  by("admin-audit").append(...told.audit.map(entry));
}

export function showAudit() {
  by("admin-audit").replaceChildren();
  return loadAudit();
}

export const olderAudit = () => button("audit-older", "Older lines", () => loadAudit(older).catch(trouble));
