// How each link is doing, what it has cost today, and what needs attention.

import { age, clock, counted, element, plain, put, tell } from "./text.js";

const LOOKS = {
  ready: "good", busy: "good", starting: "unsure", "no service": "unsure", absent: "bad",
  fault: "bad",
};

const SVG = "http://www.w3.org/2000/svg";
/** Seconds. */
const SHOWN = 14_400;
const KITS = 30;

/** `kits` are those that were heard by radio, the last first. */
export function showLinks(status, signals, kits) {
  const configured = Object.entries(status.channels).filter(([, link]) => link.configured);
  put("links", configured.length ? configured.map(([name, link]) => card(name, link,
      plot(signals[name] ?? [], status.clock.time), name === "Radio" ? neighbours(kits, status.clock.time) : null)) : [
    element("p", { class: "notice" }, "No channel is configured: set satellite-port, radio-port or"
      + " hub-address in agent.properties, and restart the agent."),
  ]);
  tell("agent", `version ${status.version}, up for ${age(status.uptime)};`
    + ` it is ${clock(status.clock.time)} UTC`);
  put("notices", notices(status).map(text => element("li", {}, text)));
}

function card(name, link, plotted, around) {
  const last = link.lastSuccess ? `last success ${clock(link.lastSuccess)}` : "no success yet";
  return element("article", { class: `link ${LOOKS[link.state] ?? "unsure"}`, "aria-label": name },
    element("h3", {}, name, bars(link.signal)),
    element("p", { class: "condition" }, link.state, link.reason ? `: ${link.reason}` : ""),
    element("p", { class: "hint" }, `${link.queued} waiting · ${last}`, inEarshot(link)),
    plotted, cost(link), around);
}

function neighbours(kits, now) {
  const near = kits.filter(each => each.inEarshot).slice(0, KITS);
  return near.length ? element("ul", { class: "hint", "aria-label": "Kits in earshot" }, near.map(each =>
    element("li", {}, element("strong", {}, each.name ?? `station ${each.station}`), ` ${[
      `heard ${age(now - each.lastHeard)} ago`,
      each.rssi === null ? "" : `${each.rssi} dBm`,
      each.snr === null ? "" : `SNR ${each.snr} dB`,
      each.hopsToHub === null ? "" : each.hopsToHub ? "reaches the hub over others" : "reaches the hub",
      each.lacks.length ? `lacks ${each.lacks.join(", ")}` : "",
    ].filter(Boolean).join(" · ")}`))) : null;
}

/** Steps from left to right; none where the signal is unknown. */
function plot(signals, now) {
  if (!signals.some(each => each.signal !== null)) return null;
  const begin = Math.max(signals[0].at, now - SHOWN);
  const across = at => (100 * Math.max(0, at - begin) / Math.max(1, now - begin)).toFixed(1);
  const steps = signals.map((each, place) => {
    const end = signals[place + 1]?.at ?? now;
    if (each.signal === null || end <= begin) return "";
    const height = 21 - 4 * each.signal;
    return `M${across(each.at)} ${height}H${across(end)}`;
  }).join("");
  if (!steps) return null;
  const seen = signals.filter((each, place) => (signals[place + 1]?.at ?? now) > begin)
    .map(each => each.signal).filter(bars => bars !== null);
  const text = `signal for ${age(now - begin)}: from ${Math.min(...seen)} to ${Math.max(...seen)} of 5 bars`;
  return element("div", { class: "plot", role: "img", "aria-label": text, title: text },
    drawing(steps));
}

function drawing(steps) {
  const [svg, path] = ["svg", "path"].map(tag => document.createElementNS(SVG, tag));
  svg.setAttribute("viewBox", "0 0 100 22");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", steps);
  svg.append(path);
  return svg;
}

function inEarshot(link) {
  const air = link.airTimeLeft === undefined ? "" : ` · ${age(link.airTimeLeft)} of air-time left in this hour`;
  return link.neighbours === undefined ? "" : ` · ${counted(link.neighbours, "kit")} in earshot${air}`;
}

function bars(signal) {
  if (signal === null) return null;
  const drawn = [1, 2, 3, 4, 5].map(bar => element("i", { class: bar <= signal ? "on" : null }));
  return element("span", { class: "signal" }, `signal ${signal} of 5`,
    element("span", { class: "bars", "aria-hidden": "true" }, drawn));
}

function cost(link) {
  const most = link.creditsToday + link.creditsDoubtfulToday;
  const known = most > link.creditsToday ? `${link.creditsToday} to ${most}` : `${most}`;
  const spent = most > link.creditsToday ? `${known} credits` : counted(most, "credit");
  if (link.creditsPerDay === null || link.creditsPerDay === undefined)
    return most
      ? element("p", { class: "hint" }, `${spent} today${link.moneyToday ? `: ${link.moneyToday}` : ""}`)
      : null;
  const money = link.moneyToday ? `: ${link.moneyToday}` : "";
  const kept = link.creditsForSos ? `, ${link.creditsForSos} kept for an SOS` : "";
  const text = `${known} of ${counted(link.creditsPerDay, "credit")} spent today${kept}${money}`;
  const part = Math.min(100, 100 * most / Math.max(1, link.creditsPerDay));
  const open = 100 * (link.creditsPerDay - link.creditsForSos) / Math.max(1, link.creditsPerDay);
  const bar = element("span", { class: part >= open ? "spent full" : "spent" });
  const mark = element("span", { class: "kept" });
  bar.style.width = `${part}%`;
  mark.style.left = `${open}%`;
  return element("div", { class: "money" },
    element("div", {
      class: "bar", role: "meter", "aria-label": "budget of today", "aria-valuemin": "0",
      "aria-valuemax": String(link.creditsPerDay), "aria-valuenow": String(most),
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
