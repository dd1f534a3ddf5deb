// Reasons, which programs give in English, in the language of who reads. Each is one of the forms of
// a catalogue, with something in its places; what no form fits is said as it came. It is fetched once
// there is one to be said.

import { language, term } from "./language.js";

/** Members of the APIs' documents that hold one. */
const MEMBERS = ["fault", "notOnDisk", "reason", "satelliteTrouble", "trouble"];
/** Steps at the SOS desk whose detail is the hub's own: of the others a person tells. */
const STEPS = ["escalated", "not told", "told"];
/** Between sentences that were put together. */
const SEAM = /^(.+?)(\)?[;:] | \()(.+?)(\)?)$/s;

const catalogue = await (await fetch(new URL(`reasons-${language}.json`, import.meta.url))).json();
const whole = new Map(Object.entries(catalogue).map(([form, said]) => [form.toLowerCase(), said]));
const letters = form => form.replace(/\{\d\}/g, "").length;
/** Those that say the most come first: others may fit by chance. */
const open = Object.entries(catalogue).filter(([form]) => form.includes("{1}"))
  .sort(([one], [other]) => letters(other) - letters(one)).map(([form, said]) => [pattern(form), said]);

function pattern(form) {
  const parts = form.split(/\{\d\}/).map(each => each.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("(.+?)")}$`, "is");
}

export function because(text) {
  const said = whole.get(text.toLowerCase());
  if (said) return said;
  for (const [form, words] of open) {
    const values = form.exec(text);
    if (values) return words.replace(/\{(\d)\}/g, (_, place) => because(values[place]));
  }
  const [, one, seam, other, end] = SEAM.exec(text) ?? [];
  return one ? because(one) + seam + because(other) + end : term(text);
}

/** For `JSON.parse`: each reason of a document said so. */
export function retold(name, value) {
  // What needs attention at the kit.
  if (name === "notices" && Array.isArray(value)) return value.map(because);
  if (typeof value !== "string" || !value) return value;
  // The lines of what happened to a Package.
  const isLine = "times" in this && ["event", "detail"].includes(name);
  const isStep = name === "detail" && STEPS.includes(this.event);
  // What damage to the journal cost, and which part of the agent failed.
  const isLoss = name === "text" && "payloads" in this, isPart = name === "part" && "down" in this;
  return MEMBERS.includes(name) || isLine || isStep || isLoss || isPart ? because(value) : value;
}
