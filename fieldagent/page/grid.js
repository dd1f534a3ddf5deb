// Reads typed UTM, UPS and MGRS, like `package/grid.py`. It is loaded when a person is about to
// type a position.

import { BANDS, COLUMNS, FLATTENING, HIGHEST, RADIUS, ROWS, SOUTH, inZone, middleOf, radians, zoneOf } from "./coordinates.js";
import { say } from "./language.js";

/** Metres of a degree. */
const METRES = RADIUS * Math.PI / 180;
const GRID = /^(\d{1,2})\s*([C-HJ-NP-X])(?=\s*[A-Z0-9])\s*/;
const UTM = /^(\d{6,7}(?:\.\d+)?)\s*M?E?[\s,]+(\d{1,8}(?:\.\d+)?)\s*M?N?$/;
const MGRS = /^([A-HJ-NP-Z])\s*([A-HJ-NP-Z])\s*(?:(\d{2,10})|(\d{1,5})\s+(\d{1,5}))$/;
const POLAR = /^([ABYZ])(?=\s*[A-Z0-9])\s*/;
const POLE = 2_000_000, POLAR_SCALE = 0.994;
const N = FLATTENING / (2 - FLATTENING), E = Math.sqrt(FLATTENING * (2 - FLATTENING));
const FLATTENED = Math.sqrt((1 + E) ** (1 + E) * (1 - E) ** (1 - E));
/** Coefficients that convert a conformal latitude to a latitude (Krueger). */
const DELTA = [
  2 * N - 2 * N ** 2 / 3 - 2 * N ** 3 + 116 * N ** 4 / 45,
  7 * N ** 2 / 3 - 8 * N ** 3 / 5 - 227 * N ** 4 / 45,
  56 * N ** 3 / 15 - 136 * N ** 4 / 35,
  4279 * N ** 4 / 630,
];
/** Degrees. A square reaches beyond its band, and people at the border of a zone continue to use
 * that zone. */
const MARGIN = 1;
const SOUTHERN = "ABCDEFGHJKLMNPQRSTUVWXYZ", NORTHERN = "ABCDEFGHJKLMNP";
/** For the letter of each half of a polar grid: its letters, and the metres of the first ones. */
const HALVES = {
  A: ["JKLPQRSTUXYZ", SOUTHERN, 800_000, 800_000], B: ["ABCFGHJKLPQR", SOUTHERN, POLE, 800_000],
  Y: ["RSTUXYZ", NORTHERN, 1_300_000, 1_300_000], Z: ["ABCFGHJ", NORTHERN, POLE, 1_300_000],
};

/** Reads UTM, UPS or MGRS and returns `[latitude, longitude]`, for MGRS the centre of the square.
 * Returns null if the text is not a grid reference, and undefined if it is a wrong one. */
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
  // Row letters repeat after 2 000 km, and a band is less than half as high.
  const least = inZone(zone, lowest, middleOf(zone))[1] - 110_000;
  return [100_000 + square[0], up + 2_000_000 * Math.ceil((least - up) / 2_000_000)];
}

/** Returns the centre of a square in metres from the origin of these letters. */
function inSquare(rest, columns, rows) {
  const [whole, column, row, digits, one, other] = MGRS.exec(rest) ?? [];
  const half = digits?.length / 2, east = one ?? digits?.slice(0, half), north = other ?? digits?.slice(half);
  const [across, up] = [columns.indexOf(column), rows.indexOf(row)];
  if (!whole || east.length !== north.length || across < 0 || up < 0) return null;
  const metres = each => (Number(each) + 0.5) * 10 ** (5 - each.length);
  return [across * 100_000 + metres(east), up * 100_000 + metres(north)];
}

/** Polar stereographic projection by NGA.SIG.0012_2.0.0_UTMUPS. */
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

/** Returns the degrees of a point as `[latitude, longitude]`. Each round leaves less than a fifth
 * of the error, because a grid turns at most 10° from north. */
function degreesIn(zone, easting, northing) {
  let latitude = 0, longitude = middleOf(zone);
  for (let round = 0; round < 30; round++) {
    const [east, north] = inZone(zone, latitude, longitude);
    latitude += (northing - north) / METRES;
    longitude += (easting - east) / METRES / Math.cos(radians(latitude));
  }
  return [latitude, longitude];
}

/** Reads a position in the latitude field and puts it into both fields. Calls `tell` with an error
 * text, which the field also keeps as `gridFault`. */
export function take(latitude, longitude, tell) {
  const place = readGrid(latitude.value);
  // Keep the agent's message about a number: removing a line at the press of a button would move
  // the button.
  if (place === null && !latitude.gridFault) return;
  latitude.gridFault = place === undefined ? say("This is not a UTM or MGRS position. Use {utm} or {mgrs}.",
    { utm: "32T 465000 5247000", mgrs: "32T MT 65000 47000" }) : "";
  tell(latitude.gridFault);
  if (!place) return;
  [latitude.value, longitude.value] = place.map(each => each.toFixed(6));
  latitude.dispatchEvent(new Event("input", { bubbles: true }));
}
