// The history of closed incidents: search, open, print and export.

import { callOf, closedCard, nameOf } from "./desk.js";
import { call, trouble } from "./hub.js";
import { say } from "./language.js";
import { by, element, moment } from "./text.js";

let older = null;
/** Number of the last request. Only the answer to the newest one is shown. */
let asked = 0;

function entry(sos) {
  const toggled = () => { if (whole.open && !whole.querySelector("article")) open(sos, whole).catch(trouble); };
  const whole = element("details", { ontoggle: toggled }, element("summary", {},
    element("span", { class: "quiet" }, `${moment(sos.raised)} `),
    say("{what} ({kit}), closed {time}", { what: nameOf(sos), kit: sos.device.name, time: moment(sos.closed) })));
  return element("li", {}, whole);
}

async function open(sos, whole) {
  const now = await call("GET", callOf(sos));
  // If it was opened twice, the card may already be there.
  if (whole.querySelector("article")) return;
  whole.append(closedCard(now), element("button", { type: "button", onclick: () => print() }, say("Print")));
}

async function show(more) {
  const question = ++asked, name = by("history-kind").value, searched = `text=${encodeURIComponent(by("history-search").value)}`;
  const told = await call("GET", more || `/api/${name}?state=closed&limit=20&${searched}`);
  // A newer request may have started meanwhile.
  if (question !== asked) return;
  older = told.next;
  by("history-older").hidden = !older;
  const entries = told[name].map(entry);
  if (more) by("history-list").append(...entries);
  else by("history-list").replaceChildren(...entries.length ? entries : [element("li", { class: "quiet" }, say("None."))]);
  // Older entries do not change the export links.
  if (more) return;
  for (const form of ["csv", "json"])
    by(`history-${form}`).href = `/api/${name}/export?state=closed&format=${form}&${searched}`;
}

/** Loads the history when a person opens it. */
export function setUpHistory() {
  by("history").addEventListener("toggle", () => { if (by("history").open) show().catch(trouble); });
  for (const each of ["history-search", "history-kind"]) by(each).addEventListener("change", () => show().catch(trouble));
  by("history-older").addEventListener("click", () => show(older).catch(trouble));
}
