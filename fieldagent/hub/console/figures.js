// The fleet: a row of figures for each kit. The hub decides which kits differ from the others, and
// these come first.

import { call } from "./hub.js";
import { here } from "./place.js";
import { putRows } from "./rows.js";
import { say, spoken, term } from "./language.js";
import { age, ago, by, element, moment, now, put, tell } from "./text.js";

await spoken;

/** Seconds. A clock with a smaller error is correct. */
const RIGHT = 2;

/** Texts about figures that differ from other kits, by the hub's names. */
const UNLIKE = {
  overdue: values => say("check-in was due by {time}", values),
  trouble: () => say("its agent is in trouble: ask for its log"),
  parts: values => say("parts of its agent have failed: {own}", values),
  disk: values => say("{own} % of its disk is free", values),
  "disk-others": values => say("{own} % of its disk is free; the others have {most} %", values),
  supply: () => say("its supply is too weak"),
  "supply-before": () => say("its supply was too weak since it was started"),
  slowed: () => say("its processor is slowed down, by heat or a weak supply"),
  "slowed-before": () => say("its processor was slowed down since it was started"),
  degrees: values => say("its processor is at {own} °C", values),
  "degrees-others": values => say("its processor is at {own} °C; those of the others at {most} °C", values),
  "clock-ahead": values => say("its clock is ahead by {age}", values),
  "clock-behind": values => say("its clock is behind by {age}", values),
  "clock-untold": () => say("it has no time source"),
  starts: values => say("its agent was started {own} times in a day", values),
  "starts-others": values => say("its agent was started {own} times in a day; those of the others: {most}", values),
  satellite: values => say("it has seen no satellite for {own} hours", values),
  "satellite-others": values => say("it hears satellites with {own} of 5; the others with {most}", values),
  budget: () => say("its budget of today is spent"),
  "budget-others": values => say("{own} % of its budget of today is left; the others have {most} %", values),
  version: values => say("runs {own}; {n} of {all} run {most}", values),
  system: values => say("its system is {own}; {n} of {all} have {most}", values),
};

/** Reasons of the last start of a machine. */
const CAUSES = {
  unknown: say("the reason is unknown"), command: say("by the hub's command"), power: say("power on"),
  reset: say("a reset, or the watchdog"), watchdog: say("its watchdog"), shutdown: say("it was stopped in order before"),
  "cut-off": say("it was cut off: power, watchdog or crash"),
};
const HELD = {
  "under-voltage": say("voltage too low"), "frequency-capped": say("slowed down"),
  throttled: say("throttled"), "temperature-limit": say("too warm"),
};
const CHANNELS = { satellite: term("Satellite"), radio: term("Radio"), cellular: term("Cellular") };

function sentence({ id, text, values }) {
  const worded = { ...values };
  if (values.time !== undefined) worded.time = moment(values.time);
  if (values.age !== undefined) worded.age = age(values.age);
  return UNLIKE[id]?.(worded) ?? text;
}

const findings = kit => element("ul", {}, kit.findings.map(each => element("li", { class: each.problem ? "bad" : null }, sentence(each))));

function heard(kit) {
  if (kit.revoked) return say("it is revoked");
  if (kit.disabled) return say("it is disabled");
  return kit.linked ? say("linked now") : kit.lastContact ? ago(now() - kit.lastContact) : say("never");
}

const started = ({ status, about }) => status && [ago(now() - status.booted), about ? `: ${CAUSES[about.bootCause] ?? about.bootCause}` : ""].join("");

function supply({ status, about }) {
  const found = status?.voltage == null ? [] : [`${status.voltage.toFixed(2)} V`];
  const held = about?.throttling;
  if (held) found.push(...held.now.map(each => HELD[each] ?? each),
    ...held.sinceBoot.filter(each => !held.now.includes(each)).map(each => say("{what}, since its start", { what: HELD[each] ?? each })));
  if (held && !held.now.length && !held.sinceBoot.length) found.push(say("no problems"));
  return found.join("; ");
}

function clock({ status, about }) {
  if (!status) return "";
  if (status.clockFrom === null) return say("it has no time source");
  const ahead = about?.clockAhead ?? null;
  if (ahead === null) return "";
  if (Math.abs(ahead) < RIGHT) return say("right");
  return ahead > 0 ? say("ahead by {age}", { age: age(ahead) }) : say("behind by {age}", { age: age(-ahead) });
}

/** Returns 24 bars, the oldest first. A screen reader reads the numbers. */
function chart(channel, hours) {
  const label = say("{channel}, bars of each hour, the oldest first: {bars}", { channel, bars: hours.map(each => each ?? "–").join(" ") });
  return element("p", {}, `${channel} `, element("span", { class: "bars", role: "img", "aria-label": label, title: label },
    hours.map(each => element("i", { class: each === null ? null : `b${each}` }))));
}

function signal({ status, about }) {
  const charts = Object.entries(about?.signals ?? {}).filter(([, hours]) => hours.some(each => each !== null))
    .map(([name, hours]) => chart(CHANNELS[name] ?? name, hours));
  if (charts.length || !status) return charts;
  return Object.entries(status.links).filter(([, link]) => link.signal !== null)
    .map(([name, link]) => element("p", {}, say("{channel}: {bars} of 5", { channel: CHANNELS[name] ?? name, bars: link.signal })));
}

function credits({ status, credits: account }) {
  if (status?.creditsLeft != null) return say("{n} left", { n: status.creditsLeft });
  return account ? say("{n} left at the hub", { n: account.perDay - account.spent }) : "";
}

/** Returns the age of the figures and their bearer. */
function told({ status, about }) {
  if (!status) return say("no report yet");
  const [bearer, doubt] = status.over.split(", ");
  const how = [term(bearer), doubt ? say("not authenticated") : ""].filter(Boolean).join(", ");
  const others = about && about.at < status.at - 60 ? say("system, supply, clock and signal by the hour {ago}", { ago: ago(now() - about.at) }) : "";
  return [`${ago(now() - status.at)} (${how})`, others].filter(Boolean).join("; ");
}

const COLUMNS = [
  [say("Unusual"), findings],
  [say("Last heard"), heard],
  [say("Next check-in"), kit => kit.nextCheckIn ? moment(kit.nextCheckIn.due) : ""],
  [say("Program"), kit => kit.version],
  [say("System"), kit => kit.about?.system],
  [say("Last start"), started],
  [say("Disk"), ({ status }) => status ? say("{percent} % free", { percent: 100 - status.diskUsed }) : ""],
  [say("Temperature"), ({ status }) => status?.temperature == null ? "" : `${status.temperature} °C`],
  [say("Supply"), supply],
  [say("Clock"), clock],
  [say("Signal of 24 hours"), signal],
  [say("Credits"), credits],
  [say("Notified"), told],
];

const isEmpty = shown => shown === null || shown === undefined || shown === "" || shown.length === 0 || (shown instanceof Element && !shown.childNodes.length);

const row = (kit, columns) => element("tr", { role: "row", class: kit.findings.some(each => each.problem) ? "bad" : null },
  element("th", { scope: "row", role: "rowheader" },
    element("a", { href: `/console/kit/${kit.id}`, id: `figures-${kit.id}`, "data-place": true }, kit.name),
    element("span", { class: "quiet" }, ` ${kit.user.name}`)),
  columns.map(([name, of]) => {
    const shown = of(kit);
    return element("td", { role: "cell", "data-label": name, class: isEmpty(shown) ? "none" : null }, isEmpty(shown) ? "" : shown);
  }));

/** Loads the figures if the fleet is shown. */
export async function showFigures() {
  if (!here().fleet) return;
  const { kits, more } = await call("GET", "/api/fleet");
  const some = kits.filter(each => each.findings.length).length;
  const columns = COLUMNS.filter(([, of]) => kits.some(kit => !isEmpty(of(kit))));
  put("figures-head", [say("Kit"), ...columns.map(([name]) => name)].map(name => element("th", { scope: "col", role: "columnheader" }, name)));
  putRows("figures-kits", kits, kit => row(kit, columns));
  tell("figures-told", !kits.length ? say("No kit yet.")
    : say("Unusual or in trouble: {some} of {n}.", { some, n: kits.length }) + (more ? ` ${say("{n} more are not compared.", { n: more })}` : ""));
}
