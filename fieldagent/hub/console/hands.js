// Commands to the selected kit, and its answers. The page shows the satellite cost before it sends
// a command, and a separate press accepts that cost.

import { call, me, postOnce, Refused, trouble } from "./hub.js";
import { here } from "./place.js";
import { counted, say, spoken, term } from "./language.js";
import { by, element, moment, put, tell } from "./text.js";

await spoken;

const SHOWN = 5;
/** Milliseconds between two loads while an answer is expected. */
const LOOK = 5000;
/** Commands in the syntax of `fieldagent hub command`. `set` is missing, because its signature
 * needs a key that is not here. */
const OFFERED = {
  status: say("Show the kit's status"), log: say("Show the newest warnings"), trace: say("Show the traffic with the modem"), "retry satellite": say("Let the modem try again now"),
  "heal satellite": say("Take the next recovery step for a silent modem"), restart: say("Restart the agent"), reboot: say("Restart the machine"),
  ...Object.fromEntries(["message", "location", "waypoint", "data"].flatMap(kind =>
    [[`hold ${kind}`, say("Keep each {kind} off satellite", { kind: term(kind) })], [`resume ${kind}`, say("Send each {kind} over satellite again", { kind: term(kind) })]])),
};
const STATES = { waiting: say("waits to be sent"), packed: say("with the satellite operator; not yet confirmed by the kit"),
  stored: say("the kit has it on its disk"), answered: say("answered"), expired: say("given up after five days") };

/** Credits that the next press accepts, or null before the price is known. */
let agreed = null;
let again;

const path = kit => `/api/devices/${kit}/commands`;

function line({ command, given, state, reason, outcome, answer, answered, answeredBy }) {
  const came = state === "answered" ? say("{outcome}, answered at {time} over {bearer}", { outcome: term(outcome), time: moment(answered), bearer: term(answeredBy) }) : STATES[state];
  return element("li", {}, element("b", {}, command), ` ${moment(given)}: ${came}${reason ? ` (${reason})` : ""}`,
    answer ? element("pre", {}, answer) : null);
}

/** Shows the commands. Only an administrator sees them. */
export async function showHands() {
  const { kit } = here();
  clearTimeout(again);
  by("hands").hidden = !me.mayAdminister || !kit;
  if (by("hands").hidden || !by("hands").open) return;
  const { commands } = await call("GET", `${path(kit)}?limit=${SHOWN}`);
  if (here().kit !== kit) return;
  put("hands-told", commands.map(line));
  if (commands.some(each => !["answered", "expired"].includes(each.state))) again = setTimeout(() => showHands().catch(trouble), LOOK);
}

function unsay() {
  agreed = null;
  tell("hands-cost", "");
  by("hands-give").textContent = say("Send");
}

const price = found => {
  if (!found.reached) return say("It has no link now, and no satellite modem here: it waits for its link.");
  if (!found.fits) return say("It is too long for its satellite modem: it waits for its link.");
  const left = found.creditsLeft === null ? "" : `; ${say("{n} left here today", { n: found.creditsLeft })}`;
  const credits = found.credits ? counted(found.credits, "{n} credit", "{n} credits") : say("by bytes");
  return say("Over satellite: {credits}, {down} bytes there and at most {up} back{left}.", { credits, down: found.down, up: found.up, left });
};

/** The first press shows the cost, if there is one. The second press sends the command. */
async function give() {
  const { kit } = here(), command = by("hands-what").value;
  if (agreed === null) {
    const found = await call("POST", `${path(kit)}/cost`, { command });
    if (!found.linked) {
      // The price is only valid for that command to that kit.
      if (here().kit !== kit || by("hands-what").value !== command) return;
      tell("hands-cost", price(found));
      agreed = found.credits;
      by("hands-give").textContent = found.reached && found.fits && found.credits ? say("Send it for {credits}", { credits: counted(found.credits, "{n} credit", "{n} credits") }) : say("Send");
      return;
    }
  }
  await postOnce(path(kit), { command, credits: agreed ?? 0 });
  unsay();
  await showHands();
}

export function setUpHands() {
  by("hands-what").replaceChildren(...Object.entries(OFFERED).map(([value, words]) => element("option", { value }, words)));
  by("hands-what").addEventListener("change", unsay);
  by("hands").addEventListener("toggle", () => { unsay(); showHands().catch(trouble); });
  by("hands-form").addEventListener("submit", async event => {
    event.preventDefault();
    const { kit } = here();
    tell("hands-fault", "");
    by("hands-give").disabled = true;
    try {
      await give();
    } catch (error) {
      // Beside another kit, the message would appear to be about that kit.
      if (error instanceof Refused && here().kit === kit) tell("hands-fault", error.message);
      else trouble(error);
    } finally {
      by("hands-give").disabled = false;
    }
  });
}

/** Called when another kit is selected. The accepted price belonged to the previous kit. */
export function lookAtHands() {
  unsay();
  tell("hands-fault", "");
  put("hands-told", []);
  return showHands();
}
