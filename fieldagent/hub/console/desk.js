// The SOS desk: one card for each incident that is not closed, the open ones first. A card is a
// thread of messages and positions from the kit, messages to it, notifications, and acts.

import { all, otherDispatchers, singly } from "./acts.js";
import { call, me, postOnce, trouble } from "./hub.js";
import { here } from "./place.js";
import { notify, ring } from "./ring.js";
import { say, spoken, unworded, worded } from "./language.js";
import { by, drawn, element, moment } from "./text.js";
import { cameAt, howFar, revokedSince, said, where } from "./words.js";

await spoken;

const known = new Map();
/** False before the first answer of the hub. Until then the page does not claim that an incident is
 * closed or missing. */
let isLoaded = false;
/** For each running request: the ids of incidents that changed meanwhile, by an event or an act
 * here. */
const loading = new Set();
/** Number of the last request, and of the request whose answer is shown. Answers to earlier
 * requests are dropped. */
let asked = 0, answered = 0;

/** Loads incidents in both states that are not closed. An incident that is missing in the answer
 * was closed by another person, and must stop ringing. */
export async function loadDesk() {
  const told = new Set(), question = ++asked;
  const listed = new Map();
  loading.add(told);
  try {
    // Canned words cost one or two bytes on the air. Only a user who may answer needs them.
    if (me.mayAnswer) canned = (await call("GET", "/api/sos/words")).fromDesk;
    for (const which of ["open", "seen"])
      for (const name of ["sos", "alarms"])
        for (const each of await all(`/api/${name}?state=${which}&limit=200`, name)) listed.set(each.id, each);
  } finally {
    loading.delete(told);
  }
  if (question < answered) return;
  answered = question;
  isLoaded = true;
  for (const id of known.keys()) if (!told.has(id) && !listed.has(id)) known.delete(id);
  for (const [id, sos] of listed) if (!told.has(id)) known.set(id, sos);
  showDesk();
  await showNamed();
}

/** True if the incident is open, or if its owner asks me to take it over. */
const rang = sos => sos.state === "open" || sos.askedToTakeOver?.id === me.id;

export function note(sos) {
  const rings = rang(sos) && !(known.has(sos.id) && rang(known.get(sos.id)));
  known.set(sos.id, sos);
  for (const told of loading) told.add(sos.id);
  showDesk();
  if (rings) notify(title(sos), sos);
  const list = by(`timeline-${sos.id}`);
  if (list && opened.has(sos.id)) showTimeline(sos.id, list).catch(trouble);
}

export function clearDesk() {
  known.clear();
  answered = ++asked;
  isLoaded = false;
  named = null;
  showDesk();
}

function showDesk() {
  const shown = [...known.values()].filter(each => each.state !== "closed");
  const rings = shown.filter(rang);
  const calls = rings.filter(each => each.kind === "sos").length;
  ring(calls, rings.length - calls);
  drawn("sos", () => draw(shown));
}

function draw(shown) {
  for (const id of cards.keys()) if (!shown.some(each => each.id === id)) cards.delete(id);
  shown.sort((a, b) => (b.state === "open") - (a.state === "open") || b.id - a.id);
  const nodes = shown.map(kept);
  const there = [...by("sos").children];
  // A node that moves loses the focus, and the person's typing would be lost.
  if (nodes.length !== there.length || nodes.some((node, index) => node !== there[index]))
    keepPlace(by("sos"), () => by("sos").replaceChildren(...nodes));
  by("calm").hidden = !isLoaded || shown.length > 0;
}

/** Draws the content of `list` again. A person who types in a field keeps the focus and the cursor
 * position. */
function keepPlace(list, draw) {
  const used = list.contains(document.activeElement) ? document.activeElement : null;
  const letters = used?.matches("input") ? [used.selectionStart, used.selectionEnd] : null;
  draw();
  const again = used?.id ? by(used.id) : null;
  again?.focus({ preventScroll: true });
  if (letters) again?.setSelectionRange(...letters);
}

// Unchanged cards stay as they are, because a person may be typing in one.
const cards = new Map();
const reasons = new Map();
const written = new Map();
const answers = new Map();
/** Possible new owners of an incident and the started request to one of them. */
const heirs = new Map();
let canned = [];
const opened = new Set();

function kept(sos) {
  const { event, timeline, ...now } = sos;
  const text = JSON.stringify([me.mayAnswer, canned.length, now]);
  if (cards.get(sos.id)?.text !== text) cards.set(sos.id, { text, card: alarm(sos) });
  return cards.get(sos.id).card;
}

const KINDS = { sos: "SOS", overdue: say("Overdue"), operator: say("Satellite operator"), watch: say("No one on watch"), fence: say("Fence") };
/** Returns the name of an SOS or alarm, such as "SOS 377" or "Fence 2". */
export const nameOf = sos => `${KINDS[sos.kind]} ${sos.short}`;

/** Returns the part of a path that names the kind of an incident: of its page, and of the API. */
export const pathOf = sos => `${sos.kind === "sos" ? "sos" : "alarm"}/${sos.id}`;
export const callOf = sos => `/api/${sos.kind === "sos" ? "sos" : "alarms"}/${sos.id}`;

/** Returns the title of an incident. An alarm that is not about a kit belongs to an arbitrary
 * device, which the title leaves out. */
const title = sos => nameOf(sos)
  + (sos.kind === "watch" ? "" : `: ${sos.item ? sos.item.sender.name : ""} (${sos.device.name})`);

/** Returns a card of a closed incident, with all details and without controls. */
export const closedCard = sos => element("article", {}, lines(sos), thread(sos), element("ol", {}, happenings(sos.timeline)));

/** Text, position and buttons come first, so that a dispatcher always sees them. */
const alarm = sos => element("li", { class: [sos.state, sos.calledOff && "off", sos.kind !== "sos" && "alarm"].filter(Boolean).join(" ") }, lines(sos),
  deeds(sos), me.mayAnswer ? answerForm(sos) : "", thread(sos), story(sos));

const thread = sos => element("ol", { class: "thread", "aria-label": say("Thread of {what}", { what: nameOf(sos) }) }, sos.thread.map(step));

/** Returns the first message of the kit, and the last one if it differs. */
function wordsOf(sos) {
  const items = [sos.item, ...sos.items].filter(Boolean);
  const words = items.filter(each => each.event.type !== "Location");
  const [first, last] = [words[0] ?? items[0], words.at(-1)];
  if (!first) return [element("p", {}, say("Its kit reports it as open, but its text has not arrived yet. Ask the kit."))];
  return [first, ...last && last.id !== first.id ? [last] : []].map(each => element("p", { class: "words" }, worded(said(each.event))));
}

function lines(sos) {
  const kit = element("a", { href: `/console/kit/${sos.device.id}`, "data-place": true }, say("conversation with {kit}", { kit: sos.device.name }));
  const shown = [
    element("strong", {}, element("a", { href: `/console/${pathOf(sos)}`, "data-place": true, id: sos.state === "closed" ? null : `sos-${sos.id}` }, say("{what}, since {time}", { what: title(sos), time: cameAt(sos.raised, sos.item?.event) }))),
    ...wordsOf(sos),
    element("p", {}, `${say("Last seen: {where}", { where: where(sos.position) })} · `, kit),
  ];
  if (sos.revoked) shown.push(element("p", { class: "revoked" },
    say("Kit revoked since {since}: a thief may have sent this, or a person in need. Nothing is sent to the kit.", { since: revokedSince(sos.revoked) })));
  if (sos.unauthenticated) shown.push(element("p", {}, say("Sender not verified.")));
  if (sos.calledOff)
    shown.push(element("p", {}, say("Called off from the kit, {time}. Ask the kit to confirm this, then close it.", { time: moment(sos.calledOff) })));
  if (sos.seen)
    shown.push(element("p", {}, say("Seen by {who}, {time}", { who: sos.seen.by.name, time: moment(sos.seen.at) })
      + (sos.askedToTakeOver ? say(", hand-over to {name} requested", { name: sos.askedToTakeOver.name }) : "")));
  return shown;
}

/** Returns a line of the thread: a message from the kit, a message to it with its state, or an act
 * of a person or the hub. */
function step({ at, event, by: who, detail, count, item, reached }) {
  if (!item) return happened({ at, event, by: who, detail }, count);
  const came = reached.map(each => [howFar(each.state, each.device), each.ended && moment(each.ended)].filter(Boolean).join(" "));
  return element("li", { class: event },
    element("span", { class: "quiet" }, `${cameAt(at, item.event)} ${item.sender.name}: `),
    worded(said(item.event)), item.revokedSince ? ` ${say("(kit revoked since {time})", { time: moment(item.revokedSince) })}` : item.unauthenticated ? ` ${say("(sender not verified)")}` : "",
    item.restored ? ` ${say("(brought back by a kit)")}` : "",
    came.length ? element("span", { class: "quiet" }, ` (${came.join(", ")})`) : "");
}

const inWords = (event, who, detail) =>
  [STEPS[event] || event, who && who.name, detail && `“${detail}”`].filter(Boolean).join(" ");

/** Returns the form for a message to the kit. The message appears in the thread. */
function answerForm(sos) {
  const whom = sos.item ? sos.item.sender.name : sos.device.name;
  const text = element("input", {
    id: `sos-words-${sos.id}`, "aria-label": say("Text to {whom}, about {id}", { whom, id: sos.short }), maxlength: "2000", placeholder: say("to {who}", { who: whom }), autocomplete: "off",
    oninput: () => answers.set(sos.id, text.value),
  });
  text.value = answers.get(sos.id) || "";
  const often = element("select", { id: `sos-often-${sos.id}`, "aria-label": say("Standard texts to {whom}, about {id}", { whom, id: sos.short }) },
    element("option", { value: "" }, say("standard texts …")), ...canned.map(words => element("option", { value: words }, worded(words))));
  often.onchange = () => {
    if (!often.value) return;
    answers.set(sos.id, text.value = worded(often.value));
    often.value = "";
    text.focus();
  };
  const send = async event => {
    event.preventDefault();
    const words = text.value.trim();
    if (!words) return text.focus();
    await answer(sos.id, "answer", { text: unworded(words) }, () => {
      // Text that was typed meanwhile belongs to the next message.
      if (answers.get(sos.id)?.trim() !== words) return;
      answers.delete(sos.id);
      cards.delete(sos.id);
    });
  };
  return element("form", { class: "deeds", onsubmit: send }, text, canned.length ? often : "", element("button", { id: `sos-write-${sos.id}` }, say("Write to {whom}", { whom })));
}

/** Returns the controls for the acts of a person. */
function deeds(sos) {
  const row = element("div", { class: "deeds" });
  if (me.mayAnswer) {
    const reason = element("input", {
      id: `sos-reason-${sos.id}`,
      "aria-label": say("Reason to close {id}", { id: sos.short }),
      placeholder: say("reason to close"),
      oninput: () => reasons.set(sos.id, reason.value),
    });
    reason.value = reasons.get(sos.id) || "";
    const close = () => reason.value ? answer(sos.id, "close", { reason: reason.value }) : reason.focus();
    if (sos.state === "open")
      row.append(element("button", { type: "button", onclick: () => answer(sos.id, "acknowledge") }, say("Acknowledge")));
    else if (sos.seen?.by.id !== me.id)
      row.append(element("button", { type: "button", onclick: () => answer(sos.id, "take-over") }, say("Take it over")));
    else row.append(element("button", { type: "button", id: `sos-hand-over-${sos.id}`, class: "plain", onclick: () => chooseHeir(sos.id).catch(trouble) }, say("Hand over")));
    row.append(reason, element("button", { type: "button", id: `sos-close-${sos.id}`, onclick: close }, say("Close")));
  }
  if (sos.seen?.by.id !== me.id) heirs.delete(sos.id);
  return heirs.has(sos.id) ? [row, heirForm(sos, heirs.get(sos.id))] : row;
}

/** Opens the choice of a new owner. A second press closes it. */
async function chooseHeir(id) {
  const others = heirs.delete(id) ? null : await otherDispatchers();
  cards.delete(id);
  if (!others) return showDesk();
  if (!others.length) return trouble(new Error(say("There is no other dispatcher. An administrator can add one.")));
  heirs.set(id, { others, to: others[0].id, note: "" });
  showDesk();
  by(`sos-heir-${id}`)?.focus();
}

/** Returns the form below the buttons. It stays until a new owner was asked. */
function heirForm({ id, short }, { others, to, note }) {
  const heir = element("select", { id: `sos-heir-${id}`, "aria-label": say("New dispatcher for {id}", { id: short }), onchange: () => { heirs.get(id).to = heir.value; } },
    others.map(each => element("option", { value: each.id, selected: each.id === to }, each.name)));
  const words = element("input", {
    id: `sos-heir-note-${id}`, "aria-label": say("Information for them about {id}", { id: short }), placeholder: say("information for them"), maxlength: "2000",
    oninput: () => { heirs.get(id).note = words.value; },
  });
  words.value = note;
  const ask = event => {
    event.preventDefault();
    answer(id, "hand-over", { to: heir.value, note: words.value }, () => { heirs.delete(id); cards.delete(id); });
  };
  return element("form", { class: "deeds", onsubmit: ask }, heir, words, element("button", { id: `sos-heir-ask-${id}` }, say("Request a hand-over")));
}

// Returns the timeline with notes of people. It loads when a person opens it.

function story(sos) {
  const list = element("ol", { id: `timeline-${sos.id}` });
  const toggled = () => {
    opened[whole.open ? "add" : "delete"](sos.id);
    if (whole.open) showTimeline(sos.id, list).catch(trouble);
  };
  const whole = element("details", { ontoggle: toggled }, element("summary", { id: `sos-story-${sos.id}` }, say("What happened")), list);
  whole.open = opened.has(sos.id);
  if (me.mayAnswer) whole.append(noteForm(sos));
  whole.append(element("button", { type: "button", onclick: () => print() }, say("Print")));
  return whole;
}

function noteForm(sos) {
  const text = element("input", {
    id: `sos-note-${sos.id}`,
    "aria-label": say("Note on {id}", { id: sos.short }),
    placeholder: say("add a note"),
    maxlength: "2000",
    oninput: () => written.set(sos.id, text.value),
  });
  text.value = written.get(sos.id) || "";
  const write = async event => {
    event.preventDefault();
    const words = text.value;
    if (!words.trim()) return text.focus();
    await answer(sos.id, "note", { text: words }, () => {
      // Text that was typed meanwhile belongs to the next note.
      if (written.get(sos.id) !== words) return;
      written.delete(sos.id);
      cards.delete(sos.id);
    });
  };
  return element("form", { class: "deeds", onsubmit: write }, text, element("button", { id: `sos-note-give-${sos.id}` }, say("Note")));
}

const STEPS = {
  raised: say("raised"), item: say("continued"), webhook: say("notified:"), escalated: say("escalated to"), "heard by": say("heard by the kit of"),
  notified: say("notified:"), "not notified": say("not notified:"), "nobody reached": say("no dispatcher could be reached"), answered: say("written to its kit by"),
  "answer on the kit": say("the text is on the kit of"),
  "seen at a kit": say("seen at the kit of"), heard: say("heard again"), "called off": say("called off by"), seen: say("seen by"), "taken over": say("taken over by"),
  "handed over": say("handed over by"), note: say("noted by"), closed: say("closed by"),
};

function happened({ at, event, by: who, detail }, count = 1) {
  const words = inWords(event, who, detail);
  return element("li", {}, element("span", { class: "quiet" }, `${moment(at)} `),
    count > 1 ? say("{step} (and {more} more)", { step: words, more: count - 1 }) : words);
}

/** Events that machines can cause in large numbers. More than FEW in a row are one line that
 * opens. */
const BY_MACHINES = new Set(["item", "heard by", "notified", "not notified", "webhook", "escalated", "heard", "answer on the kit"]);
const FEW = 3;

function happenings(timeline) {
  const runs = [];
  for (const each of timeline) {
    const run = runs.at(-1);
    if (run && BY_MACHINES.has(each.event) && run[0].event === each.event) run.push(each);
    else runs.push([each]);
  }
  return runs.flatMap(run => run.length > FEW ? [crowd(run)] : run.map(each => happened(each)));
}

const crowd = run => element("li", {}, element("details", {},
  element("summary", {}, ...happened(run.at(-1), run.length).childNodes), element("ol", {}, run.map(each => happened(each)))));

async function showTimeline(id, list) {
  const now = await call("GET", callOf(known.get(id)));
  drawn(list, () => list.replaceChildren(...happenings(now.timeline)));
}

/** Answers an incident. `done` is called before the card is drawn. */
async function answer(id, deed, body, done = () => {}) {
  const own = callOf(known.get(id)), path = `${own}/${deed}`;
  const told = new Set();
  loading.add(told);
  try {
    let now = await singly(path, () => postOnce(path, body || {}));
    if (!now) return;
    done();
    trouble();
    // An event that came meanwhile may be newer. A card that is closed by now must not come back.
    while (told.delete(id)) now = await call("GET", own).catch(() => known.get(id) ?? now);
    note(now);
  } catch (error) {
    if (error.incident) note(error.incident);
    trouble(error);
  } finally {
    loading.delete(told);
  }
}

/** Incidents of a device that are not closed. */
export const incidentsOf = device => [...known.values()].filter(each => each.device.id === device && each.state !== "closed");

/** Positions of each SOS that is not closed, in order, for the map. */
export const distressed = () => [...known.values()].filter(each => each.kind === "sos" && each.state !== "closed").map(each => ({
  id: each.id, device: each.device.id, title: title(each), off: each.calledOff !== null,
  trail: each.items.filter(({ event }) => event.type === "Location").map(({ event }) => [event.latitude, event.longitude]),
}));

let named = null;

/** Scrolls to the incident in the address, once. A closed incident is fetched first. */
export async function showNamed() {
  const { sos, alarm: warning } = here(), wanted = sos ?? warning;
  if (named === wanted || !isLoaded) return;
  named = wanted;
  by("named").replaceChildren();
  if (!wanted) return;
  const card = by(`sos-${wanted}`)?.closest("li");
  if (card) return card.scrollIntoView();
  const found = await call("GET", `/api/${sos ? "sos" : "alarms"}/${wanted}`).catch(error => {
    if (error.status === 404) return null;
    // The next load tries again.
    if (named === wanted) named = null;
    throw error;
  });
  if ((here().sos ?? here().alarm) !== wanted) return;
  by("named").replaceChildren(found ? closedCard(found) : element("p", { class: "fault" }, sos ? say("There is no SOS {id} here.", { id: sos }) : say("There is no alarm {id} here.", { id: warning })));
  by("named").scrollIntoView();
}
