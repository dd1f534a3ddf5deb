// How this browser shows things: language, form of positions, units. It keeps what was chosen.

import { FORMS } from "./coordinates.js";
import { LANGUAGES, keep, kept, language, say } from "./language.js";
import { UNIT, by, element } from "./text.js";

const form = Object.hasOwn(FORMS, kept("positions")) ? kept("positions") : "decimal";

/** A place in words, of its latitude and longitude. */
export const placeInWords = place => FORMS[form](...place);

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
