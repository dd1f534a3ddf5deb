// The page at /track: the track of a day with its gaps, the time of the next position, and the
// interval of the tracker.

import { Away, call } from "./agent.js";
import { counted, say, term } from "./language.js";
import { near, showOnly } from "./map.js";
import { age, by, element, moment, now, put, tell } from "./text.js";

const INTERVALS = [300, 600, 900, 1800, 3600, 7200, 14400, 43200];
const SILENT = 180;

let chart = null, asked = 0, fitted = "";
/** The last answer for the shown day. */
let told = null;

/** Sets up the page. `map` is Leaflet's map, or null if Leaflet did not load. */
export function setUpTrack(map, failed) {
  chart = map;
  const look = () => lookAtTrack().catch(failed);
  by("track-day").addEventListener("change", look);
  by("pace-interval").addEventListener("change", () => showCost().catch(failed));
  by("pace").addEventListener("submit", event => {
    event.preventDefault();
    choose().catch(failed);
  });
  look();
}

/** Loads the chosen day, or today. */
export async function lookAtTrack() {
  const question = ++asked, day = by("track-day").value;
  const found = await call("GET", `/api/track${day ? `?day=${day}` : ""}`);
  if (question !== asked) return;
  told = found;
  // Do not overwrite the date field while a person types in it.
  if (document.activeElement !== by("track-day")) by("track-day").value = found.day;
  [by("track-day").min, by("track-day").max] = [found.days[0] ?? "", new Date(now() * 1000).toISOString().slice(0, 10)];
  tell("track-due", due(found.tracker));
  tell("track-told", `${counted(found.positions.length, "{n} position on this day.", "{n} positions on this day.")} `
    + say("A gap is more than {age} without a position.", { age: age(found.pause) }));
  put("gaps", found.gaps.map(gap => element("li", {}, inWords(gap))));
  draw(found);
  showPace(found);
}

function due(tracker) {
  if (tracker === null)
    return say("No tracker has reported since this agent started. It runs as a service: sudo systemctl enable --now fieldagent-track");
  if (now() - tracker.reportedAt > SILENT) return say("The tracker has not reported since {time}.", { time: moment(tracker.reportedAt) });
  if (tracker.due === null) return say("The next position is due when GPS has a fix.");
  const time = moment(tracker.due);
  return tracker.due < now() - SILENT ? say("A position was due at {time}. Check that the GPS antenna sees the sky.", { time })
    : say("The next position is due at {time} at the latest.", { time });
}

const inWords = ({ from, until }) => until === null
  ? say("No position since {from}: {age}", { from: moment(from), age: age(now() - from) })
  : say("{from} to {until}: {age}", { from: moment(from), until: moment(until), age: age(until - from) });

/** Draws the track. It has no line across a gap. */
function draw({ day, positions, pause }) {
  if (!chart) return;
  const legs = [];
  for (const { at, latitude, longitude } of positions) {
    if (!(at - legs.at(-1)?.at(-1).at <= pause)) legs.push([]);
    legs.at(-1).push({ at, place: near([latitude, longitude]) });
  }
  const layer = L.layerGroup();
  for (const leg of legs) {
    const places = leg.map(each => each.place);
    L.polyline(places, { className: "track own", interactive: false }).addTo(layer);
    for (const [place, title] of [[places[0], leg[0].at], [places.at(-1), leg.at(-1).at]])
      L.circleMarker(place, { className: "spot own", radius: 5, interactive: false })
        .bindTooltip(element("span", {}, moment(title))).addTo(layer);
  }
  showOnly(layer);
  if (positions.length && fitted !== day) {
    fitted = day;
    chart.fitBounds(legs.flat().map(each => each.place), { maxZoom: 14, padding: [30, 30] });
  }
}

function showPace({ tracker, chosenInterval }) {
  by("pace").hidden = tracker === null;
  if (tracker === null || by("pace-interval").contains(document.activeElement)) return;
  const now = chosenInterval ?? "";
  tell("pace-now", chosenInterval === null
    ? say("Now: every {age} at rest (set by the tracker's options).", { age: age(tracker.interval) })
    : say("Now: every {age} at rest (set here).", { age: age(chosenInterval) }));
  if (by("pace-interval").dataset.now === String(now)) return;
  by("pace-interval").dataset.now = now;
  const offered = [...new Set([...INTERVALS, ...(chosenInterval ? [chosenInterval] : [])])].sort((one, other) => one - other);
  by("pace-interval").replaceChildren(
    element("option", { value: "", selected: now === "" }, say("the tracker's own options")),
    ...offered.map(each => element("option", { value: each, selected: each === now }, age(each))));
  tell("pace-cost", "");
}

async function showCost() {
  tell("pace-fault", "");
  tell("pace-done", "");
  const interval = by("pace-interval").value;
  if (interval === "") return tell("pace-cost", "");
  const { channels } = await call("GET", `/api/track/cost?interval=${interval}`);
  if (interval !== by("pace-interval").value) return;
  const most = told.tracker.batch === null ? "" : ` ${say("This is the maximum. Several positions share a message.")}`;
  tell("pace-cost", (Object.entries(channels).map(([name, { rest, motion }]) => say("{channel}, a day: at rest {rest}; in motion all day {motion}.",
    { channel: term(name), rest: takes(rest), motion: takes(motion) })).join(" ")
    || say("No channel that sends positions is configured.")) + most);
}

const takes = ({ positions, credits, money }) => [
  counted(positions, "{n} position", "{n} positions"),
  credits ? counted(credits, "{n} credit", "{n} credits") : say("no credits"), money ?? "",
].filter(Boolean).join(", ");

async function choose() {
  tell("pace-fault", "");
  const interval = Number(by("pace-interval").value);
  try {
    if (interval) await call("POST", "/api/track/interval", { interval });
    else await call("DELETE", "/api/track/interval");
  } catch (error) {
    tell("pace-fault", error instanceof Away ? error.message
      : `${error.message} ${(error.faults ?? []).map(each => each.detail).join("; ")}`);
    return;
  }
  tell("pace-done", say("Saved. The tracker uses it within a minute."));
  await lookAtTrack();
}
