// Coasts, and where the file has them borders, which are here without any network (build/world.py).

import { say } from "./language.js";
import { tell } from "./text.js";

/** Pixels that a coast may be beside its place: what would be farther off is not drawn. */
const AWRY_MOST = 25;
/** Metres of a pixel at the equator, where the world is 256 pixels wide. */
const PIXEL = 156_543;
const KINDS = { borders: "border", coasts: "coast" };
/** The world beyond either edge of the map is the same. */
const TURNS = [-360, 0, 360];

/** Draws the world that lies beside this file below all else of Leaflet's map `on`. `#map-source` says
 * how right it is. */
export async function drawWorld(on) {
  const answer = await fetch(new URL("world.json", import.meta.url));
  if (!answer.ok) throw new Error(`world.json: ${answer.status}`);
  const world = await answer.json();
  const drawn = L.layerGroup();
  for (const [kind, className] of Object.entries(KINDS)) {
    const lines = (world[kind] ?? []).map(line => points(line, world.steps));
    for (const turn of TURNS)
      L.polyline(lines.map(line => line.map(([north, east]) => [north, east + turn])),
        { className, interactive: false, weight: 1 }).addTo(drawn);
  }
  const look = () => {
    const pixel = PIXEL * Math.cos(on.getCenter().lat * Math.PI / 180) / 2 ** on.getZoom();
    const isTrue = world.within * 1000 <= AWRY_MOST * pixel;
    if (isTrue !== on.hasLayer(drawn)) {
      if (isTrue) drawn.addTo(on).eachLayer(each => each.bringToBack());
      else drawn.remove();
    }
    const n = world.within;
    tell("map-source", isTrue ? say("Coastlines: Natural Earth, within about {n} km, without small islands.", { n })
      : say("Too close for the coastlines of Natural Earth: they are within about {n} km only.", { n }));
  };
  on.on("moveend", look);
  look();
}

/** Steps from point to point in parts of a degree, longitude first. */
function points(line, steps) {
  const found = [];
  let east = 0, north = 0;
  for (let at = 0; at < line.length; at += 2)
    found.push([(north += line[at + 1]) / steps, (east += line[at]) / steps]);
  return found;
}
