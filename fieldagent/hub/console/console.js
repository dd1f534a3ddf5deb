// Connects the parts of the console: sign-in, and the effects of the hub's events.

import { singly } from "./acts.js";
import { showAdministration } from "./administration.js";
import { clearDesk, loadDesk, note, showNamed } from "./desk.js";
import { setUpChoices } from "./choices.js";
import { judge, kitOf, lookAtKit, pause, setUpFleet, showFleet } from "./fleet.js";
import { showFigures } from "./figures.js";
import { lookAtHands, setUpHands, showHands } from "./hands.js";
import { Away, call, looksWell, me, SignedOut, trouble } from "./hub.js";
import { came, loadTalk, lookAtTalk, lookHowFar, lookWhoHas, setUpTalk } from "./talk.js";
import { offerPasskey, showPasskeys, signInByPasskey } from "./passkey.js";
import { parts } from "./parts.js";
import { offerNotifications, setUpSound, showSound, wake } from "./ring.js";
import { setUpHistory } from "./history.js";
import { here as place, setUpPlace } from "./place.js";
import { follow } from "./stream.js";
import { spoken, term } from "./language.js";
import { by, plain } from "./text.js";
import { chooseKit, loadPeople, setUpWriting } from "./write.js";

// Wait for the language, as the imported modules do.
await spoken;

/** Returns the functions of the extensions' parts that have this name. */
const ofParts = name => parts.flatMap(each => each[name] ?? []);

/** Milliseconds between two tries to reach a hub that is away. */
const AGAIN = 6000;
/** Milliseconds after which the first load no longer waits for the stream. */
const FIRST = 2000;

let events = null;
let begins;
/** Counts the starts. If several run at once, only the newest one listens. */
let begun = 0;
/** Id of the last user, whose texts and lists stay unless another user signs in. */
let last;

function listen() {
  let here = false;
  const away = () => trouble(new Away());
  // A stream may end at any time, and the browser connects again by itself.
  const unlessBack = act => setTimeout(() => { if (events === mine && !here) act(); }, AGAIN);
  if (events) events.close();
  const happened = told => { note(told); judge(); later(); };
  const mine = events = follow("/api/events", {
    item: told => { came(told); later(); },
    sos: happened,
    alarm: happened,
    lost: () => load().catch(again),
  }, {
    connected: missed => {
      here = true;
      looksWell();
      // Load after the stream has started, so that no event is lost between the two.
      if (missed) load().catch(again);
    },
    away: silent => {
      here = false;
      if (silent) away();
      else unlessBack(away);
    },
    refused: () => {
      here = false;
      unlessBack(() => { away(); begin(); });
    },
  });
  // Some proxies block the stream. The first load must not wait for it.
  setTimeout(() => { if (events === mine && !here) load().catch(again); }, FIRST);
}

let waits = null;
function later() {
  waits ||= setTimeout(() => { waits = null; if (events) look(showFleet, lookHowFar); }, pause());
}

/** Runs all loads. If one fails, the others continue. */
const look = (...what) => Promise.all(what.map(each => each())).then(looksWell, trouble);

const load = async () => {
  // First load the SOS desk, so that it rings even if the other loads fail.
  await loadDesk();
  await Promise.all([loadTalk, loadPeople, showFleet, ...ofParts("load")].map(each => each()));
  await lookAtPlace();
};

/** Shows the room, or the page in the address. */
function showPlace() {
  const inside = me.id !== undefined, { subject, account, fleet } = place();
  const administers = inside && me.mayAdminister && subject !== null;
  const room = inside && !administers && !account && !fleet;
  for (const id of ["room", "parts"]) by(id).hidden = !room;
  by("administration").hidden = !administers;
  by("account").hidden = !inside || !account;
  by("figures").hidden = !inside || !fleet;
  by("desk").hidden = !inside;
  showAdministration();
}

async function lookAtPlace() {
  showPlace();
  lookAtTalk()?.catch(trouble);
  const kit = kitOf(place().kit);
  chooseKit(kit?.user.id ?? null);
  await Promise.all([showNamed(), lookAtKit(), lookAtHands(), showFigures()]);
}

/** Loads the new place, and scrolls to its content if it is not visible. */
function went(pressed) {
  if (me.id === undefined) return;
  const looked = lookAtPlace().catch(trouble);
  if (pressed && place().fleet) looked.then(() => {
    by("figures").scrollIntoView();
    by("figures-title").focus({ preventScroll: true });
  });
  const { top, bottom } = by("talk").getBoundingClientRect();
  if (!pressed || !place().kit || (top < innerHeight / 2 && bottom > 0)) return;
  by("talk").scrollIntoView();
  by("talk-title").focus({ preventScroll: true });
}

/** Shows the console or the sign-in form. If `anew` is true, another user is here, and content of
 * the previous user is discarded. */
function show(inside, anew = true) {
  by("enter").hidden = inside;
  for (const id of ["leave", "to-room", "to-fleet"]) by(id).hidden = !inside;
  for (const id of ["notify", "push", "choose", "to-account"]) by(id).hidden = true;
  showAdministration(anew);
  showPlace();
  by("sound").hidden = !inside;
  showSound();
  if (inside) offerNotifications();
  else by("who").textContent = "";
}

function signedOut() {
  if (events) events.close();
  events = null;
  for (const name of Object.keys(me)) delete me[name];
  clearDesk();
  show(false);
  offerPasskey();
}

const mayPass = error => !(error instanceof SignedOut) && !(error.status < 500 && error.status !== 429);

/** Retries if the hub is away. The user stays signed in: a desk that shows the sign-in form or old
 * content would not ring. */
function again(error) {
  trouble(error);
  clearTimeout(begins);
  if (mayPass(error)) begins = setTimeout(begin, AGAIN);
}

async function begin() {
  clearTimeout(begins);
  if (events) events.close();
  const mine = ++begun, before = me.id;
  let now;
  try {
    now = await call("GET", "/console/session");
  } catch (error) {
    return mine !== begun ? undefined : mayPass(error) ? again(error) : signedOut();
  }
  if (mine !== begun) return;
  // Remove all content of the previous user.
  if ((last ??= now.id) !== now.id) return location.reload();
  Object.assign(me, now);
  by("who").textContent = plain(`${me.name}, ${term(me.role)}`);
  show(true, me.id !== before);
  listen();
  await showPasskeys().catch(trouble);
  for (const each of ofParts("startSession")) await each().catch(trouble);
}

/** Signs in, once even after several presses: otherwise the console would listen to the hub
 * twice. */
const enter = how => singly("enter", async () => {
  wake();
  const form = by("enter");
  try {
    await how();
    by("refused").textContent = "";
    form.reset();
    await begin();
  } catch (error) {
    by("refused").textContent = error.message;
    by("choose").hidden = !error.choose;
    if (error.choose) form.elements.newPassword.focus();
  }
});

by("enter").addEventListener("submit", event => {
  event.preventDefault();
  const told = Object.fromEntries(new FormData(event.target));
  if (!told.newPassword) delete told.newPassword;
  enter(() => call("POST", "/console/session", told));
});
/** Fills in the form from the link of `fieldagent hub init`, once: the address bar forgets it. */
function readLink() {
  const named = new URLSearchParams(location.hash.slice(1));
  if (!named.has("password")) return;
  for (const name of ["username", "password"]) by("enter").elements[name].value = named.get(name);
  history.replaceState(null, "", location.pathname);
}
by("by-passkey").addEventListener("click", () => enter(() => signInByPasskey(by("enter").elements.workspace.value)));
by("leave").addEventListener("click", async () => {
  for (const each of ofParts("endSession")) await each().catch(trouble);
  try {
    await call("DELETE", "/console/session");
  } catch (error) {
    // The session is still valid for any person who loads the page again.
    return trouble(error);
  }
  // Remove all content of this user.
  location.assign(location.pathname);
});
document.addEventListener("signed-out", signedOut);
document.addEventListener("click", wake);
setUpChoices();
setUpSound();
setUpHistory();
setUpTalk(kitOf);
setUpWriting();
setUpFleet();
setUpHands();
for (const each of ofParts("setUp")) each();
setUpPlace(went);
readLink();
addEventListener("hashchange", readLink);
setInterval(() => events && look(loadDesk, showFleet, lookHowFar, lookWhoHas, loadPeople, showHands, ...ofParts("load"), showFigures), 60000);
begin();
