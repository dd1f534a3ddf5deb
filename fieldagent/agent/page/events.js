// Events from the agent.

import { follow } from "./stream.js";

const TOPICS = ["package", "inbound", "link", "sos"];

/** Calls `happened` for each event, with `alive` at each sign of life, and with `connected` and
 * `lost` when the page must load everything again. */
export function listen(happened) {
  const tell = what => told => happened(what, told);
  follow(`/api/events?topics=${TOPICS}`,
    Object.fromEntries([...TOPICS, "lost"].map(topic => [topic, tell(topic)])), {
      connected: tell("connected"), alive: tell("alive"),
      away: tell("away"),
    });
}
