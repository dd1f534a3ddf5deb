// The conversation, of all or with the kit that is looked at: what was sent and pushed, the newest
// first, with what became of each. Positions that follow each other are one line.

import { call, me, trouble } from "./hub.js";
import { pictureOf } from "./picture.js";
import { here } from "./place.js";
import { counted, say, term, worded } from "./language.js";
import { by, drawn, element, moment, plain, stageInWords } from "./text.js";
import { cameAt, howFar, said } from "./words.js";

const LOOK = 5000;
/** So many more may come before the oldest are shown no more, and so many go then: a console is open
 * for weeks. */
const MORE = 500, GO = 100;

let items = [];
let older = null;
/** Of which kit they are, what is searched for, which no letters that are still typed are, and
 * whether the hub has said what there is. */
let shown = null, searched = "", isThere = false;
/** Counts the questions for the newest, and of which of them the answer is shown: none before it is
 * any more. */
let asked = 0, answered = 0;
let most = MORE;
/** Items that came while the list was on its way. */
const loading = new Set();
const lines = new Map(), runs = new Map();
/** Of items to the kit that is looked at, how far they have come, in words. */
let standings = new Map();

function line(item) {
  const list = element("ul");
  let looking = 0;
  const far = element("p", { class: "quiet" });
  const look = () => showDeliveries(item.id, list).then(({ reached }) => tellFar(far, item, reached)).catch(trouble);
  const toggled = () => {
    clearInterval(looking);
    if (whole.open) {
      look();
      looking = setInterval(() => whole.isConnected ? look() : clearInterval(looking), LOOK);
    }
  };
  const whole = element("details", { ontoggle: toggled }, element("summary", {},
    element("span", { class: "quiet" }, `${cameAt(item.accepted, item.event)} ${item.sender.name}: `),
    item.sos ? element("strong", {}, "SOS ") : "", item.sos ? worded(said(item.event)) : said(item.event),
    item.restored ? element("span", { class: "quiet" }, ` ${say("(brought back by a kit)")}`) : ""),
    item.event.payload ? pictureOf(item.event.payload) : null, list);
  item.tell = () => tellFar(far, item, item.reached);
  item.tell();
  return element("li", { class: [item.device ? "in" : "out", item.sos && "sos"].filter(Boolean).join(" ") }, whole, far, asksMe(item) ? read(item) : null);
}

/** For whom it is, and how far it has come beyond the disks of kits, which the deliveries tell. */
function tellFar(place, item, reached) {
  const told = [
    item.to && say("to {who}", { who: item.to.name }), standings.get(item.id),
    ...reached.filter(step => step.stage !== "stored").map(stageInWords),
  ].filter(Boolean).join(" · ");
  place.textContent = plain(told);
  place.hidden = !told;
}

const asksMe = item => item.receipt === "read" && item.sender.id !== me.id
  && !item.reached.some(step => step.stage === "read" && step.who === me.name);

/** Its sender wants to know when a person has read it: only a person's own press says so. */
function read(item) {
  const button = element("button", { type: "button" }, say("I have read it"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      item.reached = (await call("POST", `/api/items/${item.id}/read`)).reached;
      lines.delete(item.id);
      draw();
    } catch (error) {
      trouble(error);
      button.disabled = false;
    }
  });
  return button;
}

/** How far an item has come with a kit, in words. */
const delivered = (each, name) => [howFar(each.state, name), each.over && say("over {bearer}", { bearer: term(each.over) }),
  each.ended && say("at {time}", { time: moment(each.ended) }), each.reason && `(${each.reason})`].filter(Boolean).join(" ");

async function showDeliveries(id, list) {
  const item = await call("GET", `/api/items/${id}`);
  const { devices, webhooks } = item;
  const steps = [
    ...devices.map(each => delivered(each, each.name)),
    ...webhooks.map(each => [say("webhook"), each.url, term(each.state), each.reason && `(${each.reason})`].filter(Boolean).join(" ")),
  ].map(words => element("li", {}, words));
  list.replaceChildren(...steps.length ? steps : [element("li", {}, say("It is for nobody's device, and no webhook."))]);
  return item;
}

const isPosition = item => item.event.type === "Location" && !item.sos;

/** Items in runs: positions of one sender that follow each other, and all else alone. */
function inRuns() {
  const found = [];
  for (const item of items) {
    const run = found.at(-1);
    if (run && isPosition(item) && isPosition(run[0]) && run[0].sender.id === item.sender.id) run.push(item);
    else found.push([item]);
  }
  return found;
}

function lineOf(item) {
  if (!lines.has(item.id)) lines.set(item.id, line(item));
  return lines.get(item.id);
}

/** Named by its oldest item: what comes is added to it, and it stays open. */
function run(those) {
  if (those.length === 1) return lineOf(those[0]);
  const key = those.at(-1).id;
  if (!runs.has(key)) runs.set(key, element("li", { class: "in" }, element("details", {}, element("summary", {}), element("ol", {}))));
  const whole = runs.get(key);
  const [newest, oldest] = [those[0], those.at(-1)];
  whole.querySelector("summary").replaceChildren(
    element("span", { class: "quiet" }, `${cameAt(newest.accepted, newest.event)} ${newest.sender.name}: `),
    counted(those.length, "{n} position since {time}, the last {where}", "{n} positions since {time}, the last {where}",
      { time: moment(oldest.accepted), where: said(newest.event) }));
  whole.querySelector("ol").replaceChildren(...those.map(lineOf));
  return whole;
}

function draw() {
  drawn("items", () => {
    const found = inRuns(), nodes = found.map(run), there = [...by("items").children];
    const named = new Set(found.map(those => those.at(-1).id));
    for (const key of runs.keys()) if (!named.has(key)) runs.delete(key);
    // Who is moved loses the focus.
    if (nodes.length !== there.length || nodes.some((node, index) => node !== there[index])) by("items").replaceChildren(...nodes);
    by("older").hidden = !older;
    by("items-none").hidden = !isThere || nodes.length > 0;
  });
}

/** Asks how far what was sent to the kit has come: of the newest 200. */
export async function lookHowFar() {
  const kit = nameOf(here().kit);
  if (!kit) return standings.clear();
  const { deliveries } = await call("GET", `/api/deliveries?device=${kit.id}&limit=200`);
  if (here().kit !== kit.id) return;
  standings = new Map(deliveries.map(each => [each.item, delivered(each, kit.name)]));
  for (const item of items) item.tell?.();
}

/** Asks who has what the newest say: that somebody has read an item is no event of the stream. */
export async function lookWhoHas() {
  const kit = here().kit, text = searched, before = new Map(items.map(each => [each.id, each.reached]));
  const told = await call("GET", newest(kit, text));
  if (kit !== here().kit || text !== searched) return;
  const reached = new Map(told.items.map(each => [each.id, each.reached]));
  // Who has said meanwhile that they have read it is not asked again.
  for (const item of items.filter(each => reached.has(each.id) && each.reached === before.get(each.id))) {
    const asked = asksMe(item);
    item.reached = reached.get(item.id);
    if (asked === asksMe(item)) item.tell?.();
    else lines.delete(item.id);
  }
  draw();
}

const newest = (kit, text) => `/api/items?limit=50&text=${encodeURIComponent(text)}${kit ? `&device=${kit}` : ""}`;

async function look(more) {
  const kit = here().kit, text = searched, came = new Set(), question = more ? answered : ++asked;
  loading.add(came);
  const told = await call("GET", more || newest(kit, text))
    .finally(() => loading.delete(came));
  if (!more) lookHowFar().catch(trouble);
  // Meanwhile another may have been chosen, or something else searched for, or the same be shown anew.
  if (kit !== here().kit || text !== searched || question < answered) return;
  answered = question;
  isThere = true;
  older = told.next;
  const before = more ? items : [...came].filter(belongs);
  const has = new Set(before.map(each => each.id));
  items = [...before, ...told.items.filter(each => !has.has(each.id))];
  most = items.length + MORE;
  if (!more) {
    lines.clear();
    runs.clear();
  }
  draw();
}

export const loadTalk = () => look();

/** The conversation of another kit, or of all again: what stands there is none of it. */
export function lookAtTalk() {
  if (shown === here().kit) return;
  shown = here().kit;
  answered = ++asked;
  items = [];
  older = null;
  by("search").value = searched = "";
  isThere = false;
  draw();
  return look();
}

let nameOf = () => null;

/** Whether it is shown now: it is of the kit that is looked at, or for its user or everybody. */
function belongs(item) {
  if (searched) return false;
  const kit = nameOf(here().kit);
  if (!here().kit) return true;
  if (!kit) return false;
  return item.device === kit.name || (item.targetUserId ? item.targetUserId === kit.user.id : !item.device && !item.to);
}

export function came(item) {
  for (const each of loading) each.add(item);
  if (!belongs(item) || items.some(each => each.id === item.id)) return;
  items.unshift(item);
  if (items.length > most) {
    for (const each of items.splice(most - GO)) lines.delete(each.id);
    older = `${newest(here().kit, searched)}&before=${items.at(-1).id}`;
  }
  draw();
}

/** `kitOf` returns a kit by its number. */
export function setUpTalk(kitOf) {
  nameOf = kitOf;
  shown = here().kit;
  by("search").addEventListener("change", () => {
    searched = by("search").value;
    look().catch(trouble);
  });
  by("older").addEventListener("click", () => look(older).catch(trouble));
}
