// Who is told of an SOS beside the console, as an administrator adds, tests and removes them.

import { act, button, deeds, filled, form, line, list, sure } from "./acts.js";
import { call } from "./hub.js";
import { by, clock, counted, element } from "./text.js";

const KINDS = { email: "by e-mail", apprise: "by apprise", push: "by web push" };

function contact(each) {
  const path = `/api/contacts/${each.id}`;
  const go = (method, where, done) => () => act(async () => { await call(method, where); return done; }, loadContacts);
  const failing = each.failingSince !== null;
  return element("li", { class: failing ? "row failing" : "row" },
    element("strong", {}, each.name), " ",
    [KINDS[each.kind] ?? each.kind, each.address,
      each.after ? `where nobody has answered for ${counted(each.after, "minute")}` : "at once"].join(", "),
    failing ? element("p", { class: "fault" }, `Nothing is handed over since ${clock(each.failingSince)} UTC: ${each.reason}`) : "",
    deeds(
      button(`contact-${each.id}-test`, "Test", go("POST", `${path}/test`, `The test for ${each.name} was handed over; ask whether it came.`)),
      button(`contact-${each.id}-remove`, "Remove", sure(`Remove ${each.name}?`, go("DELETE", path, `${each.name} is removed.`)))));
}

export async function loadContacts() {
  const { contacts } = await call("GET", "/api/contacts");
  list("admin-contacts", contacts.map(contact), "Nobody yet: an SOS rings at an open console alone.");
}

const add = () => act(async () => {
  const body = filled("new-contact", ["name", "address", "after"]);
  await call("POST", "/api/contacts", body);
  for (const each of ["name", "address", "after"]) by(`new-contact-${each}`).value = "";
  return `${body.name} is added. Test it.`;
}, loadContacts);

export const newContact = () => form("Add a contact", add, { id: "new-contact-add", text: "Add the contact" },
  line("new-contact-name", "Name of the person or the duty, which the kit is shown", { maxlength: "80" }),
  line("new-contact-address", "E-mail address", { type: "email", maxlength: "320" }),
  line("new-contact-after", "Minutes without an answer before it is told; empty is at once", { type: "number", min: "0", max: "10080" }));
