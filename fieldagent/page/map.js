// The map of positions and marks, above the offline map or a grid.

import { placeInWords } from "./choices.js";
import { language, say } from "./language.js";
import { UNIT, by, element, moment, plain, put, tell } from "./text.js";

const NEWEST = 500;
const LINES = 5;
const STEPS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 45];
const OWN = "";

let chart, marks, grid, only = null;
/** Promise of Leaflet, after the first use. */
let library;
/** Longitude around which positions are drawn, so that all of them appear on the same side of the
 * map. */
let middle = 0;
let fitted = false;

/** Sets up the map. It uses no pictures of Leaflet and loads only the map's tiles. `call` calls the
 * page's own API. If that fails, the map is not set up, and the next call tries again. Without an
 * offline map, `under` gets Leaflet's map when it becomes visible, and draws below the grid.
 * Returns Leaflet's map, or null if Leaflet did not load. */
export async function setUpMap(call, under = () => {}) {
  try {
    await (library ??= load());
  } catch {
    tell("map-trouble", say("The map is unavailable because its library did not load. Reload the page."));
    return null;
  }
  const { map, trouble } = await call("GET", "/api/map");
  chart = L.map("map", { attributionControl: false, maxZoom: 18 }).setView([0, 0], 1);
  L.control.scale({ imperial: UNIT === "ft", metric: UNIT === "m" }).addTo(chart);
  const north = L.control({ position: "topright" });
  north.onAdd = () => element("p", { class: "north" }, say("N ↑"));
  north.addTo(chart);
  marks = L.layerGroup().addTo(chart);
  tell("map-trouble", trouble ?? "");
  if (map) {
    if (map.vector) await drawVectors(map).catch(() => tell("map-trouble", say("The map is unavailable because its library did not load. Reload the page.")));
    else tiles(map).addTo(chart);
    tell("map-source", `${map.name} ${map.attribution}`.replace(/<[^>]*>/g, " ").trim());
    if (map.bounds && !fitted) chart.fitBounds(boundsOf(map));
  } else {
    seen(by("map")).then(() => under(chart));
    grid = L.layerGroup().addTo(chart);
    chart.on("moveend", drawGrid);
    drawGrid();
  }
  return chart;
}

const seen = place => new Promise(resolve => {
  const watch = new IntersectionObserver(found => {
    if (!found.some(each => each.isIntersecting)) return;
    watch.disconnect();
    resolve();
  });
  watch.observe(place);
});

const beside = name => new URL(name, import.meta.url).href;

const there = node => new Promise((resolve, reject) => {
  node.onload = resolve;
  node.onerror = reject;
});

/** Loads Leaflet and its styles from the folder of this file. They are the largest part of a page,
 * and not the most urgent one. */
function load() {
  const style = name => element("link", { rel: "stylesheet", href: beside(name) });
  const [theirs, ours] = [style("leaflet.css"), style("map.css")];
  const script = element("script", { src: beside("leaflet.js") });
  const loaded = Promise.all([theirs, ours, script].map(there));
  // The page's own styles come after Leaflet's.
  document.head.prepend(theirs);
  document.head.append(ours, script);
  return loaded;
}

/** Draws a vector map in the language of the page, light or dark according to the system, and again
 * after each change. */
async function drawVectors(map) {
  const script = element("script", { src: beside("protomaps-leaflet.js") });
  document.head.append(script);
  await there(script);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let drawn = null;
  const draw = () => {
    drawn?.remove();
    drawn = protomapsL.leafletLayer({
      url: map.address, maxDataZoom: map.highest, maxZoom: 18, lang: language,
      flavor: dark.matches ? "dark" : "light", attribution: "",
    }).addTo(chart);
  };
  dark.addEventListener("change", draw);
  draw();
}

const boundsOf = ({ bounds: [west, south, east, north] }) => [[south, west], [north, east]];

function tiles(map) {
  // To stop a tile, Leaflet would load an empty picture with a URL that the page does not allow.
  const Quiet = L.TileLayer.extend({
    _abortLoading() {},
    _removeTile(key) { return L.GridLayer.prototype._removeTile.call(this, key); },
  });
  // Tile servers need the address of the page. The hub's own server gets the same.
  return new Quiet(map.address, {
    referrerPolicy: "strict-origin",
    minNativeZoom: map.lowest, maxNativeZoom: map.highest, maxZoom: 18,
    bounds: map.bounds ? boundsOf(map) : undefined,
  });
}

/** Draws meridians and parallels, at an interval that results in a few lines. */
function drawGrid() {
  grid.clearLayers();
  const seen = chart.getBounds();
  const [south, north] = [Math.max(-85, seen.getSouth()), Math.min(85, seen.getNorth())];
  const [west, east] = [seen.getWest(), seen.getEast()];
  const step = STEPS.find(each => (east - west) / each <= LINES) ?? 90;
  const edge = chart.containerPointToLatLng([4, chart.getSize().y - 44]);
  for (let at = Math.ceil(west / step) * step; at <= east; at += step)
    line([[south, at], [north, at]], [edge.lat, at], degrees(at - turned(at), step));
  for (let at = Math.ceil(south / step) * step; at < north; at += step)
    line([[at, west], [at, east]], [at, Math.max(west, edge.lng)], degrees(at, step));
}

/** Degrees of whole turns between a longitude and `from`. */
const turned = (longitude, from = 0) => 360 * Math.round((longitude - from) / 360);

/** Returns the same position on the side of the map where the others are. */
export const near = ([latitude, longitude]) => [latitude, longitude - turned(longitude, middle)];

const degrees = (at, step) => `${at.toFixed(Math.max(0, -Math.floor(Math.log10(step))))}°`;

function line(ends, place, text) {
  L.polyline(ends, { className: "grid", interactive: false, weight: 1 }).addTo(grid).bringToBack();
  label(place, text, "degree").addTo(grid);
}

export function label(place, text, name) {
  const html = element("span", {}, text);
  const icon = L.divIcon({ className: name, html, iconSize: null });
  return L.marker(place, { icon, interactive: false, keyboard: false });
}

/** Shows that Leaflet layer instead of the positions of people. */
export function showOnly(layer) {
  only?.remove();
  only = layer.addTo(chart);
  marks.remove();
}

/** Loads the positions again. `known` contains further positions, which are shown if the person has
 * no other one. `seen` is the text about their age, and `blurred` is true if they are imprecise on
 * purpose. `own` is the name of this kit in the reader's language. */
export async function lookAtMap(call, known = [], own = "") {
  const { features } = await call("GET", `/api/positions?limit=${NEWEST}`);
  const people = new Map();
  for (const each of features) {
    const { sender, name } = each.properties;
    if (!people.has(sender)) people.set(sender, { name: (sender === OWN && own) || name, track: [], marked: [] });
    const whose = people.get(sender);
    (each.properties.waypoint === undefined ? whose.track : whose.marked).push(placed(each));
  }
  for (const { sender, name, ...where } of known)
    if (!people.get(sender)?.track.length)
      people.set(sender, { name, track: [where], marked: people.get(sender)?.marked ?? [] });
  for (const { track } of people.values()) track.sort((one, other) => one.at - other.at);
  const listed = [...people].sort(([one], [other]) => (other === OWN) - (one === OWN));
  put("places", listed.flatMap(([sender, known]) => entries(sender, known)));
  by("map-nobody").hidden = people.size > 0;
  if (chart) draw(people);
}

/** Converts a feature of the API: position, Unix time, SOS flag, and name and notes of a
 * waypoint. */
export const placed = ({ geometry: { coordinates: [longitude, latitude] }, properties }) => ({
  place: [latitude, longitude], at: Date.parse(properties.timestamp) / 1000, sos: properties.sos,
  name: properties.waypoint, notes: properties.notes,
});

function draw(people) {
  marks.clearLayers();
  const all = [], newest = people.get(OWN) ?? [...people.values()][0];
  middle = (newest?.track.at(-1) ?? newest?.marked[0])?.place[1] ?? 0;
  for (const [sender, { name, track, marked }] of people) {
    const whose = sender === OWN ? "own" : "other";
    const places = track.map(each => near(each.place));
    all.push(...places, ...marked.map(each => near(each.place)));
    L.polyline(places, { className: `track ${whose}`, interactive: false }).addTo(marks);
    const last = track.at(-1);
    if (last) spot(near(last.place), kindOf(last, whose), last.blurred ? 14 : 8, titleOf(last, name));
    for (const each of marked) spot(near(each.place), "mark", 6, each.name);
  }
  if (all.length && !fitted) {
    fitted = true;
    chart.fitBounds(all, { maxZoom: 14, padding: [30, 30] });
  }
}

const kindOf = (last, whose) => last.sos ? "alarm" : last.blurred ? "blurred" : whose;

/** Returns the sender, the age, and a note if the position is blurred. */
const titleOf = (last, name) => [
  last.sos ? `SOS ${name}` : name, last.seen, last.blurred ? say("blurred") : "",
].filter(Boolean).join(" · ");

function spot(place, name, radius, text) {
  L.circleMarker(place, { className: `spot ${name}`, radius, interactive: false }).addTo(marks);
  label(place, text, "name").addTo(marks);
}

/** Returns the same as a list: each person with a button that shows the position. */
function entries(sender, { name, track, marked }) {
  const last = track.at(-1);
  return [
    ...(last ? [entry(`${sender}@`, last.sos ? `SOS ${name}` : name, last)] : []),
    ...marked.map(each => entry(`${sender}@${each.at}@${each.name}`, each.name, each)),
  ];
}

export function entry(key, name, each) {
  const where = placeInWords(each.place.map(degree => degree.toFixed(5)));
  const button = element("button", { type: "button", id: `place-${plain(key)}` }, say("Show"));
  button.setAttribute("aria-label", say("Show {name} on the map", { name: plain(name) }));
  button.onclick = () => chart?.setView(near(each.place), Math.max(chart.getZoom(), 13));
  const words = element("span", {}, element("b", {}, name), ` ${where} · ${moment(each.at)}`,
    each.seen ? ` · ${each.seen}` : "", each.blurred ? ` · ${say("blurred on purpose")}` : "",
    each.notes ? ` · ${each.notes}` : "");
  return element("li", {}, words, button);
}
