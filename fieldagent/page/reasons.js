// Translates the reasons that programs give in English. Each reason matches a form of the
// catalogue, which has places for values. Other texts stay unchanged. The module is loaded when
// there is a first reason.

import { language, term } from "./language.js";

/** Members of API documents that contain a reason. */
const MEMBERS = ["fault", "notOnDisk", "reason", "satelliteTrouble", "trouble"];
/** Steps at the SOS desk whose detail comes from the hub. In other steps it comes from a person. */
const STEPS = ["escalated", "not notified", "notified"];
/** Separator between combined sentences. */
const SEAM = /^(.+?)(\)?[;:] | \()(.+?)(\)?)$/s;

const catalogue = await (await fetch(new URL(`reasons-${language}.json`, import.meta.url))).json();
const whole = new Map(Object.entries(catalogue).map(([form, said]) => [form.toLowerCase(), said]));
const letters = form => form.replace(/\{\d\}/g, "").length;
/** The forms with the most text come first, because others may match by accident. */
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

/** A reviver for `JSON.parse` that translates each reason. */
export function retold(name, value) {
  // Problems of the kit.
  if (name === "notices" && Array.isArray(value)) return value.map(because);
  if (typeof value !== "string" || !value) return value;
  // Lines of a Package's history.
  const isLine = "times" in this && ["event", "detail"].includes(name);
  const isStep = name === "detail" && STEPS.includes(this.event);
  // Losses by a damaged journal, and the part of the agent that failed.
  const isLoss = name === "text" && "payloads" in this, isPart = name === "part" && "down" in this;
  return MEMBERS.includes(name) || isLine || isStep || isLoss || isPart ? because(value) : value;
}
