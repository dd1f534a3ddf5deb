// Web push to a phone or computer without an open page: the hub calls the browser's push service,
// which wakes the service worker.

import { call, me, trouble } from "./hub.js";
import { language, say } from "./language.js";
import { by } from "./text.js";

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
export async function startSession() {
  const button = by("push");
  button.hidden = true;
  by("home-screen").hidden = !needsHomeScreen();
  if (!canRing()) return;
  const [worker, subscription] = await subscribed();
  // The hub may have been restored from a copy, or another user may have signed in here.
  if (subscription) await keep(subscription);
  button.textContent = subscription ? say("Stop ringing when the page is closed") : say("Ring this phone or computer when the page is closed");
  button.onclick = () => (subscription ? endSession() : startRinging(worker)).then(startSession).catch(trouble);
  button.hidden = false;
}

async function startRinging(worker) {
  const { key } = await call("GET", "/console/push");
  await keep(await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
}

/** Stops ringing in this browser, also at a sign-out: the messages are for that user. */
export async function endSession() {
  if (!canRing()) return;
  const [, subscription] = await subscribed();
  if (!subscription) return;
  await call("DELETE", "/console/push", { endpoint: subscription.endpoint });
  await subscription.unsubscribe();
}
