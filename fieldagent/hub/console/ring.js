// How an SOS reaches a dispatcher: the sound of an open page, a notification over other windows, and
// by web push a phone or computer on which no page is open.

import { call, me, trouble } from "./hub.js";
import { language, say, worded } from "./language.js";
import { by } from "./text.js";
import { said } from "./words.js";

// Sound begins with the click by which somebody signed in, or any later one. After a reload there
// was none: the browser plays nothing, and the desk says so.
let sound = null;
let ringing = null;

export function wake() {
  try {
    sound ||= new AudioContext();
  } catch {
    // A browser that has none lets people sign in all the same, and the desk says that it is silent.
    return;
  }
  sound.onstatechange = showSound;
  sound.resume().then(showSound, showSound);
}

const isHeard = () => sound !== null && sound.state === "running";

export function showSound() {
  by("silent").hidden = isHeard();
}

/** Its buttons: sound on, and a try of it. */
export function setUpSound() {
  by("sound-on").onclick = () => { wake(); };
  by("sound-test").onclick = () => { wake(); sound?.resume().then(beep); };
}

export function ring(open) {
  document.title = open ? `${open} SOS · ${say("fieldagent console")}` : say("fieldagent console");
  if (!open) {
    clearInterval(ringing);
    ringing = null;
  } else if (ringing === null) {
    beep();
    ringing = setInterval(beep, 3000);
  }
}

function beep() {
  showSound();
  if (!isHeard()) return;
  const tone = sound.createOscillator();
  const volume = sound.createGain();
  volume.gain.value = 0.2;
  tone.frequency.value = 880;
  tone.connect(volume).connect(sound.destination);
  tone.start();
  tone.stop(sound.currentTime + 0.4);
  by("sound-test").dataset.beeps = String(Number(by("sound-test").dataset.beeps || 0) + 1);
}

// A notification reaches who looks at another window; the browser asks first whether it may.

export function notify(title, sos) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  let shown;
  try {
    shown = new Notification(title, {
      body: sos.item ? worded(said(sos.item.event)) : "", tag: `sos-${sos.id}`, requireInteraction: true,
    });
  } catch {
    // A telephone's lets service workers alone do that.
    return;
  }
  shown.onclick = () => { window.focus(); shown.close(); };
}

/** The button that asks for it is there until that is decided. */
export function offerNotifications() {
  const button = by("notify");
  const asks = () => "Notification" in window && Notification.permission === "default";
  button.hidden = !asks();
  button.onclick = async () => {
    await Notification.requestPermission();
    button.hidden = !asks();
  };
}

// Web push: the hub tells the browser's own service, and that wakes the service worker.

const WORKER = "/console/worker.js";
const canRing = () => me.mayAnswer && "serviceWorker" in navigator && "PushManager" in window;

const subscribed = async () => {
  const worker = await navigator.serviceWorker.register(WORKER);
  return [worker, await worker.pushManager.getSubscription()];
};

const keep = subscription => {
  const { endpoint, keys } = subscription.toJSON();
  return call("POST", "/console/push", { endpoint, p256dh: keys.p256dh, auth: keys.auth, language });
};

/** The button that lets this browser ring while its page is closed, or not any more. */
export async function offerRinging() {
  const button = by("push");
  button.hidden = true;
  if (!canRing()) return;
  const [worker, subscription] = await subscribed();
  // The hub may have been put back from a copy, or somebody else have signed in here.
  if (subscription) await keep(subscription);
  button.textContent = subscription ? say("Stop ringing when the page is closed") : say("Ring this phone or computer when the page is closed");
  button.onclick = () => (subscription ? stopRinging() : startRinging(worker)).then(offerRinging).catch(trouble);
  button.hidden = false;
}

async function startRinging(worker) {
  const { key } = await call("GET", "/console/push");
  await keep(await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
}

/** Also of who signs out: what comes is for them. */
export async function stopRinging() {
  if (!canRing()) return;
  const [, subscription] = await subscribed();
  if (!subscription) return;
  await call("DELETE", "/console/push", { endpoint: subscription.endpoint });
  await subscription.unsubscribe();
}
