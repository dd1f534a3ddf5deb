// How far something has come with a person: the rungs of the ladder in docs/local-api.md, by the
// names that both APIs have for them.

import { say } from "./language.js";

/** A step of it. What a later version has is told in that one's own words. */
export function rungInWords({ rung, who: name, detail, text }) {
  const who = name || say("the addressee");
  const values = { who, detail };
  if (rung === "read")
    return !detail ? say("read at {who}'s kit", values)
      : detail === who ? say("read by {who}", values) : say("read by {detail}, at {who}'s kit", values);
  return {
    stored: say("on {who}'s kit", values), programs: say("with {who}'s programs", values),
    handed_over: say("handed over to {detail}, for {who}", values),
    nobody: say("{who} cannot be reached: {detail}", values), radio: say("on {who}'s radio", values),
  }[rung] ?? text;
}
