// Ties the console together: who signs in, and what the hub's events change.

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
import { offerNotifications, offerRinging, setUpSound, showSound, stopRinging, wake } from "./ring.js";
import { setUpHistory } from "./history.js";
import { here as place, setUpPlace } from "./place.js";
import { follow } from "./stream.js";
import { spoken, term } from "./language.js";
import { by, plain } from "./text.js";
import { setUpWatch, showWatch } from "./watch.js";
import { chooseKit, loadPeople, setUpWriting } from "./write.js";

// As what it imports does.
await spoken;

/** Milliseconds after which a hub that was away is asked again. */
const AGAIN = 6000;
/** Milliseconds after which the first look waits for the stream no longer. */
const FIRST = 2000;

let events = null;
let begins;
/** Counts the beginnings: of some at a time, the newest alone listens. */
let begun = 0;
/** Who was here last: their words and lists stay, as long as nobody else comes. */
let last;

function listen() {
  let here = false;
  const away = () => trouble(new Away());
  // A stream ends now and then, and the browser comes back by itself.
  const unlessBack = act => setTimeout(() => { if (events === mine && !here) act(); }, AGAIN);
  if (events) events.close();
  const mine = events = follow("/api/events", {
    item: told => { came(told); later(); },
    sos: told => { note(told); judge(); later(); },
    lost: () => load().catch(again),
  }, {
    connected: missed => {
      here = true;
      looksWell();
      // Looked at once the stream tells what comes: neither of the two leaves a gap to the other.
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
  // A stream that does not begin, as behind some proxies, keeps nobody from a first look.
  setTimeout(() => { if (events === mine && !here) load().catch(again); }, FIRST);
}

let waits = null;
function later() {
  waits ||= setTimeout(() => { waits = null; if (events) look(showFleet, lookHowFar); }, pause());
}

/** Looks at all of it; that one fails keeps no other from it. */
const look = (...what) => Promise.all(what.map(each => each())).then(looksWell, trouble);

const load = async () => {
  // An SOS is there, and rings, whatever is wrong with the rest.
  await loadDesk();
  await Promise.all([loadTalk(), loadPeople(), showFleet(), showWatch()]);
  await lookAtPlace();
};

/** Shows the room, or the page that the address names. */
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

/** A person went to another place: what it shows is brought into view where it is not. */
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

/** `anew` where it is somebody else who is there now: nothing is left to them. */
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

/** A hub that is away has signed nobody out: a desk that it leaves at the form would not ring, nor
 * one that shows what was before. */
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
  // Nothing that they saw or wrote stays for who comes after.
  if ((last ??= now.id) !== now.id) return location.reload();
  Object.assign(me, now);
  by("who").textContent = plain(`${me.name}, ${term(me.role)}`);
  show(true, me.id !== before);
  listen();
  await showPasskeys().catch(trouble);
  await offerRinging().catch(trouble);
}

/** Signs in, once however often that is pressed: two would listen to the hub twice. */
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
by("by-passkey").addEventListener("click", () => enter(() => signInByPasskey(by("enter").elements.workspace.value)));
by("leave").addEventListener("click", async () => {
  await stopRinging().catch(trouble);
  try {
    await call("DELETE", "/console/session");
  } catch (error) {
    // Whoever loads the page again would be inside.
    return trouble(error);
  }
  // Nothing that they saw or wrote stays for who comes after.
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
setUpWatch();
setUpPlace(went);
setInterval(() => events && look(loadDesk, showFleet, lookHowFar, lookWhoHas, loadPeople, showHands, showWatch, showFigures), 60000);
begin();
