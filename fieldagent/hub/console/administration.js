// The administration of the workspace: each subject is loaded once somebody opens it.

import { chainTest, loadContacts, newContact } from "./contacts.js";
import { loadDevices, newDevice } from "./devices.js";
import { me, trouble } from "./hub.js";
import { loadKeys, loadTokens, newKey, newToken } from "./keys.js";
import { loadLetters, olderAudit, replayLetters, showAudit } from "./records.js";
import { by, element, tell } from "./text.js";
import { loadUsers, newUser } from "./users.js";
import { loadWebhooks, newWebhook } from "./webhooks.js";

const things = id => element("ul", { id, class: "things" });

const SUBJECTS = [
  ["Devices", loadDevices, () => [things("admin-devices"), element("h3", {}, "Add a device"), newDevice()]],
  ["Users", loadUsers, () => [things("admin-users"), element("h3", {}, "Add a user"), newUser()]],
  ["API keys", loadKeys, () => [things("admin-keys"), element("h3", {}, "Make a key"), newKey()]],
  ["Tokens of programs", loadTokens, () => [things("admin-tokens"), element("h3", {}, "Make a token"), newToken()]],
  ["Webhooks", loadWebhooks, () => [things("admin-webhooks"),
    element("div", { id: "admin-failures", hidden: true }, element("h3", {}, "What they did not take"), things("admin-failed")),
    element("h3", {}, "Add a webhook"), newWebhook()]],
  ["Contacts for an SOS", loadContacts, () => [things("admin-contacts"),
    element("p", { class: "quiet" }, "They are told beside the console, step by step, until somebody answers. Telegram and others: fieldagent hub contact add, at the hub's machine."),
    chainTest(),
    element("h3", {}, "Add a contact"), newContact()]],
  ["Messages that could not be used", loadLetters, () => [things("admin-letters"), replayLetters(),
    element("p", { class: "quiet" }, "What comes from a modem that no device has is shown at the hub's machine alone: fieldagent hub dead-letter list.")]],
  ["Who did what", showAudit, () => [element("ol", { id: "admin-audit" }), olderAudit()]],
];

function subject([title, load, parts]) {
  const toggled = event => { if (whole.open && event.target === whole) load().catch(trouble); };
  const whole = element("details", { class: "subject", ontoggle: toggled }, element("summary", {}, title),
    element("div", { class: "parts" }, ...parts()));
  return whole;
}

/** Nothing of it is left for who comes after. */
export function showAdministration() {
  for (const id of ["act-fault", "act-done"]) tell(id, "");
  by("once").replaceChildren();
  by("once").hidden = true;
  by("administration").hidden = !me.mayAdminister;
  by("subjects").replaceChildren(...me.mayAdminister ? SUBJECTS.map(subject) : []);
}
