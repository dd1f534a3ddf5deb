// The cost of a device's satellite messages by day: the hub's count beside its operator's.

import { call, trouble } from "./hub.js";
import { counted, say } from "./language.js";
import { parts } from "./parts.js";
import { element } from "./text.js";

const UNITS = { credit: ["{n} credit", "{n} credits"], byte: ["{n} byte", "{n} bytes"] };
const priced = (count, unit, money) => count === null ? say("not imported")
  : `${counted(count, ...UNITS[unit])}${money ? `, ${money}` : ""}`;

const day = each => element("tr", {}, [
  each.day,
  priced(each.hubCount, each.unit, each.money),
  priced(each.operator, each.unit, each.operatorMoney),
  each.operator === null ? "" : each.difference || say("none"),
].map(text => element("td", {}, text)));

/** Returns the sum of the days that are paid in credits. Bytes are not added up. */
function sum({ since, until, total }) {
  const told = [say("{since} to {until}: {cost} here", { since, until, cost: priced(total.hubCount, "credit", total.money) })];
  if (total.operator || total.importedHubCount)
    told.push(say("on the imported days: {here} at the hub and {there} at the operator",
      { here: priced(total.importedHubCount, "credit", total.importedMoney), there: priced(total.operator, "credit", total.operatorMoney) }));
  return `${told.join("; ")}.`;
}

const table = told => [
  element("p", {}, sum(told)),
  element("div", { class: "wide", tabindex: "0", role: "group", "aria-label": say("Cost by day") }, element("table", {},
    element("thead", {}, element("tr", {}, [say("Day (UTC)"), say("Here"), say("Operator"), say("Difference")].map(each => element("th", {}, each)))),
    element("tbody", {}, told.usage.map(day)))),
];

/** Returns the cost of a device. It loads when a person opens it. */
export function cost(device) {
  const shown = element("div", {});
  const load = async () => {
    const told = await call("GET", `/api/devices/${device.id}/usage`);
    shown.replaceChildren(...told.usage.length ? table(told)
      : [element("p", { class: "quiet" }, say("Nothing was counted from {since} to {until}.", { since: told.since, until: told.until }))], ...parts.flatMap(each => each.linksOf?.(device) ?? []));
  };
  const toggled = event => {
    event.stopPropagation();
    if (whole.open) load().catch(trouble);
  };
  const whole = element("details", { id: `device-${device.id}-cost`, ontoggle: toggled },
    element("summary", {}, say("Satellite cost")), shown);
  return whole;
}
