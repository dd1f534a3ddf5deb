// UTM, UPS and MGRS as people type them; `package/grid.py` reads the same. It is fetched once somebody
// is about to type a place.

import { BANDS, COLUMNS, FLATTENING, HIGHEST, RADIUS, ROWS, SOUTH, inZone, middleOf, radians, zoneOf } from "./coordinates.js";
import { say } from "./language.js";

/** Of a degree. */
const METRES = RADIUS * Math.PI / 180;
const GRID = /^(\d{1,2})\s*([C-HJ-NP-X])(?=\s*[A-Z0-9])\s*/;
const UTM = /^(\d{6,7}(?:\.\d+)?)\s*M?E?[\s,]+(\d{1,8}(?:\.\d+)?)\s*M?N?$/;
const MGRS = /^([A-HJ-NP-Z])\s*([A-HJ-NP-Z])\s*(?:(\d{2,10})|(\d{1,5})\s+(\d{1,5}))$/;
const POLAR = /^([ABYZ])(?=\s*[A-Z0-9])\s*/;
const POLE = 2_000_000, POLAR_SCALE = 0.994;
const N = FLATTENING / (2 - FLATTENING), E = Math.sqrt(FLATTENING * (2 - FLATTENING));
const FLATTENED = Math.sqrt((1 + E) ** (1 + E) * (1 - E) ** (1 - E));
/** What makes a latitude of a conformal one, after Krueger. */
const DELTA = [
  2 * N - 2 * N ** 2 / 3 - 2 * N ** 3 + 116 * N ** 4 / 45,
  7 * N ** 2 / 3 - 8 * N ** 3 / 5 - 227 * N ** 4 / 45,
  56 * N ** 3 / 15 - 136 * N ** 4 / 35,
  4279 * N ** 4 / 630,
];
/** Degrees. A square goes beyond its band, and who stands at the edge of a zone keeps to it. */
const MARGIN = 1;
const SOUTHERN = "ABCDEFGHJKLMNPQRSTUVWXYZ", NORTHERN = "ABCDEFGHJKLMNP";
/** By the letter of each half of a pole's grid, its letters and where the first of them begin. */
const HALVES = {
  A: ["JKLPQRSTUXYZ", SOUTHERN, 800_000, 800_000], B: ["ABCFGHJKLPQR", SOUTHERN, POLE, 800_000],
  Y: ["RSTUXYZ", NORTHERN, 1_300_000, 1_300_000], Z: ["ABCFGHJ", NORTHERN, POLE, 1_300_000],
};

/** What a person typed as UTM, UPS or MGRS, as `[latitude, longitude]`: of MGRS the middle of its square.
 * Null of what is no grid reference, and undefined of one that is wrong. */
export function readGrid(text) {
  const typed = text.trim().toUpperCase();
  const [half] = POLAR.exec(typed) ?? [];
  if (half) return atPole(half.trim(), typed.slice(half.length));
  const [head, zone, band] = GRID.exec(typed) ?? [];
  if (!head) return null;
  if (zone < 1 || zone > 60) return undefined;
  const lowest = 8 * BANDS.indexOf(band) - 80, highest = band === "X" ? HIGHEST : lowest + 8;
  const metres = inUtm(typed.slice(head.length), lowest) ?? inMgrs(typed.slice(head.length), zone, lowest);
  if (!metres) return undefined;
  const [latitude, longitude] = degreesIn(zone, ...metres);
  if (!(latitude > lowest - MARGIN && latitude < highest + MARGIN)) return undefined;
  const turned = (longitude + 540) % 360 - 180;
  const near = [0, -MARGIN, MARGIN];
  const fits = near.some(up => near.some(on => zoneOf(latitude + up, (turned + on + 540) % 360 - 180) === +zone));
  return fits ? [latitude, turned] : undefined;
}

function inUtm(rest, lowest) {
  const found = UTM.exec(rest);
  return found && [+found[1], found[2] - (lowest < 0 ? SOUTH : 0)];
}

function inMgrs(rest, zone, lowest) {
  const square = inSquare(rest, COLUMNS[(zone - 1) % 3], ROWS);
  if (!square) return null;
  const up = (square[1] + (zone % 2 ? 0 : 1_500_000)) % 2_000_000;
  // Rows come again after 2 000 km; a band is less than half as high.
  const least = inZone(zone, lowest, middleOf(zone))[1] - 110_000;
  return [100_000 + square[0], up + 2_000_000 * Math.ceil((least - up) / 2_000_000)];
}

/** The middle of a square, in metres from where these letters begin. */
function inSquare(rest, columns, rows) {
  const [whole, column, row, digits, one, other] = MGRS.exec(rest) ?? [];
  const half = digits?.length / 2, east = one ?? digits?.slice(0, half), north = other ?? digits?.slice(half);
  const [across, up] = [columns.indexOf(column), rows.indexOf(row)];
  if (!whole || east.length !== north.length || across < 0 || up < 0) return null;
  const metres = each => (Number(each) + 0.5) * 10 ** (5 - each.length);
  return [across * 100_000 + metres(east), up * 100_000 + metres(north)];
}

/** Polar stereographic by NGA.SIG.0012_2.0.0_UTMUPS. */
function atPole(half, rest) {
  const [columns, rows, first, lowest] = HALVES[half], isSouth = "AB".includes(half);
  const square = inSquare(rest, columns, rows);
  const [east, north] = UTM.exec(rest)?.slice(1).map(Number) ?? (square ? [square[0] + first, square[1] + lowest] : []);
  if (east === undefined || east < POLE !== "AY".includes(half)) return undefined;
  const across = east - POLE, up = isSouth ? north - POLE : POLE - north;
  const tangent = Math.hypot(across, up) * FLATTENED / (2 * RADIUS * POLAR_SCALE);
  const conformal = Math.PI / 2 - 2 * Math.atan(tangent);
  const latitude = DELTA.reduce((sum, each, at) => sum + each * Math.sin(2 * (at + 1) * conformal), conformal) / radians(1);
  if (latitude < (isSouth ? 80 : HIGHEST) - MARGIN) return undefined;
  return [isSouth ? -latitude : latitude, Math.atan2(across, up) / radians(1)];
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
