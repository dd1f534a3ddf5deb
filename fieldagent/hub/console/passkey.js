// Sign-in with a passkey, and the list of the user's passkeys.

import { singly } from "./acts.js";
import { call, SignedOut, trouble } from "./hub.js";
import { say } from "./language.js";
import { by, element, moment, put } from "./text.js";

const can = () => window.PublicKeyCredential?.parseRequestOptionsFromJSON !== undefined;

/** Milliseconds to wait for the hub's answer about its passkey support. */
const PATIENCE = 15_000;
let isAsked = false;

/** Shows the button if the hub and the browser support passkeys. After an answer it does not ask
 * again. */
export async function offerPasskey() {
  if (isAsked || !can()) return;
  const answer = await fetch("/console/passkeys/sign-in", { method: "OPTIONS", signal: AbortSignal.timeout(PATIENCE) })
    .catch(() => null);
  isAsked = answer !== null && answer.status < 500;
  by("by-passkey").hidden = !answer?.ok;
}

export async function signInByPasskey(workspace) {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await call("POST", "/console/passkeys/sign-in"));
  const credential = (await navigator.credentials.get({ publicKey })).toJSON();
  await call("POST", "/console/passkeys/session", { credential, workspace });
}

async function addPasskey(name) {
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await call("POST", "/console/passkeys/new"));
  const credential = (await navigator.credentials.create({ publicKey })).toJSON();
  await call("POST", "/console/passkeys", { name, credential });
}

const row = ({ id, name, created, used }) => {
  const remove = element("button", { type: "button" }, say("Remove {name}", { name }));
  remove.addEventListener("click", () => attempt(() => call("DELETE", `/console/passkeys/${id}`)));
  const when = used ? say("used last {time}", { time: moment(used) }) : say("not used yet");
  return element("li", {}, say("{name}, since {time}, {when}", { name, time: moment(created), when }), " ", remove);
};

const attempt = act => singly("passkey", async () => {
  by("passkey-fault").textContent = "";
  try {
    await act();
  } catch (error) {
    if (error instanceof SignedOut) return trouble(error);
    by("passkey-fault").textContent = error.message;
  }
  await showPasskeys().catch(trouble);
});

export async function showPasskeys() {
  await offerPasskey();
  if (by("by-passkey").hidden) return;
  const { passkeys } = await call("GET", "/console/passkeys");
  put("own-passkeys", passkeys.map(row));
  by("to-account").hidden = false;
}

by("add-passkey").addEventListener("submit", event => {
  event.preventDefault();
  const form = event.target;
  attempt(async () => { await addPasskey(form.elements.name.value); form.reset(); });
});
