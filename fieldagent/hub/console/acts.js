// Common functions for each act of an administrator: do it, show the result, and load the page
// again.

import { call, me, Refused, trouble } from "./hub.js";
import { say } from "./language.js";
import { putRows } from "./rows.js";
import { by, element, put, tell } from "./text.js";

const opened = new Set();
/** The last submitted form. */
let submitted;
/** Running acts, by the ids of their controls or by a name. A redrawn control keeps its id. */
const underWay = new Set();

/** Runs `deed`, unless the same act is still running: a second press does nothing, and the function
 * returns undefined. */
export async function singly(id, deed) {
  if (underWay.has(id)) return;
  underWay.add(id);
  try {
    return await deed();
  } finally {
    underWay.delete(id);
  }
}

/** Returns a part of a list that opens to show more. `inside` makes the content at the first
 * opening. `id` identifies the part as long as it exists. */
export function fold(id, title, inside) {
  const fill = () => { if (whole.children.length === 1) whole.append(...inside().filter(Boolean)); };
  const toggled = () => {
    opened[whole.open ? "add" : "delete"](id);
    if (whole.open) fill();
  };
  const whole = element("details", { id, ontoggle: toggled, open: opened.has(id) },
    element("summary", { id: `${id}-title` }, title));
  if (whole.open) fill();
  return element("li", {}, whole);
}

const field = (id, text, input) => element("label", { for: id }, text, input);

export const line = (id, text, more = {}) =>
  field(id, text, element("input", { id, autocomplete: "off", ...more }));

export const flag = (id, text, checked = false) => element("label", { class: "flag" },
  element("input", { id, type: "checkbox", checked }), text);

export const choice = (id, text, options, chosen) => field(id, text, element("select", { id },
  options.map(([value, words]) => element("option", { value, selected: value === chosen }, words))));

/** Returns the filled fields by their names in the API. Empty fields are left out. */
export function filled(prefix, members) {
  const body = {};
  for (const each of members) {
    const input = by(`${prefix}-${each}`);
    if (input.type === "checkbox") body[each] = input.checked;
    else if (input.value.trim()) body[each] = input.type === "number" ? Number(input.value) : input.value.trim();
  }
  return body;
}

export const form = (name, submit, does, ...children) => element("form", {
  "aria-label": name, novalidate: true, onsubmit: event => {
    event.preventDefault();
    submitted = event.target;
    singly(does.id, submit);
  },
}, ...children, element("button", { id: does.id }, does.text));

export const deeds = (...buttons) => element("div", { class: "deeds" }, ...buttons);

export const button = (id, text, onclick) => element("button", { id, type: "button", onclick: () => singly(id, onclick) }, text);

/** Empties the fields that still have the values of `body`. Text that was typed since then belongs
 * to the next act. */
export function emptied(prefix, members, body, otherwise = {}) {
  for (const each of members) {
    const input = by(`${prefix}-${each}`);
    if (input?.value.trim() === String(body[each] ?? "")) input.value = otherwise[each] ?? "";
  }
}

/** The running load of each function. */
const looking = new Map();

/** Loads a subject, unless the person has gone to another subject. A load starts after the previous
 * one has ended, so an old answer never replaces a new one. */
export async function looked(look, there = by("subject").firstElementChild) {
  const mine = (looking.get(look) ?? Promise.resolve()).catch(() => {}).then(() => there.isConnected ? look() : undefined);
  looking.set(look, mine);
  await mine.catch(error => { if (there.isConnected) throw error; });
}

/** Runs `deed`, which returns its result as text, and then `look`, which loads the page again.
 * After a refusal, the fields stay filled. */
export async function act(deed, look) {
  const there = by("subject").firstElementChild;
  for (const id of ["act-fault", "act-done"]) tell(id, "");
  try {
    const done = await deed();
    const wrong = await looked(look, there).catch(error => error);
    tell("act-done", done);
    trouble();
    // The act succeeded in any case. A person who sees only a failure would repeat it.
    if (wrong) trouble(wrong);
  } catch (error) {
    if (error instanceof Refused) tell("act-fault", error.inWords(submitted));
    else trouble(error);
  }
}

/** Asks for a confirmation before an act that cannot be undone. */
export const sure = (question, go) => () => confirm(question) && go();

/** Shows a secret until the person confirms that it is kept. It is never shown again. A second
 * secret is shown first, and then the earlier one again. */
export function once(title, text, file = "") {
  const before = [...by("once").childNodes];
  const done = () => {
    by("once").replaceChildren(...before);
    by("once").hidden = !before.length;
    by(before.length ? "once" : "administration-title").focus();
  };
  const shown = element("textarea", { id: "once-text", readonly: true, rows: String(text.split("\n").length), "aria-label": title });
  shown.value = text;
  const copied = element("span", { role: "status" });
  by("once").replaceChildren(
    element("h3", { id: "once-title" }, title),
    element("p", {}, say("Save it now. It is not shown again.")),
    shown,
    element("div", { class: "deeds" },
      button("once-copy", say("Copy"), async () => {
        shown.select();
        // Without TLS, scripts cannot use the clipboard. The person can copy the selected text by
        // hand.
        copied.textContent = await navigator.clipboard?.writeText(text).then(() => say("Copied."), () => "") ?? say("Press Ctrl+C to copy.");
      }),
      file && button("once-save", say("Save as {file}", { file }), () => save(text, file)),
      button("once-done", say("I have saved it"), done), copied));
  by("once").hidden = false;
  by("once").focus();
}

function save(text, file) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  element("a", { href, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60000);
}

/** Returns all pages of a list. */
export async function all(path, name) {
  const found = [];
  for (let next = path; next;) {
    const told = await call("GET", next);
    found.push(...told[name]);
    next = told.next;
  }
  return found;
}

/** Fills a list that may be long. `row` makes each entry. */
export function longList(id, those, row, nothing) {
  putRows(id, those, row);
  if (!those.length) list(id, [], nothing);
}

export const list = (id, nodes, nothing) => put(id, nodes.length ? nodes : [element("li", { class: "quiet" }, nothing)]);

/** Returns the other dispatchers, who can also answer an SOS. */
export const otherDispatchers = async () => (await all("/api/users?limit=1000", "users"))
  .filter(each => each.id !== me.id && !each.disabled && ["dispatcher", "administrator"].includes(each.role));
