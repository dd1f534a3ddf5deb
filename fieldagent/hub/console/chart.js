// The map of all kits: last positions and their age, trails of kits in distress and of the selected
// kit, and marks. Many kits close together are one spot with their number.

import { call } from "./hub.js";
import { entry, label, placed, setUpMap } from "./map.js";
import { say } from "./language.js";
import { parts } from "./parts.js";
import { go, here } from "./place.js";
import { ago, by, drawn, now, put } from "./text.js";
import { clusters } from "./trouble.js";
import { drawWorld } from "./world.js";

const NEWEST = 500, TRAIL = 200;
/** NAMED: maximum number of kits in view with names. Beyond that, squares of CELL pixels are one
 * spot, except at zoom CLOSEST. */
const NAMED = 40, CELL = 48, CLOSEST = 16;
/** Maximum number of kits in the list below the map. */
const WORDS = 50;

let chart = null, marks, trail;
let asked = null;
let fitted = false;
/** Content of the map: kits with a position, incidents, and waypoints. */
let spots = [], distressed = [], waypoints = [];

/** Draws the map again. Returns the date of each device's last position, by name. */
export async function lookAtChart(kits, incidents) {
  // Start the map only when it is visible: a hidden map has no size.
  await (asked ||= begin().catch(error => { asked = null; throw error; }));
  const { features } = await call("GET", `/api/positions?limit=${NEWEST}`);
  for (const each of parts) await each.loadMap?.();
  const lasts = new Map();
  waypoints = [];
  for (const each of features) {
    const { device, waypoint } = each.properties, found = placed(each);
    if (waypoint !== undefined) waypoints.push(found);
    else if (device && !(lasts.get(device)?.at > found.at)) lasts.set(device, found);
  }
  spots = kits.flatMap(kit => {
    const known = kit.position && { place: [kit.position.latitude, kit.position.longitude], at: kit.position.at };
    // A date in the future comes from a wrong clock. In that case the hub has its own date.
    const told = lasts.get(kit.name), last = known ?? told;
    if (!last) return [];
    const mine = incidents.filter(each => each.device === kit.id), open = mine.find(each => !each.off);
    const name = open ? open.title : mine.length ? say("{what}, called off", { what: mine[0].title }) : kit.name;
    const look = open ? "alarm" : kit.troubles.length ? "troubled" : "other";
    const age = ago(Math.max(0, now() - last.at));
    // APRS does not authenticate the call sign.
    const old = kit.over === "APRS" ? say("{age}, by APRS, unproved call sign", { age }) : age;
    return [{ id: kit.id, name, look, ...last, old }];
  });
  distressed = incidents;
  by("map-nobody").hidden = spots.length + waypoints.length > 0;
  const first = [...spots].sort((one, other) => (other.look === "alarm") - (one.look === "alarm"));
  put("places", [...first.slice(0, WORDS).map(each => entry(`kit-${each.id}`, each.name, each)),
    ...waypoints.slice(0, WORDS).map(each => entry(`${each.at}@${each.name}`, each.name, each))]);
  drawn("chart", draw);
  return new Map([...lasts].map(([device, { at }]) => [device, at]));
}

async function begin() {
  chart = await setUpMap(call, on => drawWorld(on).catch(() => {}));
  if (!chart) return;
  trail = L.layerGroup().addTo(chart);
  marks = L.layerGroup().addTo(chart);
  chart.on("moveend", draw);
  new ResizeObserver(() => chart.invalidateSize()).observe(by("map"));
}

function draw() {
  if (!chart) return;
  const all = [...spots.map(each => each.place), ...waypoints.map(each => each.place)];
  if (all.length && !fitted) {
    fitted = true;
    // The map draws again after this move.
    chart.fitBounds(all, { maxZoom: 14, padding: [30, 30] });
  }
  marks.clearLayers();
  for (const { trail: places, off } of distressed)
    L.polyline(places, { className: `trail ${off ? "off" : "alarm"}`, interactive: false }).addTo(marks);
  for (const each of parts) each.drawOnMap?.(marks);
  for (const each of waypoints) {
    spot(each.place, "mark", 6);
    label(each.place, each.name, "name").addTo(marks);
  }
  const view = chart.getBounds().pad(0.1), chosen = here().kit;
  const seen = spots.filter(each => view.contains(each.place));
  const alone = each => each.look === "alarm" || each.id === chosen || seen.length <= NAMED || chart.getZoom() >= CLOSEST;
  const points = seen.filter(each => !alone(each)).map(each => ({ ...chart.latLngToLayerPoint(each.place), spot: each }));
  for (const { x, y, those } of clusters(points, CELL)) {
    if (those.length === 1) one(those[0].spot, false);
    else together(chart.layerPointToLatLng([x, y]), those.map(each => each.spot));
  }
  for (const each of seen.filter(alone)) one(each, true);
}

function one(each, named) {
  spot(each.place, each.id === here().kit ? `${each.look} chosen` : each.look, 8)
    .on("click", () => go(`/console/kit/${each.id}`));
  if (named) label(each.place, `${each.name} · ${each.old}`, "name").setZIndexOffset(1000).addTo(marks);
}

/** Draws kits that are close together as one spot. A press zooms in on them. */
function together(place, those) {
  const troubled = those.some(each => each.look === "troubled");
  const icon = L.divIcon({ className: troubled ? "cluster troubled" : "cluster", html: String(those.length), iconSize: [36, 36] });
  L.marker(place, { icon, keyboard: false }).addTo(marks)
    .on("click", () => chart.fitBounds(those.map(each => each.place), { maxZoom: CLOSEST, padding: [40, 40] }));
}

const spot = (place, look, radius) => L.circleMarker(place, { className: `spot ${look}`, radius }).addTo(marks);

/** Draws the newest 200 positions of a kit as a trail, or removes the trail if there is no kit. */
export async function showTrail(kit) {
  drawn("chart", draw);
  trail?.clearLayers();
  if (!kit) return;
  const { features } = await call("GET", `/api/positions?sender=${kit.user.id}&limit=${TRAIL}`);
  if (!chart || here().kit !== kit.id) return;
  const places = features.filter(({ properties }) => properties.device === kit.name && properties.waypoint === undefined)
    .map(placed).sort((before, after) => before.at - after.at).map(each => each.place);
  L.polyline(places, { className: "track own", interactive: false }).addTo(trail);
  const last = spots.find(each => each.id === kit.id)?.place;
  if (last && !chart.getBounds().contains(last)) chart.panTo(last);
}
