// The SOS first, and alone: its button acts before anything else of the page is asked for, and what
// else fails to load, or fails as it runs, does not touch it.

import { call, seldom } from "./agent.js";
import { say, spoken } from "./language.js";
import { setUpSos, showAlarms } from "./sos.js";
import { by, tell } from "./text.js";

const AGAIN = 5_000;

/** What is looked at anew once something was sent; of the whole page as soon as that is there. */
let look = seldom(async () => showAlarms((await call("GET", "/api/status")).sos), AGAIN, () => {});
const alone = setInterval(() => look(), AGAIN);

setUpSos(() => look());
spoken.then(() => look());
import("./page.js").then(page => {
  clearInterval(alone);
  look = page.lookAtAll;
}).catch(() => {
  tell("away", say("A part of this page did not load: reload it. SOS works all the same."));
  by("away").hidden = false;
});
