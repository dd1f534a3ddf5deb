// API keys and tokens: an administrator makes and revokes them.

import { act, all, button, choice, deeds, emptied, filled, flag, fold, form, line, list, once, sure } from "./acts.js";
import { call } from "./hub.js";
import { say, term } from "./language.js";
import { by, element, moment } from "./text.js";

const SCOPES = ["message", "location", "waypoint", "data", "read", "acknowledge", "administer"];

const ends = each => each.revoked !== null ? say("revoked {time}", { time: moment(each.revoked) })
  : each.expires !== null ? say("until {time}", { time: moment(each.expires) }) : "";

function revoke(kind, { id, name }, load) {
  const go = () => act(async () => {
    await call("DELETE", `/api/${kind}s/${id}`);
    return kind === "key" ? say("The key {name} is revoked.", { name }) : say("The token {name} is revoked.", { name });
  }, load);
  const question = kind === "key" ? say("Revoke the key {name}? Programs that use it are refused.", { name })
    : say("Revoke the token {name}? Programs that use it are refused.", { name });
  return button(`${kind}-${id}-revoke`, say("Revoke"), sure(question, go));
}

function key(each) {
  const id = `key-${each.id}`;
  const words = [`${each.name} (${each.id})`, each.scopes.map(term).join(", "), ends(each)].filter(Boolean).join(", ");
  if (each.revoked !== null) return element("li", { class: "quiet" }, words);
  const rate = () => act(async () => {
    await call("PATCH", `/api/keys/${each.id}`, filled(id, ["perMinute", "burst"]));
    return say("The key {name} is changed.", { name: each.name });
  }, loadKeys);
  const count = value => ({ type: "number", min: "1", max: "1000000", value: String(value) });
  return fold(id, words,
    () => [form(say("Change key {name}", { name: each.name }), rate, { id: `${id}-save`, text: say("Save") },
      line(`${id}-perMinute`, say("Calls a minute"), count(each.perMinute)),
      line(`${id}-burst`, say("Calls at once"), count(each.burst))),
    deeds(revoke("key", each, loadKeys))]);
}

export async function loadKeys() {
  const { keys } = await call("GET", "/api/keys");
  list("admin-keys", keys.map(key), say("No key yet."));
}

const addKey = () => act(async () => {
  const scopes = SCOPES.filter(each => by(`new-key-${each}`).checked);
  const body = { ...filled("new-key", ["name", "days"]), scopes };
  const told = await call("POST", "/api/keys", body);
  emptied("new-key", ["name"], body);
  once(say("The key {name}, for the header x-api-key", { name: body.name }), told.apiKey);
  return say("The key {name} is added.", { name: body.name });
}, loadKeys);

export const newKey = () => form(say("Add a key"), addKey, { id: "new-key-add", text: say("Add the key") },
  line("new-key-name", say("Name of the new key"), { maxlength: "80" }),
  line("new-key-days", say("Days until it expires (empty: never)"), { type: "number", min: "1", max: "36500" }),
  element("fieldset", {}, element("legend", {}, say("Permissions")),
    SCOPES.map((each, place) => flag(`new-key-${each}`, term(each), place < 4))));

export async function loadTokens() {
  const [{ tokens }, users] = [await call("GET", "/api/tokens"), await all("/api/users?limit=1000", "users")];
  const names = new Map(users.map(each => [each.id, each.name]));
  list("admin-tokens", tokens.map(each => element("li", { class: each.revoked === null ? "row" : "quiet" },
    [`${each.name} (${each.id})`, names.get(each.userId), ends(each)].filter(Boolean).join(", "), " ",
    each.revoked === null ? revoke("token", each, loadTokens) : "")), say("No token yet."));
  const before = by("new-token-userId")?.value;
  by("new-token-user").replaceChildren(choice("new-token-userId", say("For whom"),
    users.filter(each => each.type !== "User" && !each.disabled).reverse().map(each => [each.id, each.name]), before));
}

const addToken = () => act(async () => {
  const body = filled("new-token", ["name", "userId"]);
  const told = await call("POST", "/api/tokens", body);
  emptied("new-token", ["name"], body);
  once(say("The token {name}, for the header Authorization: Bearer", { name: body.name }), told.token);
  return say("The token {name} is added.", { name: body.name });
}, loadTokens);

export const newToken = () => form(say("Add a token"), addToken, { id: "new-token-add", text: say("Add the token") },
  line("new-token-name", say("Name of the new token"), { maxlength: "80" }),
  element("div", { id: "new-token-user" }));
