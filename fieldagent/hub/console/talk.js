// The conversation with all kits or with the selected one: sent and pushed items, the newest first,
// with their state. Consecutive positions are one line.

import { call, me, trouble } from "./hub.js";
import { pictureOf } from "./picture.js";
import { here } from "./place.js";
import { counted, say, term, worded } from "./language.js";
import { by, drawn, element, moment, plain, stageInWords } from "./text.js";
import { cameAt, howFar, said } from "./words.js";

const LOOK = 5000;
/** MORE: number of additional items after which the oldest GO items disappear. A console stays open
 * for weeks. */
const MORE = 500, GO = 100;

let items = [];
let older = null;
/** `shown` is the selected kit, `searched` the search text after its input has ended, and `isThere`
 * is true after the hub's first answer. */
let shown = null, searched = "", isThere = false;
/** Number of the last request for the newest items, and of the request whose answer is shown.
 * Answers to earlier requests are dropped. */
let asked = 0, answered = 0;
let most = MORE;
/** Items that came while a list was loading. */
const loading = new Set();
const lines = new Map(), runs = new Map();
/** State of each item to the selected kit, as text. */
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
    item.sos ? element("strong", {}, "SOS ") : item.alarm ? element("strong", {}, `${say("Alarm")} `) : "", item.sos || item.alarm ? worded(said(item.event)) : said(item.event),
    item.restored ? element("span", { class: "quiet" }, ` ${say("(brought back by a kit)")}`) : ""),
    item.event.payload ? pictureOf(item.event.payload) : null, list);
  item.tell = () => tellFar(far, item, item.reached);
  item.tell();
  return element("li", { class: [item.device ? "in" : "out", item.sos && "sos", item.alarm && "alarm"].filter(Boolean).join(" ") }, whole, far, asksMe(item) ? read(item) : null);
}

/** Shows the addressee, and the stages beyond the kits' disks. The deliveries show the earlier
 * ones. */
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

/** Returns the button for the read confirmation that the sender asked for. Only a person may press
 * it. */
function read(item) {
  const button = element("button", { type: "button" }, say("Mark as read"));
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

/** Returns the state of an item at a kit, as text. */
const delivered = (each, name) => [howFar(each.state, name), each.over && say("over {bearer}", { bearer: term(each.over) }),
  each.ended && say("at {time}", { time: moment(each.ended) }), each.reason && `(${each.reason})`].filter(Boolean).join(" ");

async function showDeliveries(id, list) {
  const item = await call("GET", `/api/items/${id}`);
  const { devices, webhooks } = item;
  const steps = [
    ...devices.map(each => delivered(each, each.name)),
    ...webhooks.map(each => [say("webhook"), each.url, term(each.state), each.reason && `(${each.reason})`].filter(Boolean).join(" ")),
  ].map(words => element("li", {}, words));
  list.replaceChildren(...steps.length ? steps : [element("li", {}, say("The message reaches no device and no webhook."))]);
  return item;
}

const isPosition = item => item.event.type === "Location" && !item.sos;

/** Groups the items: consecutive positions of one sender together, and each other item alone. */
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

/** Returns a run of positions. Its key is the oldest item, so it grows and stays open when new ones
 * come. */
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
    // A node that moves loses the focus.
    if (nodes.length !== there.length || nodes.some((node, index) => node !== there[index])) by("items").replaceChildren(...nodes);
    by("older").hidden = !older;
    by("items-none").hidden = !isThere || nodes.length > 0;
  });
}

/** Loads the states of the newest 200 items for the selected kit. */
export async function lookHowFar() {
  const kit = nameOf(here().kit);
  if (!kit) return standings.clear();
  const { deliveries } = await call("GET", `/api/deliveries?device=${kit.id}&limit=200`);
  if (here().kit !== kit.id) return;
  standings = new Map(deliveries.map(each => [each.item, delivered(each, kit.name)]));
  for (const item of items) item.tell?.();
}

/** Loads the stages of the newest items, because the stream has no event when a person reads an
 * item. */
export async function lookWhoHas() {
  const kit = here().kit, text = searched, before = new Map(items.map(each => [each.id, each.reached]));
  const told = await call("GET", newest(kit, text));
  if (kit !== here().kit || text !== searched) return;
  const reached = new Map(told.items.map(each => [each.id, each.reached]));
  // Skip items that changed meanwhile, for example because this user has confirmed them.
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
  // Meanwhile the user may have selected another kit, or a newer search or load may have come
  // first.
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

/** Changes to the conversation of another kit, or of all, and discards the current content. */
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

/** Returns true if the item belongs to the current view: it is from the selected kit, or for its
 * user, or for all. */
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

/** Sets up the conversation. `kitOf` returns a kit by its number. */
export function setUpTalk(kitOf) {
  nameOf = kitOf;
  shown = here().kit;
  by("search").addEventListener("change", () => {
    searched = by("search").value;
    look().catch(trouble);
  });
  by("older").addEventListener("click", () => look(older).catch(trouble));
}
