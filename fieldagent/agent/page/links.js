// The state of each link, its cost today, and problems that need attention.

import { counted, say, term } from "./language.js";
import { age, ago, element, moment, plain, put, tell } from "./text.js";

const LOOKS = {
  ready: "good", busy: "good", starting: "unsure", "no service": "unsure", absent: "bad",
  fault: "bad",
};

const SVG = "http://www.w3.org/2000/svg";
/** Seconds that the plot shows. */
const SHOWN = 14_400;
const KITS = 30;

/** Shows the links. `air` lists kits heard by radio, the last one first, or is null. */
export function showLinks(status, signals, air) {
  const configured = Object.entries(status.channels).filter(([, link]) => link.configured);
  put("links", configured.length ? configured.map(([name, link]) => card(name, link,
      plot(signals[name] ?? [], status.clock.time), name === "Radio" && air ? neighbours(air, status.clock.time) : null)) : [
    element("p", { class: "notice" }, say("No channel is configured: set satellite-port, radio-port or hub-address in agent.properties, and restart the agent.")),
  ]);
  tell("agent", say("version {version}, up for {age}; it is {time}",
    { version: status.version, age: age(status.uptime), time: moment(status.clock.time) }));
  put("notices", notices(status).map(text => element("li", {}, text)));
}

function card(name, link, plotted, around) {
  const last = link.lastSuccess ? say("last success {time}", { time: moment(link.lastSuccess) }) : say("no success yet");
  return element("article", { class: `link ${LOOKS[link.state] ?? "unsure"}`, "aria-label": term(name) },
    element("h3", {}, term(name), bars(link.signal)),
    element("p", { class: "condition" }, term(link.state), link.reason ? `: ${link.reason}` : ""),
    element("p", { class: "hint" }, `${say("{n} waiting", { n: link.queued })} · ${last}`, inRange(link)),
    plotted, cost(link), around);
}

function neighbours(air, now) {
  const near = air.neighbours.filter(each => each.inRange).slice(0, KITS);
  return [
    kits(say("Kits in range"), near, each => [
      say("direct"),
      each.version === null ? "" : say("version {version}", { version: each.version }),
      say("heard {ago}", { ago: ago(now - each.lastHeard) }),
      each.rssi === null ? "" : `${each.rssi} dBm`,
      each.snr === null ? "" : `SNR ${each.snr} dB`,
      each.hopsToHub === null ? "" : each.hopsToHub ? say("reaches the hub through other kits") : say("reaches the hub"),
      each.routeBatteryLow ? say("a battery on this route is low") : "",
      each.missing.length ? say("missing: {numbers}", { numbers: each.missing.join(", ") }) : "",
    ]),
    kits(say("Kits out of range"), air.remoteStations.slice(0, KITS), each => [counted(each.hops, "{n} hop", "{n} hops")]),
  ];
}

function kits(label, listed, facts) {
  return listed.length ? element("ul", { class: "hint", "aria-label": label }, listed.map(each =>
    element("li", {}, element("strong", {}, each.name ?? say("station {number}", { number: each.station })),
      ` ${facts(each).filter(Boolean).join(" · ")}`))) : null;
}

/** Returns a plot with gaps for unknown signals, or null if all are unknown. */
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
  const text = say("signal for {age}: from {least} to {most} of 5 bars",
    { age: age(now - begin), least: Math.min(...seen), most: Math.max(...seen) });
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

function inRange(link) {
  const air = link.airTimeLeft === undefined ? "" : ` · ${say("{age} of airtime left this hour", { age: age(link.airTimeLeft) })}`;
  return link.neighbours === undefined ? "" : ` · ${counted(link.neighbours, "{n} kit in range", "{n} kits in range")}${air}`;
}

function bars(signal) {
  if (signal === null) return null;
  const drawn = [1, 2, 3, 4, 5].map(bar => element("i", { class: bar <= signal ? "on" : null }));
  return element("span", { class: "signal" }, say("signal {bars} of 5", { bars: signal }),
    element("span", { class: "bars", "aria-hidden": "true" }, drawn));
}

function cost(link) {
  const most = link.creditsToday + link.creditsInDoubtToday;
  const known = most > link.creditsToday ? `${link.creditsToday}–${most}` : `${most}`;
  if (link.creditsPerDay === null || link.creditsPerDay === undefined)
    return most
      ? element("p", { class: "hint" },
        counted(most, "{spent} credit today", "{spent} credits today", { spent: known }) + (link.moneyToday ? `: ${link.moneyToday}` : ""))
      : null;
  const money = link.moneyToday ? `: ${link.moneyToday}` : "";
  const kept = link.creditsForSos ? `, ${say("{n} reserved for an SOS", { n: link.creditsForSos })}` : "";
  const text = counted(link.creditsPerDay, "{spent} of {n} credit used today", "{spent} of {n} credits used today", { spent: known })
    + kept + money;
  const part = Math.min(100, 100 * most / Math.max(1, link.creditsPerDay));
  const open = 100 * (link.creditsPerDay - link.creditsForSos) / Math.max(1, link.creditsPerDay);
  const bar = element("span", { class: part >= open ? "spent full" : "spent" });
  const mark = element("span", { class: "kept" });
  bar.style.width = `${part}%`;
  mark.style.insetInlineStart = `${open}%`;
  return element("div", { class: "money" },
    element("div", {
      class: "bar", role: "meter", "aria-label": say("budget of today"), "aria-valuemin": "0",
      "aria-valuemax": String(link.creditsPerDay), "aria-valuenow": String(most),
      "aria-valuetext": plain(text),
    }, bar, link.creditsForSos ? mark : null),
    element("p", { class: "hint" }, text));
}

function checkIn(asked) {
  if (!asked) return [];
  const what = asked.within === null ? say("Check-in done") : asked.within % 3600
    ? say("Check-in every {n} min", { n: asked.within / 60 }) : say("Check-in every {n} h", { n: asked.within / 3600 });
  const how = asked.confirmed !== null
    ? say("received by the hub, which raises an alarm if it hears nothing by {time}.", { time: moment(asked.due) })
    : ["Delivered", null].includes(asked.status) ? say("the hub has not confirmed it yet.")
      : say("it has not reached the hub. Send it again: fieldagent checkin.");
  return [`${what}: ${how}`];
}

function notices(status) {
  const told = checkIn(status.checkIn);
  if (status.journal.full)
    told.push(say("The disk is full: the agent waits until you free space."));
  for (const loss of status.journal.losses) told.push(`${moment(loss.at)}: ${loss.text}`);
  if (!status.clock.trusted)
    told.push(say("The clock is not confirmed since the start. Connect a network or a GPS receiver (chrony, gpsd), or set the clock."));
  told.push(...status.notices);
  const letters = status.deadLetters;
  if (letters.latest)
    told.push(counted(letters.kept,
      "{n} received message could not be used; last over {channel}, {time}: {reason}. fieldagent inbound list shows them.",
      "{n} received messages could not be used; last over {channel}, {time}: {reason}. fieldagent inbound list shows them.",
      { channel: term(letters.latest.channel), time: moment(letters.latest.received), reason: letters.latest.reason }));
  for (const fault of status.faults)
    told.push(counted(fault.times, "{part} failed {n} time; last {time}: {error}.", "{part} failed {n} times; last {time}: {error}.",
      { part: fault.part, time: moment(fault.at), error: fault.error })
      + ` ${fault.down ? say("It does not recover.") : say("It was started again.")}`);
  return told;
}
