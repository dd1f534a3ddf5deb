// API keys and tokens, as an administrator makes and revokes them.

import { act, all, button, choice, deeds, filled, flag, fold, form, line, list, once, sure } from "./acts.js";
import { call } from "./hub.js";
import { by, clock, element } from "./text.js";

const SCOPES = ["message", "location", "waypoint", "data", "read", "acknowledge", "administer"];

const ends = each => each.revoked !== null ? `revoked ${clock(each.revoked)} UTC`
  : each.expires !== null ? `until ${clock(each.expires)} UTC` : "";

function revoke(kind, each, load) {
  const go = () => act(async () => {
    await call("DELETE", `/api/${kind}s/${each.id}`);
    return `The ${kind} ${each.name} is revoked.`;
  }, load);
  return button(`${kind}-${each.id}-revoke`, "Revoke", sure(`Revoke the ${kind} ${each.name}? Whoever uses it is refused.`, go));
}

function key(each) {
  const id = `key-${each.id}`;
  const words = [`${each.name} (${each.id})`, each.scopes.join(" "), ends(each)].filter(Boolean).join(", ");
  if (each.revoked !== null) return element("li", { class: "quiet" }, words);
  const rate = () => act(async () => {
    await call("PATCH", `/api/keys/${each.id}`, filled(id, ["perMinute", "burst"]));
    return `The key ${each.name} is changed.`;
  }, loadKeys);
  const count = value => ({ type: "number", min: "1", max: "1000000", value: String(value) });
  return fold(id, words,
    form(`Change key ${each.name}`, rate, { id: `${id}-save`, text: "Save" },
      line(`${id}-perMinute`, "Calls a minute", count(each.perMinute)),
      line(`${id}-burst`, "Calls at once", count(each.burst))),
    deeds(revoke("key", each, loadKeys)));
}

export async function loadKeys() {
  const { keys } = await call("GET", "/api/keys");
  list("admin-keys", keys.map(key), "No key yet.");
}

const addKey = () => act(async () => {
  const scopes = SCOPES.filter(each => by(`new-key-${each}`).checked);
  const body = { ...filled("new-key", ["name", "days"]), scopes };
  const told = await call("POST", "/api/keys", body);
  by("new-key-name").value = "";
  once(`The key ${body.name}, for the header x-api-key`, told.apiKey);
  return `The key ${body.name} is made.`;
}, loadKeys);

export const newKey = () => form("Make a key", addKey, { id: "new-key-add", text: "Make the key" },
  line("new-key-name", "Name of the new key", { maxlength: "80" }),
  line("new-key-days", "Days until it expires, or nothing", { type: "number", min: "1", max: "36500" }),
  element("fieldset", {}, element("legend", {}, "What it may push, and do"),
    SCOPES.map((each, place) => flag(`new-key-${each}`, each, place < 4))));

export async function loadTokens() {
  const [{ tokens }, users] = [await call("GET", "/api/tokens"), await all("/api/users?limit=1000", "users")];
  const names = new Map(users.map(each => [each.id, each.name]));
  list("admin-tokens", tokens.map(each => element("li", { class: each.revoked === null ? "row" : "quiet" },
    [`${each.name} (${each.id})`, names.get(each.userId), ends(each)].filter(Boolean).join(", "), " ",
    each.revoked === null ? revoke("token", each, loadTokens) : "")), "No token yet.");
  by("new-token-user").replaceChildren(choice("new-token-userId", "For whom",
    users.filter(each => each.type !== "User" && !each.disabled).reverse().map(each => [each.id, each.name])));
}

const addToken = () => act(async () => {
  const body = filled("new-token", ["name", "userId"]);
  const told = await call("POST", "/api/tokens", body);
  by("new-token-name").value = "";
  once(`The token ${body.name}, for the header Authorization: Bearer`, told.token);
  return `The token ${body.name} is made.`;
}, loadTokens);

export const newToken = () => form("Make a token", addToken, { id: "new-token-add", text: "Make the token" },
  line("new-token-name", "Name of the new token", { maxlength: "80" }),
  element("div", { id: "new-token-user" }));
