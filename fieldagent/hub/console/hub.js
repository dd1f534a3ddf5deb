// The hub's API for the console: the signed-in user and errors.

import { language, read, say } from "./language.js";
import { by, plain, setClock } from "./text.js";

/** The signed-in user: id, name, role, workspaceId, mayPush, mayAnswer, mayAdminister. */
export const me = {};

export class SignedOut extends Error {}

/** Error: the hub did not answer. */
export class Away extends Error {
  /** True for a failed load, which is repeated automatically. */
  isLook = true;
}

export class Refused extends Error {
  constructor(told) {
    super(told.detail || told.title);
    this.status = told.status;
    this.faults = told.errors ?? [];
    this.incident = told.sos ?? told.alarm;
    this.choose = told.choose;
  }

  /** Returns each fault as text, with the label of its field in `form`, or the general error. */
  inWords(form = document) {
    return this.faults.map(({ pointer, detail }) => {
      const member = pointer.split("/").at(-1);
      const label = member && form.querySelector(`[id$="-${CSS.escape(member)}"]`)?.labels?.[0].firstChild.textContent;
      return `${label ? label.split(",")[0].trim() : member} ${detail}`.trim();
    }).join("; ") || this.message;
  }
}

/** Milliseconds to wait for the hub. A hub that hangs does not end a connection. */
const PATIENCE = 30_000;
/** Number of sign-outs. */
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
      : say("The hub did not answer, so the result is unknown. Check it when the hub is back, and press again if needed.")), { isLook });
  }
  // The hub's time in whole seconds. This computer's clock may be wrong.
  const date = Date.parse(answer.headers.get("Date"));
  if (date) setClock(date / 1000);
  const told = text ? await toldIn(text, isLook) : {};
  const entering = method === "POST" && path.endsWith("/session");
  // An answer to the previous user's request does not end the session of the current user.
  if (answer.status === 401 && !entering && (before === ended || me.id === undefined)) throw new SignedOut();
  if (!answer.ok) throw Object.assign(new Refused(told), { isLook });
  return told;
}

async function toldIn(text, isLook) {
  try {
    return await read(text);
  } catch {
    throw Object.assign(new Away(say("a proxy answered instead of the hub")), { isLook });
  }
}

export const call = (method, path, body) => ask(method, path, body);

/** Pushes a message once, even if it is tried several times with the same key. */
export const push = (body, key) => ask("POST", "/api/package", body, { "Idempotency-Key": key });

/** Milliseconds after which the same request counts as a new one. */
const ANEW = 600_000;

/** Keys of requests without an answer, by path and body. */
const unanswered = new Map();

/** Posts a request that the hub carries out once, even if it is repeated until the answer comes. */
export async function postOnce(path, body) {
  const asked = `${path} ${JSON.stringify(body)}`, now = performance.now();
  if (!(unanswered.get(asked)?.at > now - ANEW)) unanswered.set(asked, { at: now, key: crypto.randomUUID() });
  try {
    const told = await ask("POST", path, body, { "Idempotency-Key": unanswered.get(asked).key });
    unanswered.delete(asked);
    return told;
  } catch (error) {
    // After 5xx it is unknown if the hub carried out the request.
    if (error instanceof Refused && error.status < 500) unanswered.delete(asked);
    throw error;
  }
}

/** The last error of a load, and of a press. */
const wrong = { looked: "", pressed: "" };

function show() {
  by("away").textContent = [wrong.looked, wrong.pressed].filter(Boolean).join("\n");
  by("away").hidden = !by("away").textContent;
}

/** Shows an error above everything else, or removes all errors if there is none. */
export function trouble(error) {
  if (error instanceof SignedOut) return document.dispatchEvent(new Event("signed-out"));
  const { isLook } = error ?? {};
  if (!error) wrong.looked = wrong.pressed = "";
  else if (!isLook) wrong.pressed = plain(error.message);
  else wrong.looked = error instanceof Away ? say("The hub does not answer. This page may be out of date. Trying again.") : plain(error.message);
  show();
}

/** Called after a successful load. An error of a press stays visible. */
export function looksWell() {
  wrong.looked = "";
  show();
}
