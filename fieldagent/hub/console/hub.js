// The hub's API, as the console asks it: who is signed in, and what goes wrong on the way.

import { language, read, say } from "./language.js";
import { by, plain, setClock } from "./text.js";

/** Who has signed in: id, name, role, workspaceId, mayPush, mayAnswer, mayAdminister. */
export const me = {};

export class SignedOut extends Error {}

/** Nobody answered. */
export class Away extends Error {
  /** Whether it came of looking, which is done again by itself. */
  isLook = true;
}

export class Refused extends Error {
  constructor(told) {
    super(told.detail || told.title);
    this.status = told.status;
    this.faults = told.errors ?? [];
    this.sos = told.sos;
    this.choose = told.choose;
  }

  /** What is wrong: each fault by the name of its field in `form`, or else the whole. */
  inWords(form = document) {
    return this.faults.map(({ pointer, detail }) => {
      const member = pointer.split("/").at(-1);
      const label = member && form.querySelector(`[id$="-${CSS.escape(member)}"]`)?.labels?.[0].firstChild.textContent;
      return `${label ? label.split(",")[0].trim() : member} ${detail}`.trim();
    }).join("; ") || this.message;
  }
}

/** Milliseconds in which a hub answers; one that hangs ends no connection. */
const PATIENCE = 30_000;
/** Counts how often somebody was signed out. */
let ended = 0;
document.addEventListener("signed-out", () => { ended += 1; });

async function ask(method, path, body, headers = {}) {
  const isLook = method === "GET", before = ended;
  let answer, text;
  try {
    answer = await fetch(path, {
      method,
      headers: { "Accept-Language": language, ...body && { "Content-Type": "application/json" }, ...headers },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE),
    });
    text = await answer.text();
  } catch {
    throw Object.assign(new Away(isLook || path.endsWith("/session") || path.endsWith("/cost") ? say("The hub does not answer.")
      : say("The hub did not answer: nobody knows whether that was done. Look once it is back, and press again if it was not.")), { isLook });
  }
  // To the second; this computer's own may be far off.
  const date = Date.parse(answer.headers.get("Date"));
  if (date) setClock(date / 1000);
  const told = text ? await toldIn(text, isLook) : {};
  const entering = method === "POST" && path.endsWith("/session");
  // Of who was there before it says nothing about who is there now.
  if (answer.status === 401 && !entering && (before === ended || me.id === undefined)) throw new SignedOut();
  if (!answer.ok) throw Object.assign(new Refused(told), { isLook });
  return told;
}

async function toldIn(text, isLook) {
  try {
    return await read(text);
  } catch {
    throw Object.assign(new Away(say("a proxy answered in the hub's place")), { isLook });
  }
}

export const call = (method, path, body) => ask(method, path, body);

/** Push it once, however often that is tried with the same key. */
export const push = (body, key) => ask("POST", "/api/package", body, { "Idempotency-Key": key });

/** Milliseconds after which somebody who asks for the same means it anew. */
const ANEW = 600_000;

/** Keys of what the hub has not answered, by what it was asked for. */
const unanswered = new Map();

/** Let the hub do it once, however often that is asked for until it has answered. */
export async function postOnce(path, body) {
  const asked = `${path} ${JSON.stringify(body)}`, now = performance.now();
  if (!(unanswered.get(asked)?.at > now - ANEW)) unanswered.set(asked, { at: now, key: crypto.randomUUID() });
  try {
    const told = await ask("POST", path, body, { "Idempotency-Key": unanswered.get(asked).key });
    unanswered.delete(asked);
    return told;
  } catch (error) {
    // After 5xx nobody knows whether it was done.
    if (error instanceof Refused && error.status < 500) unanswered.delete(asked);
    throw error;
  }
}

/** What went wrong as the hub was looked at, and as somebody pressed something. */
const wrong = { looked: "", pressed: "" };

function show() {
  by("away").textContent = [wrong.looked, wrong.pressed].filter(Boolean).join("\n");
  by("away").hidden = !by("away").textContent;
}

/** Tells what went wrong, above everything else; without an error, that all is well again. */
export function trouble(error) {
  if (error instanceof SignedOut) return document.dispatchEvent(new Event("signed-out"));
  const { isLook } = error ?? {};
  if (!error) wrong.looked = wrong.pressed = "";
  else if (!isLook) wrong.pressed = plain(error.message);
  else wrong.looked = error instanceof Away ? say("The hub does not answer: what is shown may be old. It is tried again.") : plain(error.message);
  show();
}

/** The hub was looked at, and answered. What a press came to stays to be read. */
export function looksWell() {
  wrong.looked = "";
  show();
}
