// Whom a Package may be for, as the agent's directory names them.

import { call } from "./agent.js";
import { term } from "./language.js";
import { by, element } from "./text.js";

let people = [];

/** Looks who there is, and offers their names where somebody types one. */
export async function lookAtPeople() {
  ({ people } = await call("GET", "/api/people"));
  by("people").replaceChildren(...people.map(each =>
    element("option", { value: each.name }, each.kind === "user" ? "" : term(each.kind))));
}

/** What `to` is for who is called that: the text itself, where the hub has to find them. */
export function named(text) {
  const found = people.filter(each => each.name.toLowerCase() === text.toLowerCase());
  return found.length === 1 ? found[0].to : text;
}
