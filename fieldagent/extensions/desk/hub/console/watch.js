// The watch at the desk: a dispatcher takes it, hands it over with a note, or ends it. It stays
// with that dispatcher until the next one has taken it.

import { otherDispatchers, singly } from "./acts.js";
import { call, me, Refused, trouble } from "./hub.js";
import { say, spoken } from "./language.js";
import { by, element, moment, put, tell } from "./text.js";

await spoken;

/** Seconds of a watch that is taken here. */
const SHIFT = 8 * 3600;

const mine = told => told.onWatch.find(each => each.user.id === me.id);
const offered = told => told.onWatch.find(each => each.handsOverTo?.id === me.id);

/** Hours in the hub's form. */
const HOURS = /^([\d:]+) to ([\d:]+) UTC$/;
const spelt = hours => {
  const [, from, until] = HOURS.exec(hours) ?? [];
  return from ? say("{from} to {until} UTC", { from, until }) : say("always");
};

const inWords = ({ user, until, handsOverTo, note }) => say("{name} until {time}", { name: user.name, time: moment(until) })
  + (handsOverTo ? `${say(", hand-over to {name} requested", { name: handsOverTo.name })}${note ? `: ${note}` : ""}` : "");

function show(told) {
  const nobody = told.hours ? say("No one is on watch, but someone must be: {hours}.", { hours: spelt(told.hours) }) : "";
  by("watch").hidden = !told.hours && !told.onWatch.length && !me.mayAnswer;
  tell("watch-told", told.onWatch.length ? say("On watch: {who}.", { who: told.onWatch.map(inWords).join("; ") }) : nobody || say("No one is on watch."));
  by("watch-told").classList.toggle("fault", told.unattendedSince !== null);
  const from = offered(told);
  by("watch-take").textContent = from ? say("Take the watch from {name}", { name: from.user.name }) : mine(told) ? say("Stay on watch for 8 hours") : say("Take the watch for 8 hours");
  by("watch-take").hidden = !me.mayAnswer;
  for (const id of ["watch-end", "watch-over"]) by(id).hidden = !me.mayAnswer || !mine(told);
  by("watch-before").hidden = !told.before.length;
  put("watch-list", told.before.map(({ user, since, ended, note }) =>
    element("li", {}, say("{name}, {since} to {until}", { name: user.name, since: moment(since), until: moment(ended) }), note ? element("p", {}, note) : null)));
}

/** Counts loads and acts. The answer of a load that started before an act is dropped. */
let asked = 0;

/** Loads the watch. */
export async function load() {
  const question = ++asked, told = await call("GET", "/api/watch");
  if (question === asked) show(told);
}

/** Runs an act. `done` is called before the result is shown. */
const act = (path, body, done = () => {}) => singly("watch", async () => {
  tell("watch-fault", "");
  try {
    const told = await call("POST", `/api/watch/${path}`, body);
    asked += 1;
    done();
    show(told);
    trouble();
  } catch (error) {
    if (error instanceof Refused) tell("watch-fault", error.message);
    else trouble(error);
  }
});

async function listOthers() {
  if (!by("watch-over").open) return;
  const others = await otherDispatchers();
  by("watch-to").replaceChildren(...others.map(each => element("option", { value: each.id }, each.name)));
  if (!others.length) tell("watch-fault", say("There is no other dispatcher. An administrator can add one."));
}

/** Returns the section of the watch, without its state. */
const section = () => element("section", { id: "watch", "aria-label": say("Watch"), hidden: true },
  element("p", { id: "watch-told", role: "status" }),
  element("p", { id: "watch-fault", class: "fault", role: "alert" }),
  element("div", { class: "deeds" },
    element("button", { type: "button", id: "watch-take", class: "plain", hidden: true }),
    element("button", { type: "button", id: "watch-end", class: "plain", hidden: true }, say("End my watch"))),
  element("details", { id: "watch-over", hidden: true }, element("summary", {}, say("Hand over my watch")),
    element("form", { id: "watch-form" },
      element("label", {}, say("Next dispatcher"), " ", element("select", { id: "watch-to", required: true })),
      element("label", {}, say("Information for them"), " ", element("input", { id: "watch-note", maxlength: 2000, autocomplete: "off" })),
      element("button", {}, say("Ask them")))),
  element("details", { id: "watch-before", hidden: true }, element("summary", {}, say("Earlier watches")),
    element("ol", { id: "watch-list" })));

/** Adds the watch to the desk, above the open SOS. */
export function setUp() {
  by("calm").before(section());
  by("watch-take").addEventListener("click", () => act("take", { seconds: SHIFT }));
  by("watch-end").addEventListener("click", () => act("end", { note: "" }));
  by("watch-over").addEventListener("toggle", () => listOthers().catch(trouble));
  by("watch-form").addEventListener("submit", event => {
    event.preventDefault();
    act("hand-over", { to: by("watch-to").value, note: by("watch-note").value }, () => {
      by("watch-note").value = "";
      by("watch-over").open = false;
    });
  });
}
