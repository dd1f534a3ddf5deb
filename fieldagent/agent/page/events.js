// What the agent tells by itself.

import { follow } from "./stream.js";

const TOPICS = ["package", "inbound", "link", "sos"];

/** Tells of every event, of `alive` at each sign of life, and with `connected` and `lost` when all
 * must be looked at anew. */
export function listen(happened) {
  const tell = what => told => happened(what, told);
  follow(`/api/events?topics=${TOPICS}`,
    Object.fromEntries([...TOPICS, "lost"].map(topic => [topic, tell(topic)])), {
      connected: tell("connected"), alive: tell("alive"),
      away: tell("away"),
    });
}
