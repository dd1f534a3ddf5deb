// Starts the SOS before everything else: its button works before the page loads its other parts. A
// part that does not load, or fails later, does not affect it.

import { call, seldom } from "./agent.js";
import { say, spoken } from "./language.js";
import { setUpSos, showAlarms } from "./sos.js";
import { by, tell } from "./text.js";

const AGAIN = 5_000;

/** Loads the state again after a send. Later the whole page replaces this function. */
let look = seldom(async () => showAlarms((await call("GET", "/api/status")).sos), AGAIN, () => {});
const alone = setInterval(() => look(), AGAIN);

setUpSos(() => look());
spoken.then(() => look());
import("./page.js").then(page => {
  clearInterval(alone);
  look = page.lookAtAll;
}).catch(() => {
  tell("away", say("A part of this page did not load. Reload the page. SOS works anyway."));
  by("away").hidden = false;
});
