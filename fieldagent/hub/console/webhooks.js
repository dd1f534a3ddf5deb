// Webhooks: an administrator adds and tests them, and sees the items that they did not accept.

import { act, button, deeds, emptied, filled, flag, form, line, list, once, sure } from "./acts.js";
import { call, postOnce } from "./hub.js";
import { counted, say } from "./language.js";
import { by, element, moment } from "./text.js";

function state(hook) {
  if (hook.disabled !== null) return say("disabled since {time}: {why}", { time: moment(hook.disabled), why: hook.reason });
  if (hook.failingSince === null) return say("OK");
  const time = moment(hook.failingSince);
  return hook.reason ? say("failing since {time}: {why}", { time, why: hook.reason }) : say("failing since {time}", { time });
}

function hook(each) {
  const path = `/api/webhooks/${each.id}`, { url } = each;
  const go = (method, where, done) => () => act(async () => { await call(method, where); return done; }, loadWebhooks);
  return element("li", { class: "row" },
    element("strong", {}, each.url), " ",
    [each.after ? say("for an SOS without an answer for {span}", { span: counted(each.after, "{n} minute", "{n} minutes") }) : "", each.signed ? "" : say("not signed"),
      state(each), each.waiting && say("{n} waiting", { n: each.waiting }), each.dead && say("{n} were not accepted", { n: each.dead })].filter(Boolean).join(", "),
    deeds(
      button(`hook-${each.id}-test`, say("Test"), go("POST", `${path}/test`, say("{url} accepted the test message.", { url }))),
      ...each.disabled === null ? [] : [
        button(`hook-${each.id}-enable`, say("Enable"), go("POST", `${path}/enable`, say("Waiting items are posted now.")))],
      button(`hook-${each.id}-secret`, say("New secret"), () => act(async () => {
        const { secret } = await postOnce(`${path}/secret`, {});
        once(say("The secret that signs posts to {url}", { url }), secret);
        return say("Posts to {url} are signed with this secret, and with the old secret until the next change.", { url });
      }, loadWebhooks)),
      button(`hook-${each.id}-remove`, say("Remove"), sure(say("Remove {url} and everything that waits for it?", { url }),
        go("DELETE", path, say("{name} is removed.", { name: url }))))));
}

const replay = body => () => act(async () => {
  const { replayed } = await call("POST", "/api/webhook-failures/replay", body);
  return counted(replayed, "{n} post tried again.", "{n} posts tried again.");
}, loadWebhooks);

const failure = ({ webhook, requestId, accepted, attempts, reason }) => element("li", { class: "row" },
  `${say("{time}, webhook {id}, after {tries}: {why}", { time: moment(accepted), id: webhook, tries: counted(attempts, "{n} try", "{n} tries"), why: reason })} `,
  button(`replay-${webhook}-${requestId}`, say("Post it again"), replay({ requestId })));

export async function loadWebhooks() {
  const [{ webhooks }, { failures }] = [await call("GET", "/api/webhooks"), await call("GET", "/api/webhook-failures")];
  list("admin-webhooks", webhooks.map(hook), say("No webhook yet."));
  by("admin-failures").hidden = failures.length === 0;
  list("admin-failed", [...failures.map(failure),
    ...failures.length > 1 ? [element("li", {}, button("replay-all", say("Post all of them again"), replay()))] : []], "");
}

const add = () => act(async () => {
  const body = filled("new-webhook", ["url", "after", "untried"]);
  const told = await call("POST", "/api/webhooks", body);
  emptied("new-webhook", ["url"], body);
  once(say("The secret that signs posts to {url}", { url: body.url }), told.secret);
  return say("{name} is added.", { name: body.url });
}, loadWebhooks);

export const newWebhook = () => form(say("Add a webhook"), add, { id: "new-webhook-add", text: say("Test and add") },
  line("new-webhook-url", say("URL, beginning with https://"), { type: "url" }),
  line("new-webhook-after", say("Only for an SOS that has had no answer for this many minutes"), { type: "number", min: "1", max: "10080" }),
  flag("new-webhook-untried", say("Add without a test message")));
