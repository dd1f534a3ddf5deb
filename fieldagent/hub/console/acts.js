// What every act of an administrator goes through: done, told, and looked at again.

import { call, me, Refused, trouble } from "./hub.js";
import { say } from "./language.js";
import { putRows } from "./rows.js";
import { by, element, put, tell } from "./text.js";

const opened = new Set();
/** The form whose fields the last deed is of. */
let submitted;
/** What is under way, by the ids of controls, which they keep as lists are drawn anew, or by what it
 * is. */
const underWay = new Set();

/** Does it, unless the same is still being carried out: a second press is no second deed. Nothing is
 * returned then. */
export async function singly(id, deed) {
  if (underWay.has(id)) return;
  underWay.add(id);
  try {
    return await deed();
  } finally {
    underWay.delete(id);
  }
}

/** Part of the list of a subject, that opens to show more: what `inside` returns, made then. `id`
 * names it as long as it is there. */
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

/** What is filled in, by the members that the API has for it; what is empty is left out. */
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

/** Empties the fields that still say what `body` had of them: what was typed meanwhile is the next one. */
export function emptied(prefix, members, body, otherwise = {}) {
  for (const each of members) {
    const input = by(`${prefix}-${each}`);
    if (input?.value.trim() === String(body[each] ?? "")) input.value = otherwise[each] ?? "";
  }
}

/** By what looks, its look that is under way. */
const looking = new Map();

/** Looks at a subject, unless somebody has gone on to another meanwhile, where nothing of it stands.
 * One look of it begins once the one before has ended: nothing older is drawn over what is newer. */
export async function looked(look, there = by("subject").firstElementChild) {
  const mine = (looking.get(look) ?? Promise.resolve()).catch(() => {}).then(() => there.isConnected ? look() : undefined);
  looking.set(look, mine);
  await mine.catch(error => { if (there.isConnected) throw error; });
}

/** `deed` does it and says so in words, and `look` looks again. Where it was refused, what is filled in stays. */
export async function act(deed, look) {
  const there = by("subject").firstElementChild;
  for (const id of ["act-fault", "act-done"]) tell(id, "");
  try {
    const done = await deed();
    const wrong = await looked(look, there).catch(error => error);
    tell("act-done", done);
    trouble();
    // It is done all the same: who reads that it was not does it twice.
    if (wrong) trouble(wrong);
  } catch (error) {
    if (error instanceof Refused) tell("act-fault", error.inWords(submitted));
    else trouble(error);
  }
}

/** A question before what cannot be taken back. */
export const sure = (question, go) => () => confirm(question) && go();

/** What is secret is shown until somebody has kept it, and then nowhere. One that comes before that is
 * shown first, and then the one before. */
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
    element("p", {}, say("Keep it now: it is not shown again.")),
    shown,
    element("div", { class: "deeds" },
      button("once-copy", say("Copy"), async () => {
        shown.select();
        // Without TLS a browser has no clipboard for scripts; what is selected can be copied by hand.
        copied.textContent = await navigator.clipboard?.writeText(text).then(() => say("Copied."), () => "") ?? say("Press Ctrl+C.");
      }),
      file && button("once-save", say("Save as {file}", { file }), () => save(text, file)),
      button("once-done", say("I have kept it"), done), copied));
  by("once").hidden = false;
  by("once").focus();
}

function save(text, file) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  element("a", { href, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60000);
}

/** All pages of a list. */
export async function all(path, name) {
  const found = [];
  for (let next = path; next;) {
    const told = await call("GET", next);
    found.push(...told[name]);
    next = told.next;
  }
  return found;
}

/** The same of things of which there may be many, each made by `row`. */
export function longList(id, those, row, nothing) {
  putRows(id, those, row);
  if (!those.length) list(id, [], nothing);
}

export const list = (id, nodes, nothing) => put(id, nodes.length ? nodes : [element("li", { class: "quiet" }, nothing)]);

/** Who else answers an SOS here. */
export const otherDispatchers = async () => (await all("/api/users?limit=1000", "users"))
  .filter(each => each.id !== me.id && !each.disabled && ["dispatcher", "administrator"].includes(each.role));
