// Coasts, and borders if the file has them. They are available without a network (build/world.py).

import { say } from "./language.js";
import { tell } from "./text.js";

/** Maximum error of a coast in pixels. A coast with a larger error is not drawn. */
const AWRY_MOST = 25;
/** Metres of a pixel at the equator, when the world is 256 pixels wide. */
const PIXEL = 156_543;
const KINDS = { borders: "border", coasts: "coast" };
/** Degrees of the copies of the world beyond the edges of the map. */
const TURNS = [-360, 0, 360];

/** Draws the world from the file in this folder below everything else of Leaflet's map `on`.
 * `#map-source` shows its precision. */
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
      : say("Too close for these coastlines, which are accurate to about {n} km.", { n }));
  };
  on.on("moveend", look);
  look();
}

/** Reads steps between points in fractions of a degree, longitude first. */
function points(line, steps) {
  const found = [];
  let east = 0, north = 0;
  for (let at = 0; at < line.length; at += 2)
    found.push([(north += line[at + 1]) / steps, (east += line[at]) / steps]);
  return found;
}
