// Ties all but the raising of an SOS together, which `start.js` does before: what the agent tells by
// itself decides what is looked at anew.

import { Away, call, listen, onAnswer, seldom } from "./agent.js";
import { look, lookAt, sentence, setUpConversation } from "./conversation.js";
import { showLinks } from "./links.js";
import { lookAtMap, setUpMap } from "./map.js";
import { setUpForm, showChoice } from "./send.js";
import { showAlarms, staleAt } from "./sos.js";
import { by, clock, tell } from "./text.js";

const PAUSE = 500;
let lastAnswer = 0;
let stale = 0;

function warn(text) {
  tell("away", text);
  by("away").hidden = text === "";
}

onAnswer(answered => {
  if (answered) lastAnswer = Date.now() / 1000;
  const since = lastAnswer ? ` since ${clock(lastAnswer)} UTC; what you see is from then` : "";
  warn(answered ? "" : `The agent does not answer${since}. It may be starting: this page`
    + " tries again by itself. If it stays so, look at systemctl status fieldagent.");
});

const refused = error => { if (!(error instanceof Away)) warn(`The agent answers: ${error.message}`); };

const lookAtState = seldom(async () => {
  const [status, signals] = await Promise.all([call("GET", "/api/status"), call("GET", "/api/signals")]);
  showAlarms(status.sos);
  showLinks(status, signals);
  showChoice(status);
  clearTimeout(stale);
  const rest = staleAt(status.sos) * 1000 - status.clock.time * 1000;
  if (Number.isFinite(rest)) stale = setTimeout(lookAtState, Math.max(1000, rest + 1000));
}, PAUSE, refused);

const lookAtConversation = seldom(async () => {
  const came = (await look()).filter(each => each.requestId !== undefined);
  if (came.length) tell("news", came.map(sentence).join(". "));
}, PAUSE, refused);

const lookAtPlaces = seldom(() => lookAtMap(call), PAUSE, refused);

export function lookAtAll() {
  lookAtPlaces();
  lookAtState();
  lookAtConversation();
}

// Over plain HTTP it is this machine's own, which nobody signs in to.
by("leave").hidden = location.protocol !== "https:";
by("leave").addEventListener("click", () => fetch("/enter/session", { method: "DELETE" })
  .finally(() => location.assign("/enter")));
setUpForm(lookAtAll);
setUpConversation(lookAtConversation);
setUpMap(call).catch(refused).finally(lookAtPlaces);
listen((what, told) => {
  if (what !== "inbound") lookAtState();
  if (what !== "away") lookAtConversation();
  if (!["away", "link"].includes(what)) lookAtPlaces();
  if (what === "package") lookAt(told.id).catch(() => {});
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) lookAtAll(); });
