// Possible addressees of a Package, from the agent's directory.

import { call } from "./agent.js";
import { term } from "./language.js";
import { by, element } from "./text.js";

let people = [];

/** Loads the addressees and offers their names in the address field. */
export async function lookAtPeople() {
  ({ people } = await call("GET", "/api/people"));
  by("people").replaceChildren(...people.map(each =>
    element("option", { value: each.name }, each.kind === "user" ? "" : term(each.kind))));
}

/** Returns the value of `to` for a name, or the text itself if the hub must find the addressee. */
export function named(text) {
  const found = people.filter(each => each.name.toLowerCase() === text.toLowerCase());
  return found.length === 1 ? found[0].to : text;
}
