// The administration of the workspace. Each subject is a page that loads when a person opens it.

import { looked } from "./acts.js";
import { loadDevices, newDevice } from "./devices.js";
import { me, trouble } from "./hub.js";
import { loadKeys, loadTokens, newKey, newToken } from "./keys.js";
import { say, spoken } from "./language.js";
import { parts } from "./parts.js";
import { here } from "./place.js";
import { loadRadioKey } from "./radio_key.js";
import { loadLetters, olderAudit, replayLetters, showAudit } from "./records.js";
import { by, element, tell } from "./text.js";
import { loadUsers, newUser } from "./users.js";
import { loadWebhooks, newWebhook } from "./webhooks.js";

await spoken;

const things = id => element("ul", { id, class: "things" });
const many = id => [things(id), element("button", { id: `${id}-more`, type: "button", class: "plain", hidden: true })];

const SUBJECTS = [
  ["devices", say("Devices"), loadDevices, () => [...many("admin-devices"), element("h3", {}, say("Add a device")), newDevice()]],
  ["radio", say("Radio key"), loadRadioKey, () => [element("p", { id: "radio-key-told", role: "status" }), things("admin-radio-key"),
    element("p", { class: "quiet" }, say("If a kit is stolen, revoke it first, under Devices. All kits in use get the new key. Each step begins when all kits have completed the last one.")),
    element("div", { id: "radio-key-deeds", class: "deeds" })]],
  ["users", say("Users"), loadUsers, () => [...many("admin-users"), element("h3", {}, say("Add a user")), newUser()]],
  ["keys", say("API keys"), loadKeys, () => [things("admin-keys"), element("h3", {}, say("Add a key")), newKey()]],
  ["tokens", say("Tokens of programs"), loadTokens, () => [things("admin-tokens"), element("h3", {}, say("Add a token")), newToken()]],
  ["webhooks", say("Webhooks"), loadWebhooks, () => [things("admin-webhooks"),
    element("div", { id: "admin-failures", hidden: true }, element("h3", {}, say("Dead letters of webhooks")), things("admin-failed")),
    element("h3", {}, say("Add a webhook")), newWebhook()]],
  ...parts.flatMap(each => each.subjects ?? []),
  ["letters", say("Dead letters"), loadLetters, () => [things("admin-letters"), replayLetters(),
    element("p", { class: "quiet" }, say("Messages from unknown modems are listed only on the hub's machine: fieldagent hub device dead-letter list."))]],
  ["audit", say("Audit log"), showAudit, () => [element("ol", { id: "admin-audit" }), olderAudit()]],
];

let shown = null;

const link = ([name, title]) => element("li", {}, element("a", {
  href: `/console/administration/${name}`, "data-place": true, "aria-current": name === here().subject ? "page" : null,
}, title));

/** Shows the subject in the address. `anew` discards the previous content, for example for another
 * user. */
export function showAdministration(anew = false) {
  const { subject } = here(), wanted = me.mayAdminister ? subject : null;
  if (wanted === shown && !anew) return;
  shown = wanted;
  for (const id of ["act-fault", "act-done"]) tell(id, "");
  by("once").replaceChildren();
  by("once").hidden = true;
  by("to-administration").hidden = !me.mayAdminister;
  const found = SUBJECTS.find(([name]) => name === wanted);
  tell("administration-title", found ? say("Administration: {subject}", { subject: found[1] }) : say("Administration"));
  by("subjects").replaceChildren(...me.mayAdminister ? SUBJECTS.map(link) : []);
  by("subject").replaceChildren(...found ? found[3]() : []);
  if (found) looked(found[2]).catch(trouble);
}
