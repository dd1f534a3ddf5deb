// Another radio-key for all kits of the workspace: who has it, who lacks it, and how to go on.

import { act, button, deeds, list, sure } from "./acts.js";
import { call } from "./hub.js";
import { counted } from "./language.js";
import { clock, element, put, tell } from "./text.js";

const PATH = "/api/radio-key";
const kits = number => counted(number, "{n} kit", "{n} kits");

function standing(change) {
  if (!change) return "It was never changed from here.";
  const behind = change.lacking ? `${kits(change.lacking)} of ${change.kits.length} behind` : "all kits are there";
  return change.ended ? `All that were waited for have it alone since ${clock(change.ended)} UTC; ${behind}.`
    : `Step ${change.step} of 3 since ${clock(change.stepped)} UTC; ${behind}.`;
}

function row(kit, change) {
  const deed = (what, done) => () => act(async () => {
    await call("POST", `/api/devices/${kit.id}/radio-key/${what}`);
    return done;
  }, loadRadioKey);
  const told = [kit.name, `step ${kit.step}`, kit.state, kit.answered && `${clock(kit.answered)} UTC`, kit.said];
  return element("li", {}, told.filter(Boolean).join(", "), kit.state === "done" ? "" : deeds(
    change.ended || kit.state === "left out" ? "" : button(`radio-key-${kit.id}-leave-out`, "Go on without it",
      sure(`Once the old key is dropped nobody hears ${kit.name} by radio until it has called the hub. Go on?`,
        deed("leave-out", `${kit.name} is waited for no more.`))),
    button(`radio-key-${kit.id}-ask`, "Ask again", deed("ask", `${kit.name} is asked again.`))));
}

function begin(cost) {
  const paid = cost.bySatellite ? ` Over satellite that takes up to ${counted(cost.credits, "{n} credit", "{n} credits")}, for ${kits(cost.bySatellite)}.` : "";
  const go = () => act(async () => {
    await call("POST", PATH, { credits: cost.credits });
    return "The change has begun.";
  }, loadRadioKey);
  return button("radio-key-change", "Give all kits another key", sure(`${kits(cost.kits)} get another radio-key, in three steps.${paid} Go on?`, go));
}

export async function loadRadioKey() {
  const { change, cost } = await call("GET", PATH);
  tell("radio-key-told", standing(change));
  list("admin-radio-key", (change?.kits ?? []).map(kit => row(kit, change)), "No kit was asked.");
  put("radio-key-deeds", cost.kits ? [begin(cost)] : []);
}
