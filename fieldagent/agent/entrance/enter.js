// Sign-in to the kit's page.

import { language, say } from "./language.js";
import { by, tell } from "./text.js";

/** Milliseconds to wait for the kit's answer. A small kit needs some time to check a pass
 * phrase. */
const PATIENCE = 30_000;

by("enter").addEventListener("submit", async event => {
  event.preventDefault();
  by("go").disabled = true;
  try {
    const answer = await fetch("/enter/session", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Accept-Language": language },
      body: JSON.stringify({ passPhrase: by("phrase").value }),
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (answer.ok) return location.replace("/");
    tell("fault", (await answer.json()).detail);
  } catch {
    tell("fault", say("The kit does not answer. Check that you are in its network, then try again."));
  }
  by("go").disabled = false;
  by("phrase").focus();
});
