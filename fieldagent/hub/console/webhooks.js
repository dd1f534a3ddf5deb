// Webhooks, as an administrator tries and adds them, and what they did not take.

import { act, button, deeds, filled, flag, form, line, list, once, sure } from "./acts.js";
import { call } from "./hub.js";
import { counted } from "./language.js";
import { by, clock, element } from "./text.js";

function state(hook) {
  if (hook.disabled !== null) return `disabled since ${clock(hook.disabled)} UTC: ${hook.reason}`;
  return hook.failingSince !== null ? `failing since ${clock(hook.failingSince)} UTC` : "well";
}

function hook(each) {
  const path = `/api/webhooks/${each.id}`;
  const go = (method, where, done) => () => act(async () => { await call(method, where); return done; }, loadWebhooks);
  return element("li", { class: "row" },
    element("strong", {}, each.url), " ",
    [each.after ? `for an SOS that nobody answered for ${counted(each.after, "{n} minute", "{n} minutes")}` : "", each.signed ? "" : "not signed",
      state(each), each.waiting && `${each.waiting} wait`, each.dead && `${each.dead} were not taken`].filter(Boolean).join(", "),
    deeds(
      button(`hook-${each.id}-test`, "Test", go("POST", `${path}/test`, `${each.url} took the test message.`)),
      ...each.disabled === null ? [] : [
        button(`hook-${each.id}-enable`, "Enable", go("POST", `${path}/enable`, "What waits is posted now."))],
      button(`hook-${each.id}-remove`, "Remove", sure(`Remove ${each.url}, with all that waits for it?`,
        go("DELETE", path, `${each.url} is removed.`)))));
}

const replay = body => () => act(async () => {
  const { replayed } = await call("POST", "/api/webhook-failures/replay", body);
  return `${counted(replayed, "{n} post", "{n} posts")} tried again.`;
}, loadWebhooks);

const failure = ({ webhook, requestId, accepted, attempts, reason }) => element("li", { class: "row" },
  `${clock(accepted)} UTC, webhook ${webhook}, after ${counted(attempts, "{n} try", "{n} tries")}: ${reason} `,
  button(`replay-${webhook}-${requestId}`, "Post it again", replay({ requestId })));

export async function loadWebhooks() {
  const [{ webhooks }, { failures }] = [await call("GET", "/api/webhooks"), await call("GET", "/api/webhook-failures")];
  list("admin-webhooks", webhooks.map(hook), "No webhook yet.");
  by("admin-failures").hidden = failures.length === 0;
  list("admin-failed", [...failures.map(failure),
    ...failures.length > 1 ? [element("li", {}, button("replay-all", "Post all of them again", replay()))] : []], "");
}

const add = () => act(async () => {
  const body = filled("new-webhook", ["url", "after", "untried"]);
  const told = await call("POST", "/api/webhooks", body);
  by("new-webhook-url").value = "";
  once(`The secret that signs what is posted to ${body.url}`, told.secret);
  return `${body.url} is added.`;
}, loadWebhooks);

export const newWebhook = () => form("Add a webhook", add, { id: "new-webhook-add", text: "Try it and add it" },
  line("new-webhook-url", "URL, which begins with https://", { type: "url" }),
  line("new-webhook-after", "For an SOS alone, where nobody answered for so many minutes", { type: "number", min: "1", max: "10080" }),
  flag("new-webhook-untried", "Add it without a test message"));
