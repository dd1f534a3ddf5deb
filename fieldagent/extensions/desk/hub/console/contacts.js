// Contacts for an SOS outside the console: an administrator adds, tests and removes them. It also
// shows the order of the steps. Steps that cannot work are red before an emergency.

import { act, button, choice, deeds, emptied, filled, form, line, list, looked, sure } from "./acts.js";
import { call } from "./hub.js";
import { LANGUAGES, counted, language, say, spoken } from "./language.js";
import { by, element, moment, tell } from "./text.js";

await spoken;

const KINDS = { email: say("by e-mail"), apprise: say("by apprise"), push: say("by web push"), "sms-gate": say("by SMS"), twilio: say("by SMS"), sms: say("by SMS") };
const UNITS = { s: ["{n} second", "{n} seconds"], m: ["{n} minute", "{n} minutes"], h: ["{n} hour", "{n} hours"] };
const spelt = span => counted(Number(span.slice(0, -1)), ...UNITS[span.at(-1)]);
const ABOUT = { all: "", sos: say("only for SOS"), alarms: say("only for alarms") };

function contact(each) {
  const path = `/api/contacts/${each.id}`;
  const go = (method, where, done) => () => act(async () => {
    // Load the list again: the contact that failed is now red.
    await call(method, where).catch(async error => { await looked(loadContacts).catch(() => {}); throw error; });
    return done;
  }, loadContacts);
  const fault = each.failingSince === null ? say("It cannot be notified: {why}", { why: each.fault }) : say("Nothing has been handed over since {time}: {why}", { time: moment(each.failingSince), why: each.fault });
  const how = [KINDS[each.kind] ?? each.kind, each.address, LANGUAGES[each.language], ABOUT[each.about],
    each.quiet === "none" ? say("no quiet hours") : each.quiet ? say("quiet {hours}", { hours: each.quiet }) : "",
    each.tries > 1 ? say("up to {n} times, every {span}", { n: each.tries, span: spelt(each.every) }) : ""];
  return element("li", { class: each.fault ? "row failing" : "row" },
    element("strong", {}, each.name), " ", how.filter(Boolean).join(", "),
    each.fault ? element("p", { class: "fault" }, fault) : "",
    deeds(
      button(`contact-${each.id}-test`, say("Test"), go("POST", `${path}/test`, say("The test for {name} was handed over; ask whether it arrived.", { name: each.name }))),
      button(`contact-${each.id}-remove`, say("Remove"), sure(say("Remove {name}?", { name: each.name }), go("DELETE", path, say("{name} is removed.", { name: each.name }))))));
}

function step(each) {
  const when = each.after !== "0s" ? say("without an answer for {span}", { span: spelt(each.after) }) : say("at once");
  return element("li", { class: each.works ? "step" : "step failing" },
    element("h4", {}, say("Step {n}: {when}", { n: each.step, when })),
    each.works ? "" : element("p", { class: "fault" }, say("This step cannot notify anyone now.")),
    element("ul", { class: "things" }, ...each.contacts.map(contact)));
}

async function loadContacts() {
  const [{ steps }, { quiet }] = await Promise.all([call("GET", "/api/chain"), call("GET", "/api/quiet")]);
  list("admin-contacts", steps.map(step), say("No contact yet: an SOS rings only at an open console."));
  tell("quiet-told", quiet === "none" ? say("Contacts get alarms at any hour.") : say("Alarms wait during these hours: {hours}.", { hours: quiet }));
  const whose = steps.flatMap(each => each.contacts).map(each => element("option", { value: `/api/contacts/${each.id}` }, each.name));
  const before = by("quiet-whose").value;
  by("quiet-whose").replaceChildren(element("option", { value: "/api/quiet" }, say("All contacts without hours of their own")), ...whose);
  if (whose.some(each => each.value === before)) by("quiet-whose").value = before;
}

const quieten = () => act(async () => {
  const hours = by("quiet-hours").value.trim(), whose = by("quiet-whose").value, own = whose !== "/api/quiet";
  const plain = !hours || hours === "none";
  await call("PATCH", whose, { quiet: plain ? hours : `${hours} ${by("quiet-zone").value.trim()}` });
  emptied("quiet", ["hours"], { hours });
  return hours === "none" || !hours && !own ? say("There are no quiet hours.") : hours ? say("The quiet hours are set.") : say("It uses the workspace's hours.");
}, loadContacts);

/** Returns the form for the hours in which alarms of the hub wait. An SOS or an overdue kit never
 * waits. */
const quietHours = () => form(say("Quiet hours"), quieten, { id: "quiet-set", text: say("Set the quiet hours") },
  element("p", { id: "quiet-told", role: "status" }),
  element("p", { class: "quiet" }, say("The hub's own alarms wait until the end of these hours. An SOS or an overdue kit never waits.")),
  choice("quiet-whose", say("Whose"), [["/api/quiet", say("All contacts without hours of their own")]], "/api/quiet"),
  line("quiet-hours", say("From and until, such as 22:00-06:00; none: no quiet hours; empty: the workspace's hours"), { maxlength: "11" }),
  line("quiet-zone", say("Time zone, such as Europe/Zurich"), { maxlength: "64", value: Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC" }));

/** Tests all contacts step by step with a test message. The results stay until the next test. */
const chainTest = () => element("div", { class: "deeds" },
  button("chain-test", say("Test all steps"), sure(say("Send a test to every contact now?"), () => act(async () => {
    const place = by("chain-results");
    place.replaceChildren();
    const { results } = await call("POST", "/api/chain/test");
    const taken = say("handed over; ask whether it arrived");
    // If the person has left the page, the list no longer exists.
    place.replaceChildren(...results.map(each => element("li", { class: each.handedOver ? "" : "fault" },
      say("Step {n}, {name}: {what}", { n: each.step, name: each.name, what: each.handedOver ? taken : each.reason }))));
    const failed = results.filter(each => !each.handedOver).length;
    return say("{tests} sent, {failed} not accepted.", { tests: counted(results.length, "{n} test", "{n} tests"), failed });
  }, loadContacts))),
  element("ol", { id: "chain-results", role: "status" }));

const MEMBERS = ["name", "address", "after", "tries", "every", "about", "language"];
const CHOSEN = { about: "all", language };

const add = () => act(async () => {
  const body = filled("new-contact", MEMBERS);
  await call("POST", "/api/contacts", body);
  emptied("new-contact", MEMBERS, body, CHOSEN);
  return say("{name} is added. Test it.", { name: body.name });
}, loadContacts);

const newContact = () => form(say("Add a contact"), add, { id: "new-contact-add", text: say("Add the contact") },
  line("new-contact-name", say("Name of the person or duty; kits show it"), { maxlength: "80" }),
  line("new-contact-address", say("E-mail address, or telephone number such as +41791234567"), { maxlength: "320" }),
  line("new-contact-after", say("Time without an answer until the notification, such as 30s or 5m (empty: at once)"), { maxlength: "7" }),
  line("new-contact-tries", say("Number of notifications until someone answers (empty: 1)"), { type: "number", min: "1", max: "20" }),
  line("new-contact-every", say("Time between two notifications, such as 30s (empty: 5m)"), { maxlength: "7" }),
  choice("new-contact-about", say("Notified of"), [["all", say("SOS and alarms")], ["sos", say("Only SOS")], ["alarms", say("Only alarms")]], CHOSEN.about),
  choice("new-contact-language", say("Language"), Object.entries(LANGUAGES), CHOSEN.language));

/** Subjects of the administration: name, title, and the functions that load and return the
 * content. */
export const subjects = [
  ["contacts", say("Contacts for an SOS"), loadContacts, () => [element("ul", { id: "admin-contacts", class: "things" }),
    element("p", { class: "quiet" }, say("Contacts are notified step by step until someone answers. For Telegram and others, run fieldagent hub contact add on the hub's machine.")),
    chainTest(), element("h3", {}, say("Quiet hours")), quietHours(),
    element("h3", {}, say("Add a contact")), newContact()]],
];
