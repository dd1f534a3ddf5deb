// This kit's SOS: raised by a long press and a confirmation, shown with its stages above everything,
// and called off. Also the SOS of other kits, which a person here may take.

import { Away, call, outlives } from "./agent.js";
import { say, spoken, term, unworded, worded } from "./language.js";
import { ago, by, element, lengthInWords, moment, put, tell } from "./text.js";

const HOLD = 1500, AGAIN = 3000;
/** Milliseconds without an answer after which the page shows what to do. */
const SLOW = 3000;
/** Pixels that a pointer may move on a held button. */
const LEAVES = 60;
const OVER = ["closed", "called off"];

/** Key of the SOS in the open dialog. With it, a second press is the same SOS. */
let key = "";
let answerKey = "";
let fix = null;
/** The position that was put into the fields. The browser finds other ones later. */
let placed = null;
let taking = null;
/** Number of the SOS that the person is about to call off. */
let ending = 0;

export function showAlarms(sos) {
  const own = sos.incident, open = sos.active > 0;
  const shown = own ? [ownAlarm(own, open)] : [];
  const heard = sos.heard.filter(each => !OVER.includes(each.state));
  shown.push(...heard.map(heardAlarm));
  put("alarms", shown);
  by("alarms").hidden = !shown.length;
  const rings = open || heard.some(each => each.state === "open");
  by("alarms").classList.toggle("active", rings);
  document.title = rings ? "SOS · fieldagent" : "fieldagent";
  showHow(open);
}

function showHow(open) {
  by("raise-how").textContent = open ? say("Your SOS is open. Hold SOS again to add a text or a position.")
    : say("Hold for 1.5 seconds, then confirm. It goes out on every channel before all else, and is repeated until someone answers.");
}

/** Returns a stage as text, such as "left by Satellite". */
function known({ state, channel, by: who = channel && term(channel) }) {
  if (state === "left") return who === term(channel) ? say("left by {who}", { who }) : say("left by {who}’s satellite", { who });
  if (state === "heard by") return say("heard by {who}", { who });
  if (!who) return term(state);
  if (state === "seen by") return say("seen by {who}", { who });
  if (state === "closed") return say("closed by {who}", { who });
  if (state === "called off") return say("called off by {who}", { who });
  return `${term(state)}: ${who}`;
}

const unsure = each => each.unauthenticated ? ` ${say("(unauthenticated)")}` : "";

function step(each) {
  const said = each.text ? `: ${say("“{text}”", { text: worded(each.text) })}` : "";
  return element("li", {}, `${known(each)} ${moment(each.at)}${said}${unsure(each)}`);
}

/** True if no channel has sent the SOS and the agent plans no further try. */
const isStuck = own => own.nextTry === null && own.ended === null && own.steps.every(each => each.state === "raised");

function ownAlarm(own, open) {
  const again = own.nextTry ? say("Next try {time}.", { time: moment(own.nextTry, { seconds: true }) })
    : isStuck(own) ? say("No channel can send the SOS. Configure a channel, then hold SOS again.") : "";
  const last = own.steps[own.steps.length - 1];
  const lines = [
    element("strong", {}, `SOS ${own.short}: ${known(last)}${unsure(last)}`),
    element("ol", { class: "ladder" }, own.steps.map(step)),
    element("span", { class: "again" }, again),
  ];
  if (!open) return element("div", { class: "own over", role: "status" }, lines);
  const answer = element("button", { type: "button", id: "answer-open" }, say("Answer …"));
  answer.onclick = () => {
    by("answer-text").value = "";
    answerKey = crypto.randomUUID();
    show("answer");
    by("answer-back").focus();
  };
  const off = element("button", { type: "button", id: "call-off-open" }, say("Call off SOS …"));
  off.onclick = () => {
    ending = own.number;
    show("call-off");
  };
  return element("div", { class: "own", role: "alert" }, lines, answer, off);
}

/** If the date is hours before the arrival, the text only quotes that kit's clock. */
const begun = ({ name, short, raised, came, age }) => age === null
  ? say("SOS {short} from {name}, raised {time}", { short, name, time: moment(raised) })
  : say("SOS {short} from {name}, received {time}; {ago} by its clock", { short, name, time: moment(came), ago: ago(age) });

function heardAlarm(each) {
  const button = element("button", { type: "button", id: `take-${each.station}-${each.number}` }, say("Take over …"));
  button.onclick = () => {
    taking = each;
    by("take-text").value = "";
    by("take-title").textContent = say("Take over the SOS of {name}?", { name: each.name });
    show("take");
    by("take-by").focus();
  };
  return element("div", { class: "heard", role: "alert" },
    element("strong", {}, begun(each)),
    element("span", { dir: "auto" }, worded(each.text)),
    element("ol", { class: "ladder" }, each.steps.map(step)), button);
}

/** Unix time at which the shown state becomes outdated. */
export const staleAt = sos => sos.incident?.nextTry ?? Infinity;

function show(id) {
  tell(`${id}-fault`, "");
  by(id).showModal();
}

/** Sets up the controls. `sent` is called when an SOS was sent or called off. */
export function setUpSos(sent) {
  watchPosition();
  holdable(by("raise"), () => {
    if (by("confirm").open) return;
    tell("sos-fault", "");
    by("sos-text").value = "";
    key = crypto.randomUUID();
    placeIn();
    by("confirm").showModal();
    // The focus is on "Back", so that an accidental key press sends nothing.
    by("sos-back").focus();
  });
  // Until here the button is gray, so that a press that does not count yet is visible.
  by("raise").removeAttribute("aria-disabled");
  showHow(false);
  spoken.then(() => showHow(false));
  goOn(outlives("sos", () => by("confirm").open ? { key, text: by("sos-text").value, ...placed ? {} : placeTyped() } : null));
  offerWords();
  spoken.then(offerWords);
  // If this import fails, the SOS still works.
  import("./choices.js").then(({ takeGrid }) => takeGrid(by("sos-latitude"), by("sos-longitude"), fault => tell("sos-fault", fault)), () => {});
  by("sos-back").onclick = () => by("confirm").close();
  by("answer-back").onclick = () => by("answer").close();
  by("call-off-back").onclick = () => by("call-off").close();
  by("take-back").onclick = () => by("take").close();
  once("confirm", "sos-send", "sos-fault", async () => {
    const latitude = by("sos-latitude").value.trim(), longitude = by("sos-longitude").value.trim();
    const body = { text: unworded(by("sos-text").value.trim()) };
    if (latitude || longitude) body.position = { latitude, longitude, ...whenOf(latitude, longitude) };
    const { unread } = await insist("confirm", "sos-fault", "POST", "/api/sos", key)(body);
    if (!unread) return;
    // The text has been sent, and it contains the position. The dialog stays open for a correction.
    key = crypto.randomUUID();
    sent();
    throw new Error(say("The SOS is raised, but its position is invalid: {why}", {
      why: unread.map(each => each.detail).join("; "),
    }));
  }, sent);
  once("answer", "answer-send", "answer-fault", async () => {
    const text = unworded(by("answer-text").value.trim());
    if (!text) throw new Error(say("Enter a text, or go back."));
    await insist("answer", "answer-fault", "POST", "/api/sos", answerKey)({ text });
  }, sent);
  // Use the number of the SOS: a new one that is raised while the answer is lost must continue.
  once("call-off", "call-off-send", "call-off-fault",
    () => insist("call-off", "call-off-fault", "DELETE", `/api/sos?number=${ending}`)(), sent);
  once("take", "take-send", "take-fault", () => insist(
    "take", "take-fault", "POST", `/api/sos/${taking.station}/${taking.number}/take`)(
    { by: by("take-by").value, text: unworded(by("take-text").value.trim()) }), sent);
}

const placeTyped = () => ({ latitude: by("sos-latitude").value, longitude: by("sos-longitude").value });

/** Restores an SOS that was not yet sent before a new sign-in. */
function goOn(left) {
  if (!left) return;
  key = left.key;
  placeIn();
  by("sos-text").value = left.text;
  if (left.latitude || left.longitude)
    for (const each of ["latitude", "longitude"]) by(`sos-${each}`).value = left[each];
  by("confirm").showModal();
  by("sos-back").focus();
  spoken.then(() => tell("sos-fault", say("You had to sign in. Press Send SOS now. It is sent only once.")));
}

/** Offers canned words, which take one or two bytes on the air in any language. */
async function offerWords() {
  let words;
  try {
    words = await call("GET", "/api/sos/words");
  } catch {
    setTimeout(offerWords, AGAIN);
    return;
  }
  const offered = { sos: words.raised, answer: words.fromKit, take: words.fromHelpers };
  for (const [where, texts] of Object.entries(offered))
    put(`${where}-words`, texts.map(text => wordButton(worded(text), `${where}-text`)));
}

export function wordButton(text, field, then = () => {}) {
  const button = element("button", { type: "button", value: text }, text[0].toUpperCase() + text.slice(1));
  button.onclick = () => { by(field).value = text; then(); };
  return button;
}

/** Returns the browser's position, or null if it is unknown. */
export const fixOfBrowser = () => fix;

/** Watches the browser's position. Browsers give it only over TLS, or on this machine. */
function watchPosition() {
  if (!window.isSecureContext || !navigator.geolocation) return;
  navigator.geolocation.watchPosition(found => {
    fix = {
      latitude: found.coords.latitude.toFixed(6), longitude: found.coords.longitude.toFixed(6),
      timestamp: new Date(found.timestamp).toISOString(), accuracy: Math.round(found.coords.accuracy),
    };
    // Fields that the person fills or has emptied stay as they are.
    if (by("confirm").open && !placed && !by("confirm").querySelector(".pair :is(:focus, :not(:placeholder-shown))")) placeIn();
  }, () => {}, { enableHighAccuracy: true, maximumAge: 60_000 });
}

function placeIn() {
  placed = fix;
  by("sos-latitude").value = fix?.latitude ?? "";
  by("sos-longitude").value = fix?.longitude ?? "";
  by("sos-place").textContent = fix
    ? say("Position from this browser, {time}, within {distance}:",
      { time: moment(Date.parse(fix.timestamp) / 1000), distance: lengthInWords(fix.accuracy) })
    : say("Position, if you know it. If empty, the kit adds its last known position:");
}

/** A typed position has the current time. */
const whenOf = (latitude, longitude) => placed && placed.latitude === latitude && placed.longitude === longitude
  ? { timestamp: placed.timestamp, source: "browser" } : { source: "typed" };

/** Repeats the call until the agent answers or the person leaves the dialog. */
function insist(dialog, fault, method, path, repeatKey) {
  const headers = repeatKey ? { "Idempotency-Key": repeatKey } : {};
  return async body => {
    let isLeft = false;
    const warn = () => tell(fault, say("The agent does not answer. Leave this open: the page tries again. If you have another emergency device, use it."));
    const slow = setTimeout(warn, SLOW);
    const left = new Promise(resolve => by(dialog).addEventListener("close", () => {
      isLeft = true;
      clearTimeout(slow);
      resolve();
    }, { once: true }));
    try {
      for (;;) {
        try {
          return await call(method, path, body, headers);
        } catch (error) {
          // Stop after the person left the dialog, even if it is open again.
          if (!(error instanceof Away) || isLeft) throw error;
          warn();
        }
        await Promise.race([left, new Promise(resolve => setTimeout(resolve, AGAIN))]);
        if (isLeft) throw new Away();
      }
    } finally {
      clearTimeout(slow);
    }
  };
}

/** Carries out the dialog's answer once per opening, and closes the dialog after success. */
function once(dialog, button, fault, act, sent) {
  let opened = 0;
  by(dialog).addEventListener("close", () => {
    opened += 1;
    by(button).disabled = false;
  });
  by(dialog).querySelector("form").onsubmit = async event => {
    event.preventDefault();
    if (by(button).disabled) return;
    const mine = opened;
    by(button).disabled = true;
    tell(fault, "");
    try {
      await act();
      if (mine === opened) by(dialog).close();
      sent();
    } catch (error) {
      if (mine !== opened) return;
      const places = (error.faults ?? []).map(each =>
        `${each.pointer.split("/").pop()} ${each.detail}`);
      tell(fault, places.join("; ") || error.message);
    } finally {
      if (mine === opened) by(button).disabled = false;
    }
  };
  // Ignore the repetitions of a key that is held down.
  by(dialog).addEventListener("keydown", event => {
    if (event.repeat && event.key === "Enter") event.preventDefault();
  });
}

/** Calls `held` after a long press, or after any press of a keyboard or screen reader: the dialog
 * asks for a confirmation. */
function holdable(button, held) {
  let timer = 0, from = null;
  const letGo = () => {
    clearTimeout(timer);
    button.classList.remove("held");
  };
  const begin = () => {
    button.classList.add("held");
    timer = setTimeout(() => { letGo(); held(); }, HOLD);
    from = null;
  };
  button.addEventListener("pointerdown", event => {
    if (event.button) return;
    begin();
    // Late content can move the button away from a pointer that does not move.
    button.setPointerCapture(event.pointerId);
  });
  for (const name of ["pointerup", "pointercancel"]) button.addEventListener(name, letGo);
  button.addEventListener("pointermove", event => {
    const [x, y] = from ??= [event.clientX, event.clientY];
    if (event.pointerType === "mouse" && Math.hypot(event.clientX - x, event.clientY - y) > LEAVES) letGo();
  });
  button.addEventListener("contextmenu", event => event.preventDefault());
  button.addEventListener("keydown", event => { if (event.repeat) event.preventDefault(); });
  button.addEventListener("click", event => { if (event.detail === 0) held(); });
  // A finger that came before this script counts from now on.
  if (button.matches(":active")) {
    begin();
    // Late content can move the button away: the finger may be lifted elsewhere.
    addEventListener("pointerup", letGo, { once: true });
  }
}
