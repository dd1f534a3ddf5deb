// A new radio-key for all kits of the workspace: kits that have it, kits that lack it, and the next
// step.

import { act, button, deeds, list, sure } from "./acts.js";
import { call, postOnce } from "./hub.js";
import { counted, say, term } from "./language.js";
import { element, moment, put, tell } from "./text.js";

const PATH = "/api/radio-key";
const kits = number => counted(number, "{n} kit", "{n} kits");

function standing(change) {
  if (!change) return say("It was never changed from here.");
  const behind = change.pending ? say("behind: {some} of {n}", { some: kits(change.pending), n: change.kits.length }) : say("all kits are present");
  return change.ended ? say("All kits use only the new key since {time}; {behind}.", { time: moment(change.ended), behind })
    : say("Step {step} of 3 since {time}; {behind}.", { step: change.step, time: moment(change.stepSince), behind });
}

function row(kit, change) {
  const deed = (what, done) => () => act(async () => {
    await call("POST", `/api/devices/${kit.id}/radio-key/${what}`);
    return done;
  }, loadRadioKey);
  const told = [kit.name, say("step {step}", { step: kit.step }), term(kit.state), kit.answered && moment(kit.answered), kit.answer];
  return element("li", {}, told.filter(Boolean).join(", "), kit.state === "done" ? "" : deeds(
    change.ended || kit.state === "left out" ? "" : button(`radio-key-${kit.id}-leave-out`, say("Continue without it"),
      sure(say("Once the old key is dropped, no kit can hear {name} by radio until it has connected to the hub. Continue?", { name: kit.name }),
        deed("leave-out", say("The change continues without {name}.", { name: kit.name })))),
    button(`radio-key-${kit.id}-ask`, say("Ask again"), deed("ask", say("{name} is asked again.", { name: kit.name })))));
}

function begin(cost) {
  const question = [say("All kits in use get a new radio-key, in three steps: {kits}.", { kits: kits(cost.kits) })];
  if (cost.bySatellite)
    question.push(say("Over satellite that takes up to {credits}, for {kits}.",
      { credits: counted(cost.credits, "{n} credit", "{n} credits"), kits: kits(cost.bySatellite) }));
  question.push(say("Go on?"));
  const go = () => act(async () => {
    await postOnce(PATH, { credits: cost.credits });
    return say("The change has begun.");
  }, loadRadioKey);
  return button("radio-key-change", say("Change the key of all kits"), sure(question.join(" "), go));
}

export async function loadRadioKey() {
  const { change, cost } = await call("GET", PATH);
  tell("radio-key-told", standing(change));
  list("admin-radio-key", (change?.kits ?? []).map(kit => row(kit, change)), say("No kit was asked."));
  put("radio-key-deeds", cost.kits ? [begin(cost)] : []);
}
