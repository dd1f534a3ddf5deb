// The SOS desk: one card for each incident that is not closed, the open ones first. A card is a
// thread: words and positions of its kit, words to it, who was told, what was done.

import { all, otherDispatchers, singly } from "./acts.js";
import { call, me, postOnce, trouble } from "./hub.js";
import { here } from "./place.js";
import { notify, ring } from "./ring.js";
import { say, spoken, unworded, worded } from "./language.js";
import { by, drawn, element, moment } from "./text.js";
import { cameAt, howFar, revokedSince, said, where } from "./words.js";

await spoken;

const known = new Map();
/** Nothing is said to be closed, or not there, before the hub has said so. */
let isLoaded = false;
/** For each list of all, or answer, that is on its way, of which something was told, or done here, meanwhile. */
const loading = new Set();
/** Counts the questions for all, and of which of them the answer is shown: none before it is any more. */
let asked = 0, answered = 0;

/** Both states that are not closed, from the hub. What it names no more was closed meanwhile, by
 * somebody else: it must not ring on. */
export async function loadDesk() {
  const told = new Set(), question = ++asked;
  const listed = new Map();
  loading.add(told);
  try {
    // What costs one or two bytes on the air; whoever may not answer needs none.
    if (me.mayAnswer) canned = (await call("GET", "/api/sos/words")).fromDesk;
    for (const which of ["open", "seen"])
      for (const each of await all(`/api/sos?state=${which}&limit=200`, "sos")) listed.set(each.id, each);
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

/** Nobody has it, or who has it asks me to take it. */
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
  ring(shown.filter(rang).length);
  drawn("sos", () => draw(shown));
}

function draw(shown) {
  for (const id of cards.keys()) if (!shown.some(each => each.id === id)) cards.delete(id);
  shown.sort((a, b) => (b.state === "open") - (a.state === "open") || b.id - a.id);
  const nodes = shown.map(kept);
  const there = [...by("sos").children];
  // Who is moved loses the focus, and what they type goes nowhere.
  if (nodes.length !== there.length || nodes.some((node, index) => node !== there[index]))
    keepPlace(by("sos"), () => by("sos").replaceChildren(...nodes));
  by("calm").hidden = !isLoaded || shown.length > 0;
}

/** Draws what is in `list` anew; whoever is in one of its fields goes on there, at the same letter. */
function keepPlace(list, draw) {
  const used = list.contains(document.activeElement) ? document.activeElement : null;
  const letters = used?.matches("input") ? [used.selectionStart, used.selectionEnd] : null;
  draw();
  const again = used?.id ? by(used.id) : null;
  again?.focus({ preventScroll: true });
  if (letters) again?.setSelectionRange(...letters);
}

// What has not changed stays as it is: somebody may be writing in it.
const cards = new Map();
const reasons = new Map();
const written = new Map();
const answers = new Map();
/** Who may take an incident, and what is filled in to ask one of them, as long as somebody is at it. */
const heirs = new Map();
let canned = [];
const opened = new Set();

function kept(sos) {
  const { event, timeline, ...now } = sos;
  const text = JSON.stringify([me.mayAnswer, canned.length, now]);
  if (cards.get(sos.id)?.text !== text) cards.set(sos.id, { text, card: alarm(sos) });
  return cards.get(sos.id).card;
}

const KINDS = { sos: "SOS", overdue: say("Overdue"), operator: say("Satellite operator"), watch: say("Nobody on watch"), fence: say("Fence") };
/** What is about no one kit names the first, of which no person needs to know. */
const title = sos => `${KINDS[sos.kind]} ${sos.id}`
  + (sos.kind === "watch" ? "" : `: ${sos.item ? sos.item.sender.name : ""} (${sos.device.name})`);

/** All that is known of one, with nothing to press: of one that is closed. */
export const closedCard = sos => element("article", {}, lines(sos), thread(sos), element("ol", {}, happenings(sos.timeline)));

/** Text, position and buttons come first: whatever happens, they stay where a dispatcher sees them. */
const alarm = sos => element("li", { class: sos.calledOff ? `${sos.state} off` : sos.state }, lines(sos),
  deeds(sos), me.mayAnswer ? answerForm(sos) : "", thread(sos), story(sos));

const thread = sos => element("ol", { class: "thread", "aria-label": say("Thread of SOS {id}", { id: sos.id }) }, sos.thread.map(step));

/** What its kit said first in words, and last where that is something else. */
function wordsOf(sos) {
  const items = [sos.item, ...sos.items].filter(Boolean);
  const words = items.filter(each => each.event.type !== "Location");
  const [first, last] = [words[0] ?? items[0], words.at(-1)];
  if (!first) return [element("p", {}, say("Its kit names it as open; nothing that it said is here yet. Ask it."))];
  return [first, ...last && last.id !== first.id ? [last] : []].map(each => element("p", { class: "words" }, worded(said(each.event))));
}

function lines(sos) {
  const kit = element("a", { href: `/console/kit/${sos.device.id}`, "data-place": true }, say("conversation with {kit}", { kit: sos.device.name }));
  const shown = [
    element("strong", {}, element("a", { href: `/console/sos/${sos.id}`, "data-place": true, id: sos.state === "closed" ? null : `sos-${sos.id}` }, say("{what}, since {time}", { what: title(sos), time: cameAt(sos.raised, sos.item?.event) }))),
    ...wordsOf(sos),
    element("p", {}, `${say("Last seen: {where}", { where: where(sos.position) })} · `, kit),
  ];
  if (sos.revoked) shown.push(element("p", { class: "revoked" },
    say("Kit revoked since {since}: this may be a thief's, or somebody's in need. Nothing goes to the kit.", { since: revokedSince(sos.revoked) })));
  if (sos.unauthenticated) shown.push(element("p", {}, say("Sender not verified.")));
  if (sos.calledOff)
    shown.push(element("p", {}, say("Called off from the kit, {time}. Ask whether it is so, then close it.", { time: moment(sos.calledOff) })));
  if (sos.seen)
    shown.push(element("p", {}, say("Seen by {who}, {time}", { who: sos.seen.by.name, time: moment(sos.seen.at) })
      + (sos.askedToTakeOver ? say(", who asks {name} to take it over", { name: sos.askedToTakeOver.name }) : "")));
  return shown;
}

/** Words of its kit, words to it with how far they have come, and what people and the hub did. */
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

/** Words down to its kit, which stand in the thread. */
function answerForm(sos) {
  const whom = sos.item ? sos.item.sender.name : sos.device.name;
  const text = element("input", {
    id: `sos-words-${sos.id}`, "aria-label": say("Words to {whom}, about {id}", { whom, id: sos.id }), maxlength: "2000", placeholder: say("to {who}", { who: whom }), autocomplete: "off",
    oninput: () => answers.set(sos.id, text.value),
  });
  text.value = answers.get(sos.id) || "";
  const often = element("select", { id: `sos-often-${sos.id}`, "aria-label": say("Often said to {whom}, about {id}", { whom, id: sos.id }) },
    element("option", { value: "" }, say("often said …")), ...canned.map(words => element("option", { value: words }, worded(words))));
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
      // What was typed meanwhile is the next one.
      if (answers.get(sos.id)?.trim() !== words) return;
      answers.delete(sos.id);
      cards.delete(sos.id);
    });
  };
  return element("form", { class: "deeds", onsubmit: send }, text, canned.length ? often : "", element("button", { id: `sos-write-${sos.id}` }, say("Write to {whom}", { whom })));
}

/** What a person can do about it. */
function deeds(sos) {
  const row = element("div", { class: "deeds" });
  if (me.mayAnswer) {
    const reason = element("input", {
      id: `sos-reason-${sos.id}`,
      "aria-label": say("Reason to close {id}", { id: sos.id }),
      placeholder: say("reason to close"),
      oninput: () => reasons.set(sos.id, reason.value),
    });
    reason.value = reasons.get(sos.id) || "";
    const close = () => reason.value ? answer(sos.id, "close", { reason: reason.value }) : reason.focus();
    if (sos.state === "open")
      row.append(element("button", { type: "button", onclick: () => answer(sos.id, "acknowledge") }, say("Acknowledge")));
    else if (sos.seen?.by.id !== me.id)
      row.append(element("button", { type: "button", onclick: () => answer(sos.id, "take-over") }, say("Take it over")));
    else row.append(element("button", { type: "button", id: `sos-hand-over-${sos.id}`, class: "plain", onclick: () => chooseHeir(sos.id).catch(trouble) }, say("Hand it over")));
    row.append(reason, element("button", { type: "button", id: `sos-close-${sos.id}`, onclick: close }, say("Close")));
  }
  if (sos.seen?.by.id !== me.id) heirs.delete(sos.id);
  return heirs.has(sos.id) ? [row, heirForm(sos.id, heirs.get(sos.id))] : row;
}

/** A second press puts it away. */
async function chooseHeir(id) {
  const others = heirs.delete(id) ? null : await otherDispatchers();
  cards.delete(id);
  if (!others) return showDesk();
  if (!others.length) return trouble(new Error(say("There is no other dispatcher: an administrator makes somebody one.")));
  heirs.set(id, { others, to: others[0].id, note: "" });
  showDesk();
  by(`sos-heir-${id}`)?.focus();
}

/** Below the buttons, until somebody was asked. */
function heirForm(id, { others, to, note }) {
  const heir = element("select", { id: `sos-heir-${id}`, "aria-label": say("Who is to take {id}", { id }), onchange: () => { heirs.get(id).to = heir.value; } },
    others.map(each => element("option", { value: each.id, selected: each.id === to }, each.name)));
  const words = element("input", {
    id: `sos-heir-note-${id}`, "aria-label": say("What they must know of {id}", { id }), placeholder: say("what they must know"), maxlength: "2000",
    oninput: () => { heirs.get(id).note = words.value; },
  });
  words.value = note;
  const ask = event => {
    event.preventDefault();
    answer(id, "hand-over", { to: heir.value, note: words.value }, () => { heirs.delete(id); cards.delete(id); });
  };
  return element("form", { class: "deeds", onsubmit: ask }, heir, words, element("button", { id: `sos-heir-ask-${id}` }, say("Ask them to take it")));
}

// What happened, step by step, and what people write down; looked at when somebody opens it.

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
    "aria-label": say("Note on {id}", { id: sos.id }),
    placeholder: say("write down what happens"),
    maxlength: "2000",
    oninput: () => written.set(sos.id, text.value),
  });
  text.value = written.get(sos.id) || "";
  const write = async event => {
    event.preventDefault();
    const words = text.value;
    if (!words.trim()) return text.focus();
    await answer(sos.id, "note", { text: words }, () => {
      // What was typed meanwhile is the next one.
      if (written.get(sos.id) !== words) return;
      written.delete(sos.id);
      cards.delete(sos.id);
    });
  };
  return element("form", { class: "deeds", onsubmit: write }, text, element("button", { id: `sos-note-give-${sos.id}` }, say("Note")));
}

const STEPS = {
  raised: say("raised"), item: say("went on"), webhook: say("told to"), escalated: say("escalated to"), "heard by": say("heard by the kit of"),
  told: say("told to"), "not told": say("not told to"), "nobody reached": say("no dispatcher could be reached"), answered: say("written to its kit by"),
  "answer on the kit": say("the words are on the kit of"),
  "seen at a kit": say("seen at the kit of"), heard: say("heard of again"), "called off": say("called off by"), seen: say("seen by"), "taken over": say("taken over by"),
  "handed over": say("handed over by"), note: say("noted by"), closed: say("closed by"),
};

function happened({ at, event, by: who, detail }, count = 1) {
  const words = inWords(event, who, detail);
  return element("li", {}, element("span", { class: "quiet" }, `${moment(at)} `),
    count > 1 ? say("{step} (and {more} more)", { step: words, more: count - 1 }) : words);
}

/** What machines do in any number: more than a few in a row are one line, which opens. */
const BY_MACHINES = new Set(["item", "heard by", "told", "not told", "webhook", "escalated", "heard", "answer on the kit"]);
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
  const now = await call("GET", `/api/sos/${id}`);
  drawn(list, () => list.replaceChildren(...happenings(now.timeline)));
}

/** `done` is called before it is drawn. */
async function answer(id, deed, body, done = () => {}) {
  const path = `/api/sos/${id}/${deed}`;
  const told = new Set();
  loading.add(told);
  try {
    let now = await singly(path, () => postOnce(path, body || {}));
    if (!now) return;
    done();
    trouble();
    // What was told meanwhile may be newer: a card that is closed by now is not put back.
    while (told.delete(id)) now = await call("GET", `/api/sos/${id}`).catch(() => known.get(id) ?? now);
    note(now);
  } catch (error) {
    if (error.sos) note(error.sos);
    trouble(error);
  } finally {
    loading.delete(told);
  }
}

/** Those of a device that are not closed. */
export const incidentsOf = device => [...known.values()].filter(each => each.device.id === device && each.state !== "closed");

/** Who is in distress, for the map: where each incident that is not closed was, in its order. */
export const distressed = () => [...known.values()].filter(each => each.state !== "closed").map(each => ({
  id: each.id, device: each.device.id, title: title(each), off: each.calledOff !== null,
  trail: each.items.filter(({ event }) => event.type === "Location").map(({ event }) => [event.latitude, event.longitude]),
}));

let named = null;

/** Goes to the card of the SOS that the address names, once; one that is closed is fetched. */
export async function showNamed() {
  const { sos } = here();
  if (named === sos || !isLoaded) return;
  named = sos;
  by("named").replaceChildren();
  if (!sos) return;
  const card = by(`sos-${sos}`)?.closest("li");
  if (card) return card.scrollIntoView();
  const found = await call("GET", `/api/sos/${sos}`).catch(error => {
    if (error.status === 404) return null;
    // It is gone to at the next look.
    if (named === sos) named = null;
    throw error;
  });
  if (here().sos !== sos) return;
  by("named").replaceChildren(found ? closedCard(found) : element("p", { class: "fault" }, say("There is no SOS {id} here.", { id: sos })));
  by("named").scrollIntoView();
}
