// The conversation: what was sent and pushed, the newest first, with what became of each.

import { call, trouble } from "./hub.js";
import { by, clock, element } from "./text.js";
import { cameAt, said } from "./words.js";

const LOOK = 5000;
const STATES = { waiting: "waits for", "on its way": "on its way to", stored: "stored by", expired: "expired for",
  collapsed: "replaced by a newer one for" };
let older = null;

function line(item) {
  const list = element("ul");
  let looking = 0;
  const look = () => showDeliveries(item.id, list).catch(trouble);
  const toggled = () => {
    clearInterval(looking);
    if (whole.open) {
      look();
      looking = setInterval(() => whole.isConnected ? look() : clearInterval(looking), LOOK);
    }
  };
  const whole = element("details", { ontoggle: toggled }, element("summary", {},
    element("span", { class: "quiet" }, `${cameAt(item.accepted, item.event)} ${item.sender.name}: `),
    item.sos ? element("strong", {}, "SOS ") : "", said(item.event)), list);
  return element("li", {}, whole);
}

async function showDeliveries(id, list) {
  const { devices, webhooks } = await call("GET", `/api/items/${id}`);
  const lines = [
    ...devices.map(each => [STATES[each.state] ?? each.state, each.name, each.over && `over ${each.over}`,
      each.ended && `at ${clock(each.ended)} UTC`, each.reason && `(${each.reason})`]),
    ...webhooks.map(each => ["webhook", each.url, each.state, each.reason && `(${each.reason})`]),
  ].map(words => element("li", {}, words.filter(Boolean).join(" ")));
  list.replaceChildren(...lines.length ? lines : [element("li", {}, "It is for nobody's device, and no webhook.")]);
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
  if (!by("search").value) by("items").prepend(line(item));
}

export function setUpTalk() {
  by("search").addEventListener("change", () => showItems().catch(trouble));
  by("older").addEventListener("click", () => showItems(older).catch(trouble));
}
