// The choices of this browser: language, form of positions, and units. The browser keeps them.

import { LANGUAGES, keep, kept, language, say } from "./language.js";
import { UNIT, UTC, by, element } from "./text.js";

const form = ["dms", "utm", "mgrs"].includes(kept("positions")) ? kept("positions") : "decimal";
const decimal = (latitude, longitude) => `${latitude}, ${longitude}`;
// Most people use degrees, which need no grid code.
const write = form === "decimal" ? decimal
  : await import("./coordinates.js").then(({ FORMS }) => FORMS[form], () => decimal);

/** Returns a position, given as latitude and longitude, as text. */
export const placeInWords = place => write(...place);

/** Accepts UTM or MGRS in the latitude field, and fills both fields with the position. Calls `tell`
 * with an error text. */
export function takeGrid(latitude, longitude, tell) {
  let grid;
  const load = () => grid ??= import("./grid.js").catch(() => grid = undefined);
  // Load the code early, so that it has read the text before a person presses a button.
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

/** Fills `#choices`. The summary is the name of the language, for people who cannot read the
 * page. */
export function setUpChoices() {
  by("choices").replaceChildren(
    element("summary", {}, LANGUAGES[language]),
    choice("language", say("Language"), LANGUAGES, language),
    choice("positions", say("Positions as"), {
      decimal: say("degrees: {example}", { example: "47.37690, 8.54170" }),
      dms: say("minutes: {example}", { example: "47°22′36.8″N" }), utm: "UTM", mgrs: "MGRS",
    }, form),
    choice("lengths", say("Lengths in"), { m: say("metres"), ft: say("feet") }, UNIT),
    choice("times", say("Times in"), { local: say("local time"), utc: "UTC" }, UTC ? "utc" : "local"));
}
