// How this browser shows things: language, form of positions, units. It keeps what was chosen.

import { LANGUAGES, keep, kept, language, say } from "./language.js";
import { UNIT, by, element } from "./text.js";

const form = ["dms", "utm", "mgrs"].includes(kept("positions")) ? kept("positions") : "decimal";
const decimal = (latitude, longitude) => `${latitude}, ${longitude}`;
// Most people read degrees, and need no grid for it.
const write = form === "decimal" ? decimal
  : await import("./coordinates.js").then(({ FORMS }) => FORMS[form], () => decimal);

/** A place in words, of its latitude and longitude. */
export const placeInWords = place => write(...place);

/** Lets UTM or MGRS be typed for a latitude: both fields get the place. `tell` what is wrong with it. */
export function takeGrid(latitude, longitude, tell) {
  let grid;
  const load = () => grid ??= import("./grid.js").catch(() => grid = undefined);
  // Fetched before it is needed, it has read what is typed by the time a button is pressed.
  latitude.addEventListener("focus", load);
  latitude.addEventListener("change", () => load().then(found => found?.take(latitude, longitude, tell)));
}

function choice(name, label, names, now) {
  const id = `choice-${name}`;
  const select = element("select", { id, onchange: () => { keep(name, select.value); location.reload(); } },
    Object.entries(names).map(([value, text]) => element("option",
      { value, lang: name === "language" ? value : null, selected: value === now }, text)));
  return element("p", {}, element("label", { for: id }, label), select);
}

/** Fills `#choices`. Whoever cannot read the page finds the name of their language. */
export function setUpChoices() {
  by("choices").replaceChildren(
    element("summary", {}, LANGUAGES[language]),
    choice("language", say("Language"), LANGUAGES, language),
    choice("positions", say("Positions as"), {
      decimal: say("degrees: {example}", { example: "47.37690, 8.54170" }),
      dms: say("minutes: {example}", { example: "47°22′36.8″N" }), utm: "UTM", mgrs: "MGRS",
    }, form),
    choice("lengths", say("Lengths in"), { m: say("metres"), ft: say("feet") }, UNIT));
}
