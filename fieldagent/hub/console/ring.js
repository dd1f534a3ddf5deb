// Alarms for a dispatcher about an SOS: the sound of an open page, a notification above other
// windows, and web push to a phone or computer without an open page.

import { call, me, trouble } from "./hub.js";
import { counted, language, say, worded } from "./language.js";
import { by } from "./text.js";
import { said } from "./words.js";

// Browsers allow sound only after a click, such as the sign-in. After a reload there was no click
// yet: the browser plays nothing, and the desk shows that.
let sound = null;
let ringing = null;

export function wake() {
  try {
    sound ||= new AudioContext();
  } catch {
    // A browser without sound can still sign in. The desk then shows that it is silent.
    return;
  }
  sound.onstatechange = showSound;
  sound.resume().then(showSound, showSound);
}

const isHeard = () => sound !== null && sound.state === "running";

export function showSound() {
  by("silent").hidden = isHeard();
}

/** Sets up the buttons for sound: turn it on, and test it. */
export function setUpSound() {
  by("sound-on").onclick = () => { wake(); };
  by("sound-test").onclick = () => { wake(); sound?.resume().then(() => beep()); };
}

/** An SOS has a high tone. Other alarms have two low ones, and less often. */
const TONES = { sos: [3000, [880]], alarm: [10000, [440, 330]] };
let sounding = null;

export function ring(calls, alarms) {
  const named = [calls && `${calls} SOS`, alarms && counted(alarms, "{n} alarm", "{n} alarms")].filter(Boolean);
  document.title = [...named, say("fieldagent console")].join(" · ");
  const kind = calls ? "sos" : alarms ? "alarm" : null;
  if (kind === sounding) return;
  clearInterval(ringing);
  sounding = kind;
  by("sound-test").dataset.sounding = kind ?? "";
  if (!kind) return;
  const [every, tones] = TONES[kind];
  beep(tones);
  ringing = setInterval(() => beep(tones), every);
}

function beep(tones = TONES.sos[1]) {
  showSound();
  if (!isHeard()) return;
  tones.forEach((frequency, place) => {
    const tone = sound.createOscillator();
    const volume = sound.createGain();
    volume.gain.value = 0.2;
    tone.frequency.value = frequency;
    tone.connect(volume).connect(sound.destination);
    tone.start(sound.currentTime + place * 0.5);
    tone.stop(sound.currentTime + place * 0.5 + 0.4);
  });
  by("sound-test").dataset.beeps = String(Number(by("sound-test").dataset.beeps || 0) + 1);
}

// A notification reaches a user who works in another window. The browser asks for permission first.

export function notify(title, sos) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  let shown;
  try {
    shown = new Notification(title, {
      body: sos.item ? worded(said(sos.item.event)) : "", tag: `${sos.kind}-${sos.id}`, requireInteraction: true,
    });
  } catch {
    // On telephones, only service workers can do that.
    return;
  }
  shown.onclick = () => { window.focus(); shown.close(); };
}

/** Shows the button for the permission until the user has decided. */
export function offerNotifications() {
  const button = by("notify");
  const asks = () => "Notification" in window && Notification.permission === "default";
  button.hidden = !asks();
  button.onclick = async () => {
    await Notification.requestPermission();
    button.hidden = !asks();
  };
}

// Web push: the hub calls the browser's push service, which wakes the service worker.

const WORKER = "/console/worker.js";
const canRing = () => me.mayAnswer && "serviceWorker" in navigator && "PushManager" in window;

// Only Safari on iOS has `standalone`. It offers push only to pages on the home screen.
const needsHomeScreen = () => me.mayAnswer && !canRing() && navigator.standalone === false;

const subscribed = async () => {
  const worker = await navigator.serviceWorker.register(WORKER);
  return [worker, await worker.pushManager.getSubscription()];
};

const keep = subscription => {
  const { endpoint, keys } = subscription.toJSON();
  return call("POST", "/console/push", { endpoint, p256dh: keys.p256dh, auth: keys.auth, language });
};

/** Shows the button that turns ringing with a closed page on or off. */
export async function offerRinging() {
  const button = by("push");
  button.hidden = true;
  by("home-screen").hidden = !needsHomeScreen();
  if (!canRing()) return;
  const [worker, subscription] = await subscribed();
  // The hub may have been restored from a copy, or another user may have signed in here.
  if (subscription) await keep(subscription);
  button.textContent = subscription ? say("Stop ringing when the page is closed") : say("Ring this phone or computer when the page is closed");
  button.onclick = () => (subscription ? stopRinging() : startRinging(worker)).then(offerRinging).catch(trouble);
  button.hidden = false;
}

async function startRinging(worker) {
  const { key } = await call("GET", "/console/push");
  await keep(await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
}

/** Stops ringing in this browser, also at a sign-out: the messages are for that user. */
export async function stopRinging() {
  if (!canRing()) return;
  const [, subscription] = await subscribed();
  if (!subscription) return;
  await call("DELETE", "/console/push", { endpoint: subscription.endpoint });
  await subscription.unsubscribe();
}
