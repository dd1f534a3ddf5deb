// The SOS desk: every SOS that is not closed, the open ones first, ringing until somebody answers.

import { call, me, trouble } from "./hub.js";
import { by, clock, element } from "./text.js";
import { cameAt, said, where } from "./words.js";
import { writeTo } from "./write.js";

const known = new Map();

/** Both states that are not closed, from the hub. */
export async function loadDesk() {
  for (const which of ["open", "acknowledged"]) {
    const { sos } = await call("GET", `/api/sos?state=${which}&limit=200`);
    for (const each of sos) known.set(each.id, each);
  }
  showDesk();
}

export function note(sos) {
  const rings = sos.state === "open" && known.get(sos.id)?.state !== "open";
  known.set(sos.id, sos);
  if (rings) notify(sos);
  showDesk();
  const list = by(`timeline-${sos.id}`);
  if (list && opened.has(sos.id)) showTimeline(sos.id, list).catch(trouble);
}

export function clearDesk() {
  known.clear();
  showDesk();
}

function showDesk() {
  const shown = [...known.values()].filter(each => each.state !== "closed");
  shown.sort((a, b) => (b.state === "open") - (a.state === "open") || b.id - a.id);
  const nodes = shown.map(kept);
  const there = [...by("sos").children];
  // Who is moved loses the focus.
  if (nodes.length !== there.length || nodes.some((node, index) => node !== there[index]))
    by("sos").replaceChildren(...nodes);
  by("calm").hidden = shown.length > 0;
  ring(shown.filter(each => each.state === "open").length);
}

// What has not changed stays as it is: somebody may be writing in it.
const cards = new Map();
const reasons = new Map();
const written = new Map();
const opened = new Set();

function kept(sos) {
  const { event, timeline, ...now } = sos;
  const text = JSON.stringify([me.mayAnswer, now]);
  if (cards.get(sos.id)?.text !== text) cards.set(sos.id, { text, card: alarm(sos) });
  return cards.get(sos.id).card;
}

const title = sos => `${sos.kind === "overdue" ? "Overdue" : "SOS"} ${sos.id}:`
  + ` ${sos.item ? sos.item.sender.name : ""} (${sos.device.name})`;

function alarm(sos) {
  const lines = [
    element("strong", {}, `${title(sos)}, since ${cameAt(sos.raised, sos.item?.event)}`),
    element("p", {}, sos.item ? said(sos.item.event) : ""),
    element("p", {}, `Last seen: ${where(sos.position)}`),
  ];
  if (sos.item && sos.item.unauthenticated) lines.push(element("p", {}, "Nobody has proved that it is theirs."));
  if (sos.calledOff)
    lines.push(element("p", {}, `Called off from the kit, ${clock(sos.calledOff)} UTC. Ask whether it is so, then close it.`));
  if (sos.acknowledged)
    lines.push(element("p", {}, `${sos.acknowledged.by.name} has it since ${clock(sos.acknowledged.at)} UTC`));
  return element("li", { class: sos.state }, lines, deeds(sos), story(sos));
}

/** What a person can do about it. */
function deeds(sos) {
  const row = element("div", { class: "deeds" });
  if (me.mayAnswer) {
    const reason = element("input", {
      "aria-label": `Reason to close ${sos.id}`,
      placeholder: "reason to close",
      oninput: () => reasons.set(sos.id, reason.value),
    });
    reason.value = reasons.get(sos.id) || "";
    const close = () => reason.value ? answer(sos.id, "close", { reason: reason.value }) : reason.focus();
    if (sos.state === "open")
      row.append(element("button", { type: "button", onclick: () => answer(sos.id, "acknowledge") }, "Acknowledge"));
    row.append(reason, element("button", { type: "button", onclick: close }, "Close"));
  }
  if (me.mayPush && sos.item)
    row.append(element("button", { type: "button", onclick: () => writeTo(sos.item.sender.id) },
      `Write to ${sos.item.sender.name}`));
  return row;
}

// What happened, step by step, and what people write down; looked at when somebody opens it.

function story(sos) {
  const list = element("ol", { id: `timeline-${sos.id}` });
  const toggled = () => {
    opened[whole.open ? "add" : "delete"](sos.id);
    if (whole.open) showTimeline(sos.id, list).catch(trouble);
  };
  const whole = element("details", { ontoggle: toggled }, element("summary", {}, "What happened"), list);
  whole.open = opened.has(sos.id);
  if (me.mayAnswer) whole.append(noteForm(sos, list));
  whole.append(element("button", { type: "button", onclick: () => print() }, "Print"));
  return whole;
}

function noteForm(sos, list) {
  const text = element("input", {
    "aria-label": `Note on ${sos.id}`,
    placeholder: "write down what happens",
    maxlength: "2000",
    oninput: () => written.set(sos.id, text.value),
  });
  text.value = written.get(sos.id) || "";
  const write = async event => {
    event.preventDefault();
    if (!text.value.trim()) return text.focus();
    try {
      const now = await call("POST", `/api/sos/${sos.id}/note`, { text: text.value });
      written.delete(sos.id);
      text.value = "";
      list.replaceChildren(...now.timeline.map(step));
      trouble();
    } catch (error) {
      trouble(error);
    }
  };
  return element("form", { class: "deeds", onsubmit: write }, text, element("button", {}, "Note"));
}

const STEPS = {
  raised: "raised", webhook: "taken by the webhook", agent: "stored by the agent of",
  heard: "heard of again", "called off": "called off by", acknowledged: "acknowledged by", note: "noted by", closed: "closed by",
};

const step = ({ at, event, by: who, detail }) => element("li", {},
  element("span", { class: "quiet" }, `${clock(at)} UTC `),
  [STEPS[event] || event, who && who.name, detail && `“${detail}”`].filter(Boolean).join(" "));

async function showTimeline(id, list) {
  const now = await call("GET", `/api/sos/${id}`);
  list.replaceChildren(...now.timeline.map(step));
}

async function answer(id, deed, body) {
  try {
    note(await call("POST", `/api/sos/${id}/${deed}`, body || {}));
    trouble();
  } catch (error) {
    if (error.sos) note(error.sos);
    trouble(error);
  }
}

// Sound begins with the click by which somebody signed in, or any later one.
let sound = null;
let ringing = null;

export function wake() {
  sound ||= new AudioContext();
  sound.resume();
}

function ring(open) {
  document.title = open ? `${open} SOS · fieldagent console` : "fieldagent console";
  if (!open) {
    clearInterval(ringing);
    ringing = null;
  } else if (ringing === null) {
    beep();
    ringing = setInterval(beep, 3000);
  }
}

function beep() {
  if (!sound || sound.state !== "running") return;
  const tone = sound.createOscillator();
  const volume = sound.createGain();
  volume.gain.value = 0.2;
  tone.frequency.value = 880;
  tone.connect(volume).connect(sound.destination);
  tone.start();
  tone.stop(sound.currentTime + 0.4);
}

// A notification reaches who looks at another window; the browser asks first whether it may.

function notify(sos) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const shown = new Notification(title(sos), {
    body: sos.item ? said(sos.item.event) : "", tag: `sos-${sos.id}`, requireInteraction: true,
  });
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
