// How each link is doing, what it has cost today, and what needs attention.

import { age, clock, counted, element, plain, put, tell } from "./text.js";

const LOOKS = {
  ready: "good", busy: "good", starting: "unsure", "no service": "unsure", absent: "bad",
  fault: "bad",
};

export function showLinks(status) {
  const configured = Object.entries(status.channels).filter(([, link]) => link.configured);
  put("links", configured.length ? configured.map(([name, link]) => card(name, link)) : [
    element("p", { class: "notice" }, "No channel is configured: set satellite-port, radio-port or"
      + " hub-address in agent.properties, and restart the agent."),
  ]);
  tell("agent", `version ${status.version}, up for ${age(status.uptime)};`
    + ` it is ${clock(status.clock.time)} UTC`);
  put("notices", notices(status).map(text => element("li", {}, text)));
}

function card(name, link) {
  const last = link.lastSuccess ? `last success ${clock(link.lastSuccess)}` : "no success yet";
  return element("article", { class: `link ${LOOKS[link.state] ?? "unsure"}`, "aria-label": name },
    element("h3", {}, name, bars(link.signal)),
    element("p", { class: "condition" }, link.state, link.reason ? `: ${link.reason}` : ""),
    element("p", { class: "hint" }, `${link.queued} waiting · ${last}`, inEarshot(link)),
    cost(link));
}

function inEarshot(link) {
  return link.neighbours === undefined ? "" : ` · ${counted(link.neighbours, "kit")} in earshot`;
}

function bars(signal) {
  if (signal === null) return null;
  const drawn = [1, 2, 3, 4, 5].map(bar => element("i", { class: bar <= signal ? "on" : null }));
  return element("span", { class: "signal" }, `signal ${signal} of 5`,
    element("span", { class: "bars", "aria-hidden": "true" }, drawn));
}

function cost(link) {
  const spent = counted(link.creditsToday, "credit");
  if (link.creditsPerDay === null || link.creditsPerDay === undefined)
    return link.creditsToday ? element("p", { class: "hint" }, `${spent} today`) : null;
  const kept = link.creditsForSos ? `, ${link.creditsForSos} kept for an SOS` : "";
  const text = `${link.creditsToday} of ${counted(link.creditsPerDay, "credit")} spent today${kept}`;
  const part = Math.min(100, 100 * link.creditsToday / Math.max(1, link.creditsPerDay));
  const open = 100 * (link.creditsPerDay - link.creditsForSos) / Math.max(1, link.creditsPerDay);
  const bar = element("span", { class: part >= open ? "spent full" : "spent" });
  const mark = element("span", { class: "kept" });
  bar.style.width = `${part}%`;
  mark.style.left = `${open}%`;
  return element("div", { class: "money" },
    element("div", {
      class: "bar", role: "meter", "aria-label": "budget of today", "aria-valuemin": "0",
      "aria-valuemax": String(link.creditsPerDay), "aria-valuenow": String(link.creditsToday),
      "aria-valuetext": plain(text),
    }, bar, link.creditsForSos ? mark : null),
    element("p", { class: "hint" }, text));
}

function checkIn(asked) {
  if (!asked) return [];
  const what = asked.within === null ? "Check-in done" : "Check-in every "
    + (asked.within % 3600 ? `${asked.within / 60} min` : `${asked.within / 3600} h`);
  if (asked.confirmed !== null)
    return [`${what}: the hub has it, and raises the alarm where it hears nothing by ${clock(asked.due)} UTC.`];
  return [["Delivered", null].includes(asked.status) ? `${what}: the hub has not confirmed it yet.`
    : `${what}: it has not reached the hub. Say it again: fieldagent checkin.`];
}

function notices(status) {
  const told = checkIn(status.checkIn);
  if (status.journal.full)
    told.push("The disk is full: make room on it; nothing goes on before.");
  for (const loss of status.journal.losses) told.push(`${clock(loss.at)}: ${loss.text}`);
  if (!status.clock.trusted)
    told.push("Nobody has confirmed the clock since the start: connect a network or a GPS receiver"
      + " (chrony, gpsd), or set it.");
  told.push(...status.notices);
  const letters = status.deadLetters;
  if (letters.latest)
    told.push(`${counted(letters.kept, "message")} that came could not be used; the last over`
      + ` ${letters.latest.channel}, ${clock(letters.latest.received)}: ${letters.latest.reason}.`
      + " fieldagent inbound list shows them.");
  for (const fault of status.faults)
    told.push(`${fault.part} failed ${counted(fault.times, "time")}`
      + ` ${fault.down ? "and does not recover" : "and was started again"}; last`
      + ` ${clock(fault.at)}: ${fault.error}.`);
  return told;
}
