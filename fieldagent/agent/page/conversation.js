// The conversation: Packages and incoming messages in one list, with the newest at the end.

import { Refused, call } from "./agent.js";
import { placeInWords } from "./choices.js";
import { counted, say, term, worded } from "./language.js";
import { pictureOf } from "./picture.js";
import { by, drawn, element, moment, stageInWords, tell, time } from "./text.js";

const PAGE = 50;
/** Maximum number of kept entries. */
const MOST = 500;
const FAILED = ["Error", "Canceled", "Collapsed"];
const BEYOND = ["programs", "read", "handed_over", "nobody", "radio"];

/** Shown entries by key. `next` contains the addresses of the next pages of `packages` and
 * `payloads`. */
const known = new Map();
let next = { packages: null, payloads: null };
let shown = "all";
let asked = 0;
/** The newest value of `asked` whose list has arrived. Entries of a first list are not news. */
let begun = -1;

/** First reported acceptance times by id. `shift` is the number of seconds by which the agent's
 * clock was set since then. */
const firstSaid = new Map();
let shift = 0;
/** Seconds in which no two Packages have the same id. */
const CLOSE = 0.1;

function keyOf({ requestId, id, accepted }) {
  if (requestId !== undefined) return requestId;
  const said = accepted - shift, before = firstSaid.get(id) ?? [];
  const same = before.find(each => Math.abs(each - said) < CLOSE);
  if (same === undefined) firstSaid.set(id, [...before, said]);
  return `${id}@${same ?? said}`;
}

/** Corrects the times if the clock was set: then all known Packages have other times. */
function redate(packages) {
  const moved = packages.filter(each => firstSaid.has(each.id))
    .map(each => each.accepted - shift - firstSaid.get(each.id).at(-1));
  if (!moved.length || moved.some(seconds => Math.abs(seconds) < CLOSE)) return;
  shift += moved[0];
  for (const [key, each] of known) {
    const member = "accepted" in each ? "accepted" : "received";
    known.set(key, { ...each, [member]: each[member] + moved[0] });
  }
}

function forget() {
  known.clear();
  firstSaid.clear();
}

const momentOf = each => each.accepted ?? each.received;

/** Sets up the controls. `wanted` is called when the person selects another list. */
export function setUpConversation(wanted) {
  for (const button of document.querySelectorAll("[data-show]"))
    button.onclick = () => {
      for (const each of document.querySelectorAll("[data-show]"))
        each.setAttribute("aria-pressed", String(each === button));
      shown = button.dataset.show;
      asked += 1;
      forget();
      by("conversation").replaceChildren();
      next = { packages: null, payloads: null };
      wanted();
    };
  by("earlier").onclick = async event => {
    event.target.disabled = true;
    try {
      await earlier();
    } catch (error) {
      tell("nothing", error.message);
    } finally {
      event.target.disabled = false;
    }
  };
}

const first = () => ({
  packages: shown === "received" ? null
    : `/api/packages?limit=${PAGE}${shown === "waiting" ? "&state=waiting" : ""}`
      + `${shown === "failed" ? "&state=Error" : ""}`,
  payloads: ["all", "received"].includes(shown) ? `/api/inbound?limit=${PAGE}` : null,
});

/** Fetches the newest entries and returns the unknown ones. */
export async function look() {
  const question = asked;
  const paths = first();
  const begins = begun !== asked;
  const [packages, payloads] = await Promise.all([pageOf(paths.packages), pageOf(paths.payloads)]);
  const { queued } = await call("GET", "/api/queue?limit=1");
  tell("waiting", queued ? `(${queued})` : "");
  if (question !== asked) return [];
  begun = question;
  redate(packages.packages ?? []);
  const found = [...packages.packages ?? [], ...payloads.payloads ?? []];
  const fresh = found.filter(each => !known.has(keyOf(each)));
  const isLong = known.size > MOST && isAtEnd();
  if (isLong) forget();
  if (begins || isLong) next = { packages: packages.next, payloads: payloads.next };
  if (shown === "waiting") forgetEnded(found);
  learn(found);
  return begins ? [] : fresh;
}

/** Updates the entry of a Package that is on an earlier page. */
export async function lookAt(id) {
  const question = asked, each = [...known.values()].find(one => one.id === id);
  if (each === undefined) return;
  try {
    const now = await call("GET", `/api/package/${id}`);
    // Another list may be selected now.
    if (question === asked && now.accepted === each.accepted) learn([{ ...each, ...now }]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

/** Forgets entries that have ended: they are missing in the first page. */
function forgetEnded(found) {
  const oldest = Math.min(...found.map(momentOf));
  for (const [key, each] of known)
    if (momentOf(each) >= oldest || !found.length) {
      if (found.every(one => keyOf(one) !== key)) known.delete(key);
    }
}

const pageOf = async path => path === null ? { next: null } : call("GET", path);

async function earlier() {
  const question = asked;
  const [packages, payloads] = await Promise.all([pageOf(next.packages), pageOf(next.payloads)]);
  if (question !== asked) return;
  next = { packages: packages.next, payloads: payloads.next };
  const place = by("entries");
  const below = place.scrollHeight - place.scrollTop;
  learn([...packages.packages ?? [], ...payloads.payloads ?? []]);
  place.scrollTop = place.scrollHeight - below;
}

function learn(found) {
  for (const each of found) known.set(keyOf(each), each);
  // The list that goes back less far decides from which time on all entries are known.
  const all = [...known.values()];
  const whole = Math.max(-Infinity, ...[["packages", "accepted"], ["payloads", "received"]]
    .filter(([list]) => next[list] !== null)
    .map(([, member]) => Math.min(...all.filter(each => member in each).map(momentOf))));
  const listed = all.filter(each => momentOf(each) >= whole)
    .sort((one, other) => momentOf(one) - momentOf(other) || (one.id ?? 0) - (other.id ?? 0));
  drawn("conversation", () => draw(listed));
  by("earlier").hidden = next.packages === null && next.payloads === null;
  tell("nothing", listed.length ? "" : nothing());
}

const nothing = () => ({
  all: say("Nothing sent or received yet."),
  waiting: say("Nothing is waiting."),
  failed: say("No failures."),
  received: say("Nothing received yet."),
})[shown];

const kindOf = ({ kind }) => kind === "checkIn" ? say("check-in")
  : kind === "commandAnswer" ? say("answer to a command") : term(kind);

/** Returns the holders of a Package as text. */
const holders = receipts => receipts.map(each => {
  const values = { who: each.name || each.id, time: moment(each.at) };
  return each.kind === "hub" ? say("{who} at {time}", values) : say("{who}'s agent at {time}", values);
}).join(", ");

function isAtEnd() {
  const place = by("entries");
  return place.scrollHeight - place.scrollTop - place.clientHeight < 40;
}

function draw(listed) {
  const list = by("conversation"), place = by("entries"), atEnd = isAtEnd();
  const there = new Map([...list.children].map(node => [node.dataset.key, node]));
  const focused = list.contains(document.activeElement) ? document.activeElement.id : "";
  const nodes = listed.map(each => {
    const key = keyOf(each), text = JSON.stringify(each), old = there.get(key);
    if (old?.said === text) return old;
    const made = each.requestId === undefined ? sent(each) : received(each);
    made.dataset.key = key;
    made.said = text;
    made.id = `entry-${key}`;
    goOn(old, made);
    return made;
  });
  for (const node of [...list.children]) if (!nodes.includes(node)) node.remove();
  // Move only nodes that are in the wrong place. A node that a person reads or uses stays where it
  // is.
  nodes.forEach((node, at) => {
    if (list.children[at] !== node) list.insertBefore(node, list.children[at] ?? null);
  });
  if (focused && document.activeElement === document.body) by(focused)?.focus();
  if (atEnd) place.scrollTop = place.scrollHeight;
}

/** Keeps opened details and the button of an entry in its new drawing. */
function goOn(old, made) {
  const before = old?.querySelector("details[open]");
  const after = made.querySelector("details");
  if (before && after) after.open = true;
  const button = old?.querySelector(".actions > button"), its = made.querySelector(".actions > button");
  if (button && its?.id === button.id) its.replaceWith(button, ...[faultOf(button)].filter(Boolean));
}

function sent(each) {
  const state = each.status ? term(each.status) : say("waits");
  const looks = each.status === "Delivered" ? "good" : FAILED.includes(each.status) ? "bad" : "unsure";
  const legs = Object.entries(each.channels);
  // If all channels succeeded, show only their names.
  const smooth = each.status !== null
    && legs.every(([, leg]) => leg.status === each.status && !leg.reason);
  const ways = smooth ? [] : legs.map(([name, leg]) => element("li", {},
    element("b", {}, term(name)), ` ${leg.status ? term(leg.status) : say("waits")}`, leg.reason ? `: ${leg.reason}` : ""));
  const facts = [
    each.relayed ? say("for a neighbour") : "",
    smooth ? legs.map(([name]) => term(name)).join(", ") : "",
    each.credits ? counted(each.credits, "{n} credit", "{n} credits") : "",
    each.money ?? "",
    each.receipts.length ? say("received by {who}", { who: holders(each.receipts) }) : "",
    ...each.reached.filter(step => BEYOND.includes(step.stage)).map(stageInWords),
  ].filter(Boolean).join(" · ");
  const key = keyOf(each);
  return element("li", { class: `entry sent${each.sos ? " alarm" : ""}` },
    element("p", { class: "head" },
      each.sos ? element("b", { class: "sos" }, "SOS") : null,
      `${each.relayedFor ?? say("you")} · ${kindOf(each)} · `, time(each.accepted), each.relayed ? "" : ` · ${each.id}`,
      each.toName ? element("span", { class: "whom" }, ` ${say("to {who}", { who: each.toName })}`) : null,
      element("span", { class: `pill ${looks}` }, state)),
    ...said(each.incident ? incidentText(each.incident) : each.sos ? worded(each.text) : each.text, each.position),
    ways.length ? element("ul", { class: "ways" }, ways) : null,
    each.reason ? element("p", { class: "hint" }, each.reason) : null,
    element("div", { class: "actions" }, facts ? element("p", { class: "hint" }, facts) : null,
      each.status === null ? cancel(each, key) : null, story(each, key)));
}

function said(text, position) {
  return [
    text ? element("p", { class: "said", dir: "auto" }, text) : null,
    position ? element("p", { class: "position" }, placeInWords(position)) : null,
  ];
}

function cancel(each, key) {
  const button = element("button", {
    type: "button", id: `cancel-${key}`, "aria-label": say("Cancel Package {id}", { id: each.id }),
  }, say("Cancel"));
  pressed(button, async () => {
    try {
      await call("POST", `/api/package/${each.id}/cancel`, {});
    } finally {
      lookAt(each.id).catch(() => {});
    }
  });
  return button;
}

/** Runs `act` at a press of `button`. A failure is shown beside the button until the next press. */
export function pressed(button, act) {
  button.onclick = async () => {
    faultOf(button)?.remove();
    const focused = document.activeElement === button;
    button.disabled = true;
    try {
      await act();
    } catch (error) {
      button.after(element("span", { class: "fault", role: "alert" }, error.message));
    }
    button.disabled = false;
    // A browser takes the focus from a disabled button. Return it, for people who use the keyboard.
    if (focused && document.activeElement === document.body) button.focus();
  };
}

const faultOf = button => button.nextElementSibling?.matches(".fault") ? button.nextElementSibling : null;

/** Returns each try and its cost, loaded on opening. */
function story(each, key) {
  const lines = element("ol", { class: "story" });
  const made = element("details", {},
    element("summary", { id: `story-${key}` }, say("what happened"),
      element("span", { class: "unseen" }, ` · ${say("Package {id}", { id: each.id })}`)), lines);
  made.ontoggle = async () => {
    if (!made.open) return;
    try {
      const told = await call("GET", `/api/package/${each.id}`);
      lines.replaceChildren(...told.history.map(line => element("li", {}, time(line.at), " ",
        [term(line.channel), line.event].filter(Boolean).join(" "), line.detail ? `: ${line.detail}` : "",
        line.times > 1 ? ` ${counted(line.times, "({n} time; this is the last)", "({n} times; this is the last)")}` : "")));
    } catch (error) {
      lines.replaceChildren(element("li", {}, error.message));
    }
  };
  return made;
}

const nameOf = ({ id, name }) => name || (id === "0" ? say("the hub") : id);

/** Returns the text of a received event, or undefined for data. An incident update is in the reader's language. */
function textOf(event) {
  if (event.incident) return incidentText(event.incident);
  return event.content ?? (event.notes ? `${event.name}: ${event.notes}` : event.name);
}

function incidentText({ state, by: who, text }) {
  const update = {
    seen: say("seen by {who}", { who: who ?? "?" }), closed: say("closed by {who}", { who: who ?? "?" }),
  }[state] ?? term(state);
  return text ? `SOS ${update}: ${worded(text)}` : `SOS ${update}`;
}

function received(payload) {
  const { identity, events: [event] } = payload.body.payloads[0];
  const hooks = Object.entries(payload.hooks).filter(([, hand]) => hand.state !== "handed")
    .map(([hook, hand]) => `${hook}: ${hand.state} ${hand.reason}`.trim()).join(" · ");
  const position = "latitude" in event ? [event.latitude, event.longitude] : null;
  const text = textOf(event) ?? event.payload;
  const picture = event.payload ? pictureOf(event.payload) : null;
  return element("li", { class: `entry received${event.sos ? " alarm" : ""}` },
    element("p", { class: "head" },
      event.sos ? element("b", { class: "sos" }, "SOS") : null,
      element("b", {}, nameOf(identity)), ` · ${term(event.type.toLowerCase())} · `,
      time(payload.received),
      event.to?.name ? element("span", { class: "whom" }, ` ${say("to {who}", { who: event.to.name })}`) : null,
      event.unauthenticated ? element("span", { class: "pill bad" }, say("not authenticated")) : null),
    ...(picture ? [picture] : said(event.sos ? worded(text) : text, position)),
    payload.asks && !event.sos ? read(payload, keyOf(payload)) : null,
    hooks ? element("p", { class: "hint" }, hooks) : null);
}

/** Returns the read receipt, or the button with which only a person confirms it. */
function read(payload, key) {
  if (payload.readBy !== null)
    return element("p", { class: "hint" }, payload.readBy
      ? say("read by {who}; receipt is sent", { who: payload.readBy }) : say("read; receipt is sent"));
  const button = element("button", { type: "button", id: `read-${key}` }, say("Mark as read"));
  pressed(button, async () => {
    const question = asked;
    await call("POST", `/api/inbound/${payload.requestId}/read`, {});
    if (question === asked && known.has(key)) learn([{ ...known.get(key), readBy: "" }]);
  });
  return element("div", { class: "actions" }, button);
}

/** A sentence about an incoming message, for screen readers. */
export const sentence = payload => {
  const { identity, events: [event] } = payload.body.payloads[0];
  return say("{what} from {who} at {time}: {text}", {
    what: event.sos ? "SOS" : term(event.type.toLowerCase()), who: nameOf(identity),
    time: moment(payload.received), text: textOf(event) ?? "",
  });
};
