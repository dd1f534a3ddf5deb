// An SOS: raised by holding a button and confirming it, shown over everything, called off.

import { Away, call, post } from "./agent.js";
import { by, clock, element, holders, put, tell } from "./text.js";

const HOLD = 1500;
const SOS = 100;
const CALLED_OFF = "SOS called off";

/** By these a second try of the same words, or position, is the same SOS. */
const keys = { words: "", place: "" };
let wordsLeft = false;

export function showAlarms(sos) {
  const shown = sos.packages.map(alarm);
  const more = sos.active - sos.packages.filter(each => !each.confirmedBy.length).length;
  if (more > 0) shown.push(element("p", {}, `and ${more} more that nobody has confirmed`));
  if (sos.active) {
    const button = element("button", { type: "button", id: "call-off-open" }, "Call it off …");
    button.onclick = () => open("call-off");
    put("alarms", [element("div", {}, shown), button]);
  } else {
    put("alarms", shown);
  }
  by("alarms").hidden = !shown.length;
  by("alarms").classList.toggle("active", sos.active > 0);
  document.title = sos.active ? "SOS · fieldagent" : "fieldagent";
}

function alarm(each) {
  const since = `SOS ${each.id}, raised ${clock(each.since)} UTC`;
  if (each.confirmedBy.length)
    return element("p", { class: "confirmed", role: "status" }, element("strong", {}, since),
      ` Confirmed by ${holders(each.confirmedBy)}.`,
      each.confirmedBy.some(by => by.kind === "person") ? "" : " Nobody has acknowledged it in person yet.");
  const again = each.nextTry ? `Next try ${clock(each.nextTry, { seconds: true })} UTC.` : "No channel goes on with it.";
  return element("p", { role: "alert" }, element("strong", {}, since),
    each.delivered ? " Delivered. Nobody has confirmed it yet. " : " No channel has delivered it yet. ", element("span", { class: "again" }, again));
}

/** When the first of what is shown is no longer true, in Unix time. */
export const staleAt = sos =>
  Math.min(...sos.packages.filter(each => each.nextTry).map(each => each.nextTry));

function open(id) {
  tell(`${id}-fault`, "");
  by(id).showModal();
}

/** Sets the controls up; `sent` is called when something was sent or called off. */
export function setUpSos(sent) {
  holdable(by("raise"), () => {
    tell("sos-fault", "");
    by("sos-text").value = "SOS";
    by("sos-text").disabled = wordsLeft = false;
    renew("words");
    renew("place");
    by("confirm").showModal();
    by("sos-send").focus();
  });
  by("sos-text").oninput = () => renew("words");
  by("sos-latitude").oninput = by("sos-longitude").oninput = () => renew("place");
  by("sos-back").onclick = () => by("confirm").close();
  by("call-off-back").onclick = () => by("call-off").close();
  once("confirm", "sos-send", "sos-fault", async () => {
    const latitude = by("sos-latitude").value.trim(), longitude = by("sos-longitude").value.trim();
    const content = by("sos-text").value.trim() || "SOS";
    // The words first: a position that is wrong must not keep them.
    if (!wordsLeft) await post({ message: { content }, priority: SOS }, keys.words);
    by("sos-text").disabled = wordsLeft = true;
    sent();
    if (latitude || longitude)
      await post({ location: { latitude, longitude }, priority: SOS }, keys.place);
  }, sent);
  once("call-off", "call-off-send", "call-off-fault", async () => {
    const { packages } = await call("DELETE", "/api/sos");
    const left = packages.some(each =>
      Object.values(each.channels).some(leg => [null, "Delivered"].includes(leg.status)));
    // Who got it sets out for nothing, unless told.
    if (left) await post({ message: { content: CALLED_OFF }, priority: SOS - 1 }, crypto.randomUUID());
  }, sent);
}

const renew = what => { keys[what] = crypto.randomUUID(); };

/** The dialog's answer is carried out once at a time, and closes it where it went well. */
function once(dialog, button, fault, act, sent) {
  by(dialog).querySelector("form").onsubmit = async event => {
    event.preventDefault();
    by(button).disabled = true;
    tell(fault, "");
    try {
      await act();
      by(dialog).close();
      if (dialog === "confirm") by("sos-latitude").value = by("sos-longitude").value = "";
      sent();
    } catch (error) {
      const places = (error.faults ?? []).map(each =>
        `the ${each.pointer.split("/").pop()} ${each.detail}`);
      const begun = dialog === "confirm" && wordsLeft
        ? "The SOS is on its way; its position is not: " : "";
      tell(fault, begun + (error instanceof Away
        ? `${error.message} Press again: it is sent once, however often you press.`
        : places.join("; ") || error.message));
    } finally {
      by(button).disabled = false;
    }
  };
}

/** A pointer must stay on it; a keyboard and a screen reader press it, and confirm all the same. */
function holdable(button, held) {
  let timer = 0;
  const letGo = () => {
    clearTimeout(timer);
    button.classList.remove("held");
  };
  button.addEventListener("pointerdown", event => {
    if (event.button) return;
    button.classList.add("held");
    timer = setTimeout(() => { letGo(); held(); }, HOLD);
  });
  for (const name of ["pointerup", "pointerleave", "pointercancel"])
    button.addEventListener(name, letGo);
  button.addEventListener("contextmenu", event => event.preventDefault());
  button.addEventListener("click", event => { if (event.detail === 0) held(); });
}
