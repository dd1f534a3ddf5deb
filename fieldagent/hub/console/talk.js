// The conversation: what was sent and pushed, the newest first, with what became of each.

import { call, me, trouble } from "./hub.js";
import { pictureOf } from "./picture.js";
import { by, clock, drawn, element, plain } from "./text.js";
import { cameAt, said } from "./words.js";

const LOOK = 5000;
const STATES = { waiting: "waits for", "on its way": "on its way to", stored: "stored by", expired: "expired for",
  collapsed: "replaced by a newer one for" };
let older = null;

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
    item.sos ? element("strong", {}, "SOS ") : "", said(item.event)),
    item.event.payload ? pictureOf(item.event.payload) : null, list);
  tellFar(far, item, item.reached);
  return element("li", {}, whole, far, asksMe(item) ? read(item) : null);
}

/** For whom it is, and how far it has come beyond the disks of kits, which the deliveries tell. */
function tellFar(place, item, reached) {
  const told = [
    item.to && `to ${item.to.name}`,
    ...reached.filter(step => step.rung !== "stored").map(step => step.text),
  ].filter(Boolean).join(" · ");
  place.textContent = plain(told);
  place.hidden = !told;
}

const asksMe = item => item.receipt === "read" && item.sender.id !== me.id
  && !item.reached.some(step => step.rung === "read" && step.who === me.name);

/** Its sender wants to know when a person has read it: only a person's own press says so. */
function read(item) {
  const button = element("button", { type: "button" }, "I have read it");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      item.reached = (await call("POST", `/api/items/${item.id}/read`)).reached;
      button.closest("li").replaceWith(line(item));
    } catch (error) {
      trouble(error);
      button.disabled = false;
    }
  });
  return button;
}

async function showDeliveries(id, list) {
  const item = await call("GET", `/api/items/${id}`);
  const { devices, webhooks } = item;
  const lines = [
    ...devices.map(each => [STATES[each.state] ?? each.state, each.name, each.over && `over ${each.over}`,
      each.ended && `at ${clock(each.ended)} UTC`, each.reason && `(${each.reason})`]),
    ...webhooks.map(each => ["webhook", each.url, each.state, each.reason && `(${each.reason})`]),
  ].map(words => element("li", {}, words.filter(Boolean).join(" ")));
  list.replaceChildren(...lines.length ? lines : [element("li", {}, "It is for nobody's device, and no webhook.")]);
  return item;
}

async function showItems(more) {
  const told = await call("GET", more || `/api/items?limit=50&text=${encodeURIComponent(by("search").value)}`);
  older = told.next;
  by("older").hidden = !told.next;
  const lines = told.items.map(line);
  if (more) by("items").append(...lines);
  else by("items").replaceChildren(...lines);
}

export const loadTalk = () => showItems();

export function came(item) {
  if (!by("search").value) drawn(item, () => by("items").prepend(line(item)));
}

export function setUpTalk() {
  by("search").addEventListener("change", () => showItems().catch(trouble));
  by("older").addEventListener("click", () => showItems(older).catch(trouble));
}
