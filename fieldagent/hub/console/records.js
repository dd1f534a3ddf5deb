// Records for an administrator: messages that could not be used, and the audit log.

import { act, button, deeds, list, sure } from "./acts.js";
import { call, trouble } from "./hub.js";
import { say, spoken, term } from "./language.js";
import { by, element, moment } from "./text.js";

await spoken;

/** Returns the beginning of the content, as text if it is printable, or else in hexadecimal. */
function content(payload) {
  const text = atob(payload);
  const shown = /^[\x20-\x7e]*$/.test(text) ? `“${text}”`
    : `hex ${[...text].map(each => each.charCodeAt(0).toString(16).padStart(2, "0")).join("")}`;
  return shown.length > 80 ? `${shown.slice(0, 80)}…` : shown;
}

function letter(each) {
  const discard = () => act(async () => {
    await call("DELETE", `/api/dead-letters/${each.id}`);
    return say("It is removed.");
  }, loadLetters);
  return element("li", { class: "row" },
    `${say("{time}, {kit} over {bearer}: {why}", { time: moment(each.received), kit: each.device, bearer: term(each.bearer), why: each.reason })} `,
    element("code", {}, content(each.payload)),
    deeds(button(`letter-${each.id}-remove`, say("Remove"), sure(say("Remove this message for good?"), discard))));
}

export async function loadLetters() {
  const { deadLetters } = await call("GET", "/api/dead-letters");
  list("admin-letters", deadLetters.map(letter), say("No dead letters: all messages from your devices could be used."));
  by("letters-replay").hidden = deadLetters.length === 0;
}

export const replayLetters = () => button("letters-replay", say("Process those that can be used now"), () => act(async () => {
  const { deadLettersTaken } = await call("POST", "/api/dead-letters/replay");
  return say("{n} were processed.", { n: deadLettersTaken });
}, loadLetters));

const WHO = { shell: say("at the hub's machine"), hub: say("the hub"), contact: say("a contact") };

const entry = ({ at, by: who, action, detail }) => element("li", {},
  element("span", { class: "quiet" }, `${moment(at)} `),
  `${who.kind === "user" ? who.name || say("user {id}", { id: who.id }) : WHO[who.kind]}: ${action}${detail && `, ${detail}`}`);

let older = null;
/** Number of the last request. Only the answer to the newest one is shown. */
let asked = 0;

async function loadAudit(more) {
  const question = ++asked;
  const told = await call("GET", more || "/api/audit?limit=50");
  if (question !== asked || !by("admin-audit")) return;
  older = told.next;
  by("audit-older").hidden = !older;
  by("admin-audit").append(...told.audit.map(entry));
}

export function showAudit() {
  by("admin-audit").replaceChildren();
  return loadAudit();
}

export const olderAudit = () => button("audit-older", say("Older lines"), () => loadAudit(older).catch(trouble));
