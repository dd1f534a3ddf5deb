// Who is told of an SOS beside the console, as an administrator adds, tests and removes them; and the
// steps that they make, of which those that cannot work are red before somebody is in distress.

import { act, button, choice, deeds, filled, form, line, list, sure } from "./acts.js";
import { call } from "./hub.js";
import { counted } from "./language.js";
import { by, clock, element, tell } from "./text.js";

const KINDS = { email: "by e-mail", apprise: "by apprise", push: "by web push", "sms-gate": "by SMS", twilio: "by SMS", sms: "by SMS" };
const UNITS = { s: ["{n} second", "{n} seconds"], m: ["{n} minute", "{n} minutes"], h: ["{n} hour", "{n} hours"] };
const spelt = span => counted(Number(span.slice(0, -1)), ...UNITS[span.at(-1)]);
const ABOUT = { all: "", sos: "for SOS alone", alarms: "for alarms alone" };

function contact(each) {
  const path = `/api/contacts/${each.id}`;
  const go = (method, where, done) => () => act(async () => {
    // One that failed is red from now on.
    await call(method, where).catch(async error => { await loadContacts(); throw error; });
    return done;
  }, loadContacts);
  const fault = each.failingSince === null ? `It cannot be told: ${each.fault}` : `Nothing is handed over since ${clock(each.failingSince)} UTC: ${each.fault}`;
  const how = [KINDS[each.kind] ?? each.kind, each.address, ABOUT[each.about],
    each.tries > 1 ? `up to ${each.tries} times, every ${spelt(each.every)}` : ""];
  return element("li", { class: each.fault ? "row failing" : "row" },
    element("strong", {}, each.name), " ", how.filter(Boolean).join(", "),
    each.fault ? element("p", { class: "fault" }, fault) : "",
    deeds(
      button(`contact-${each.id}-test`, "Test", go("POST", `${path}/test`, `The test for ${each.name} was handed over; ask whether it came.`)),
      button(`contact-${each.id}-remove`, "Remove", sure(`Remove ${each.name}?`, go("DELETE", path, `${each.name} is removed.`)))));
}

function step(each) {
  const when = each.after !== "0s" ? `where nobody has answered for ${spelt(each.after)}` : "at once";
  return element("li", { class: each.works ? "step" : "step failing" },
    element("h4", {}, `Step ${each.step}: ${when}`),
    each.works ? "" : element("p", { class: "fault" }, "This step cannot tell anybody now."),
    element("ul", { class: "things" }, ...each.contacts.map(contact)));
}

export async function loadContacts() {
  const { steps } = await call("GET", "/api/chain");
  list("admin-contacts", steps.map(step), "Nobody yet: an SOS rings at an open console alone.");
}

/** Every contact is told, step by step, that this is a test; what became of each stays until the next. */
export const chainTest = () => element("div", { class: "deeds" },
  button("chain-test", "Test all steps", sure("Tell every contact now that this is a test?", () => act(async () => {
    tell("chain-results", "");
    const { results } = await call("POST", "/api/chain/test");
    by("chain-results").replaceChildren(...results.map(each => element("li", { class: each.handedOver ? "" : "fault" },
      `Step ${each.step}, ${each.name}: ${each.handedOver ? "handed over; ask whether it came" : each.reason}`)));
    const failed = results.filter(each => !each.handedOver).length;
    return `${counted(results.length, "{n} test", "{n} tests")} sent, ${failed} not taken.`;
  }, loadContacts))),
  element("ol", { id: "chain-results", role: "status" }));

const MEMBERS = ["name", "address", "after", "tries", "every", "about"];

const add = () => act(async () => {
  const body = filled("new-contact", MEMBERS);
  await call("POST", "/api/contacts", body);
  for (const each of MEMBERS) by(`new-contact-${each}`).value = each === "about" ? "all" : "";
  return `${body.name} is added. Test it.`;
}, loadContacts);

export const newContact = () => form("Add a contact", add, { id: "new-contact-add", text: "Add the contact" },
  line("new-contact-name", "Name of the person or the duty, which the kit is shown", { maxlength: "80" }),
  line("new-contact-address", "E-mail address, or telephone number such as +41791234567", { maxlength: "320" }),
  line("new-contact-after", "Time without an answer before it is told, such as 30s or 5m; empty is at once", { maxlength: "7" }),
  line("new-contact-tries", "How often it is told until somebody answers; empty is once", { type: "number", min: "1", max: "20" }),
  line("new-contact-every", "Time between two tries, such as 30s; empty is 5m", { maxlength: "7" }),
  choice("new-contact-about", "What it is told of", [["all", "SOS and alarms"], ["sos", "SOS alone"], ["alarms", "Alarms alone"]], "all"));
