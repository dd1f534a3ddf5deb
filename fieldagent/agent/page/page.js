// Connects all parts of the page except the SOS button, which `start.js` sets up first.

import { Away, call, onAnswer, seldom } from "./agent.js";
import { look, lookAt, pressed, sentence, setUpConversation } from "./conversation.js";
import { setUpChoices } from "./choices.js";
import { listen } from "./events.js";
import { placesOf, showPeople } from "./handhelds.js";
import { language, say, spoken } from "./language.js";
import { showLinks } from "./links.js";
import { lookAtMap, setUpMap } from "./map.js";
import { lookAtPeople } from "./people.js";
import { setUpForm, showChoice } from "./send.js";
import { showAlarms, staleAt } from "./sos.js";
import { by, moment, now, setClock, tell } from "./text.js";

// Wait for the language, as the imported modules do.
await spoken;

const PAUSE = 500;
/** Files that are loaded only when they are needed, and kept for the time without the agent. */
const BY_NEED = ["world.js", "world.json", "track.js"];
const AROUND_EVERY = 30_000, TRACK_PAUSE = 5_000;
/** Milliseconds to wait for the agent's answer to a sign-out. */
const LEAVING = 10_000;
let lastAnswer = 0;
let gone = false;
let stale = 0;
let again = 0;
let handhelds = [];

/** The track has its own address and is loaded only there. */
const isTrack = location.pathname === "/track";
const track = isTrack ? import("./track.js") : null;
for (const id of ["state", "talk", "places", "to-track"]) by(id).hidden = isTrack;
by("track").hidden = !isTrack;

function warn(text) {
  tell("away", text);
  by("away").hidden = text === "";
}

function note(answered) {
  gone = !answered;
  if (answered) lastAnswer = now();
  if (answered) return warn("");
  const since = lastAnswer ? say("The agent has not answered since {time}. This page shows its last state.", { time: moment(lastAnswer) })
    : say("The agent does not answer.");
  warn(`${since} ${say("It may be starting. This page tries again. If this continues, run systemctl status fieldagent.")}`);
}
onAnswer(note);

/** Clears the warning that the agent is away, but no refusal. */
function lives() {
  if (gone) note(true);
  else lastAnswer = now();
}

const refused = error => { if (!(error instanceof Away)) warn(say("The agent answers: {text}", { text: error.message })); };

const lookAtState = seldom(async () => {
  const [status, signals] = await Promise.all([call("GET", "/api/status"), call("GET", "/api/signals")]);
  setClock(status.clock.time);
  const air = status.channels.Radio.configured ? await call("GET", "/api/neighbours") : null;
  showAlarms(status.sos);
  showLinks(status, signals, air);
  showChoice(status);
  const around = status.mesh ? (await call("GET", "/api/mesh")).people : [];
  showPeople(status.mesh ?? null, around, status.clock.time);
  const before = JSON.stringify(handhelds);
  handhelds = placesOf(around, status.clock.time);
  if (JSON.stringify(handhelds) !== before) lookAtPlaces();
  // The agent sends no events about people nearby, so the page asks again.
  clearTimeout(again);
  if (status.mesh) again = setTimeout(lookAtState, AROUND_EVERY);
  clearTimeout(stale);
  const rest = staleAt(status.sos) * 1000 - status.clock.time * 1000;
  if (Number.isFinite(rest)) stale = setTimeout(lookAtState, Math.max(1000, rest + 1000));
}, PAUSE, refused);

const lookAtConversation = seldom(async () => {
  const came = (await look()).filter(each => each.requestId !== undefined);
  if (came.length) tell("news", came.map(sentence).join(". "));
}, PAUSE, refused);

const lookAtPlaces = seldom(() => lookAtMap(call, handhelds, say("this kit")), PAUSE, refused);

const lookAtDay = seldom(async () => {
  if (!isTrack) return;
  setClock((await call("GET", "/api/status")).clock.time);
  await (await track).lookAtTrack();
}, TRACK_PAUSE, refused);

const lookWhoThereIs = seldom(lookAtPeople, 30_000, refused);

/** Repeats the call until the agent answers. */
async function insist(...what) {
  for (;;)
    try {
      return await call(...what);
    } catch (error) {
      if (!(error instanceof Away)) throw error;
      await new Promise(resolve => setTimeout(resolve, TRACK_PAUSE));
    }
}

export function lookAtAll() {
  lookWhoThereIs();
  lookAtPlaces();
  lookAtState();
  lookAtConversation();
  lookAtDay();
}

// Plain HTTP works only on the kit itself, which needs no sign-in.
by("leave").hidden = location.protocol !== "https:";
pressed(by("leave"), async () => {
  const answer = await fetch("/enter/session", { method: "DELETE", signal: AbortSignal.timeout(LEAVING) }).catch(() => null);
  // If the agent did not get the request, the session continues for any person who loads the page
  // again.
  if (!answer?.ok) throw new Away();
  location.assign("/enter");
});
by("help").href = `/help/${language}.html`;
setUpChoices();
setUpForm(lookAtAll);
setUpConversation(lookAtConversation);
setUpMap(insist, on => import("./world.js").then(world => world.drawWorld(on)).catch(() => {})).catch(refused).then(async chart => (await track)?.setUpTrack(chart ?? null, refused))
  .finally(() => { lookAtPlaces(); keepPage(); });
listen((what, told) => {
  if (what === "alive") return lives();
  if (what === "away") note(false);
  if (what !== "inbound") lookAtState();
  if (what !== "away") lookAtConversation();
  if (!["away", "link"].includes(what)) lookAtPlaces();
  if (what !== "away") lookAtDay();
  // A new link may bring a new directory.
  if (["connected", "link"].includes(what)) lookWhoThereIs();
  if (what === "package") lookAt(told.id).catch(() => {});
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) lookAtAll(); });

/** Lets the browser keep the page's files, as an app that opens without its agent. */
async function keepPage() {
  if (!navigator.serviceWorker) return;
  // A browser that accepts this kit's certificate only by an exception registers no worker.
  const kept = await navigator.serviceWorker.register("/worker.js").catch(() => null);
  if (!kept) return;
  const files = performance.getEntriesByType("resource").map(each => each.name)
    .filter(name => new URL(name).pathname.startsWith("/page/"));
  for (const name of BY_NEED) {
    const { href } = new URL(name, import.meta.url);
    if (await caches.match(href)) files.push(href);
  }
  (await navigator.serviceWorker.ready).active.postMessage([
    ...["/", "/track", by("help").pathname, "/help/handbook.css"].map(path => location.origin + path), ...new Set(files),
  ]);
}
