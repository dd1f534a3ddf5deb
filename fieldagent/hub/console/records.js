// What an administrator looks through: what could not be used, and who did what.

import { act, button, deeds, list, sure } from "./acts.js";
import { call, trouble } from "./hub.js";
import { by, clock, element } from "./text.js";

/** As people read it, where it is text; the beginning of it. */
function content(payload) {
  const text = atob(payload);
  const shown = /^[\x20-\x7e]*$/.test(text) ? `“${text}”`
    : `hex ${[...text].map(each => each.charCodeAt(0).toString(16).padStart(2, "0")).join("")}`;
  return shown.length > 80 ? `${shown.slice(0, 80)}…` : shown;
}

function letter(each) {
  const discard = () => act(async () => {
    await call("DELETE", `/api/dead-letters/${each.id}`);
    return "It is removed.";
  }, loadLetters);
  return element("li", { class: "row" },
    `${clock(each.received)} UTC, ${each.device} over ${each.way}: ${each.reason} `,
    element("code", {}, content(each.payload)),
    deeds(button(`letter-${each.id}-remove`, "Remove", sure("Remove this message for good?", discard))));
}

export async function loadLetters() {
  const { deadLetters } = await call("GET", "/api/dead-letters");
  list("admin-letters", deadLetters.map(letter), "All that came from your devices could be used.");
  by("letters-replay").hidden = deadLetters.length === 0;
}

export const replayLetters = () => button("letters-replay", "Take in what can be used by now", () => act(async () => {
  const { deadLettersTaken } = await call("POST", "/api/dead-letters/replay");
  return `${deadLettersTaken} were taken in.`;
}, loadLetters));

const WHO = { shell: "at the hub's machine", hub: "the hub", contact: "a contact" };

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
