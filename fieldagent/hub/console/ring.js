// Alarms for a dispatcher about an SOS: the sound of an open page, and a notification above other
// windows.

import { counted, say, worded } from "./language.js";
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
