// The history of closed incidents: searched, opened one by one, printed and taken along.

import { closedCard } from "./desk.js";
import { call, trouble } from "./hub.js";
import { say } from "./language.js";
import { by, element, moment } from "./text.js";

let older = null;
/** Counts the questions: of what is shown, only the answer to the newest. */
let asked = 0;

function entry(sos) {
  const toggled = () => { if (whole.open && !whole.querySelector("article")) open(sos, whole).catch(trouble); };
  const whole = element("details", { ontoggle: toggled }, element("summary", {},
    element("span", { class: "quiet" }, `${moment(sos.raised)} `),
    say("SOS {id} ({kit}), closed {time}", { id: sos.id, kit: sos.device.name, time: moment(sos.closed) })));
  return element("li", {}, whole);
}

async function open(sos, whole) {
  const now = await call("GET", `/api/sos/${sos.id}`);
  // Opened once more meanwhile, it may be there.
  if (whole.querySelector("article")) return;
  whole.append(closedCard(now), element("button", { type: "button", onclick: () => print() }, say("Print")));
}

async function show(more) {
  const question = ++asked, searched = `text=${encodeURIComponent(by("history-search").value)}`;
  const told = await call("GET", more || `/api/sos?state=closed&limit=20&${searched}`);
  // Meanwhile something else may have been searched for, or the same asked once more.
  if (question !== asked) return;
  older = told.next;
  by("history-older").hidden = !older;
  const entries = told.sos.map(entry);
  if (more) by("history-list").append(...entries);
  else by("history-list").replaceChildren(...entries.length ? entries : [element("li", { class: "quiet" }, say("None."))]);
  // Of older ones it is as it was.
  if (more) return;
  for (const form of ["csv", "json"])
    by(`history-${form}`).href = `/api/sos/export?state=closed&format=${form}&${searched}`;
}

/** It is looked for once somebody opens it. */
export function setUpHistory() {
  by("history").addEventListener("toggle", () => { if (by("history").open) show().catch(trouble); });
  by("history-search").addEventListener("change", () => show().catch(trouble));
  by("history-older").addEventListener("click", () => show(older).catch(trouble));
}
