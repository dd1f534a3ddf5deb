// UTM and MGRS as people type them. It is fetched once somebody is about to type a place.

import { BANDS, COLUMNS, HIGHEST, RADIUS, ROWS, SOUTH, inZone, middleOf, radians, zoneOf } from "./coordinates.js";
import { say } from "./language.js";

/** Of a degree. */
const METRES = RADIUS * Math.PI / 180;
const GRID = /^(\d{1,2})\s*([C-HJ-NP-X])(?=\s*[A-Z0-9])\s*/;
const UTM = /^(\d{6,7}(?:\.\d+)?)\s*M?E?[\s,]+(\d{1,8}(?:\.\d+)?)\s*M?N?$/;
const MGRS = /^([A-HJ-NP-Z])\s*([A-HJ-NP-V])\s*(?:(\d{2,10})|(\d{1,5})\s+(\d{1,5}))$/;

/** What a person typed as UTM or MGRS, as `[latitude, longitude]`: of MGRS the middle of its square.
 * Null of what is no grid reference, and undefined of one that is wrong. */
export function readGrid(text) {
  const typed = text.trim().toUpperCase();
  const [head, zone, band] = GRID.exec(typed) ?? [];
  if (!head) return null;
  if (zone < 1 || zone > 60) return undefined;
  const lowest = 8 * BANDS.indexOf(band) - 80, highest = band === "X" ? HIGHEST : lowest + 8;
  const metres = inUtm(typed.slice(head.length), lowest) ?? inMgrs(typed.slice(head.length), zone, lowest);
  if (!metres) return undefined;
  const [latitude, longitude] = degreesIn(zone, ...metres);
  // A square goes beyond its band, and who stands at the edge of a zone keeps to it.
  const margin = 1;
  if (!(latitude > lowest - margin && latitude < highest + margin)) return undefined;
  const turned = (longitude + 540) % 360 - 180;
  const near = [0, -margin, margin];
  const fits = near.some(up => near.some(on => zoneOf(latitude + up, (turned + on + 540) % 360 - 180) === +zone));
  return fits ? [latitude, turned] : undefined;
}

function inUtm(rest, lowest) {
  const found = UTM.exec(rest);
  return found && [+found[1], found[2] - (lowest < 0 ? SOUTH : 0)];
}

function inMgrs(rest, zone, lowest) {
  const [whole, column, row, digits, one, other] = MGRS.exec(rest) ?? [];
  const half = digits?.length / 2, east = one ?? digits?.slice(0, half), north = other ?? digits?.slice(half);
  const across = COLUMNS[(zone - 1) % 3].indexOf(column) + 1;
  if (!whole || east.length !== north.length || !across) return null;
  const metres = each => (Number(each) + 0.5) * 10 ** (5 - each.length);
  const up = (ROWS.indexOf(row) + (zone % 2 ? 0 : 15)) % 20 * 100_000 + metres(north);
  // Rows come again after 2 000 km; a band is less than half as high.
  const least = inZone(zone, lowest, middleOf(zone))[1] - 110_000;
  return [across * 100_000 + metres(east), up + 2_000_000 * Math.ceil((least - up) / 2_000_000)];
}

/** Degrees that lie there, as `[latitude, longitude]`. A round of corrections leaves less than a fifth
 * of what was wrong: a grid turns against north by 10° at the most. */
function degreesIn(zone, easting, northing) {
  let latitude = 0, longitude = middleOf(zone);
  for (let round = 0; round < 30; round++) {
    const [east, north] = inZone(zone, latitude, longitude);
    latitude += (northing - north) / METRES;
    longitude += (easting - east) / METRES / Math.cos(radians(latitude));
  }
  return [latitude, longitude];
}

/** Puts the place into both fields, where one is typed for a latitude. `tell` what is wrong with it;
 * the field keeps that as `gridFault`. */
export function take(latitude, longitude, tell) {
  const place = readGrid(latitude.value);
  // What the agent says of a number stays: a line that goes as a button is pressed moves the button.
  if (place === null && !latitude.gridFault) return;
  latitude.gridFault = place === undefined ? say("That is no place of UTM or MGRS: write it as {utm} or {mgrs}.",
    { utm: "32T 465000 5247000", mgrs: "32T MT 65000 47000" }) : "";
  tell(latitude.gridFault);
  if (!place) return;
  [latitude.value, longitude.value] = place.map(each => each.toFixed(6));
  latitude.dispatchEvent(new Event("input", { bubbles: true }));
}
