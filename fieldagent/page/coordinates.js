// Writes positions in the form that people of a region use. `grid.js` reads grid references.
//
// Transverse Mercator by the series of C. F. F. Karney, "Transverse Mercator with an accuracy of a
// few nanometers" (2011, https://arxiv.org/abs/1002.1417), equations 7 to 11 and 35, up to the
// fourth order in n. The error is below a millimetre in the whole zone. MGRS by NGA.STND.0037.

export const RADIUS = 6378137, FLATTENING = 1 / 298.257223563;
const SCALE = 0.9996, EAST = 500_000;
export const SOUTH = 10_000_000;
const N = FLATTENING / (2 - FLATTENING);
const E = Math.sqrt(FLATTENING * (2 - FLATTENING));
const RECTIFYING = RADIUS / (1 + N) * (1 + N ** 2 / 4 + N ** 4 / 64);
const ALPHA = [
  N / 2 - 2 * N ** 2 / 3 + 5 * N ** 3 / 16 + 41 * N ** 4 / 180,
  13 * N ** 2 / 48 - 3 * N ** 3 / 5 + 557 * N ** 4 / 1440,
  61 * N ** 3 / 240 - 103 * N ** 4 / 140,
  49561 * N ** 4 / 161280,
];
export const BANDS = "CDEFGHJKLMNPQRSTUVWXX";
export const COLUMNS = ["ABCDEFGH", "JKLMNPQR", "STUVWXYZ"];
export const ROWS = "ABCDEFGHJKLMNPQRSTUV";
const LOWEST = -80;
export const HIGHEST = 84;

export const middleOf = zone => 6 * zone - 183;
export const radians = degrees => degrees * Math.PI / 180;

/** Zones are 6° wide, except around Norway and Svalbard. */
export function zoneOf(latitude, longitude) {
  if (latitude >= 56 && latitude < 64 && longitude >= 3 && longitude < 12) return 32;
  if (latitude >= 72 && longitude >= 0 && longitude < 42)
    return [31, 33, 35, 37][[9, 21, 33, 42].findIndex(end => longitude < end)];
  return Math.floor((longitude + 180) / 6) % 60 + 1;
}

/** Returns UTM on WGS84 in metres: `{ zone, band, easting, northing }`. Returns null near the
 * poles, which have no zone. */
export function utmOf(latitude, longitude) {
  if (!(latitude >= LOWEST && latitude <= HIGHEST && longitude >= -180 && longitude <= 180)) return null;
  const zone = zoneOf(latitude, longitude), [easting, northing] = inZone(zone, latitude, longitude);
  return { zone, band: BANDS[Math.floor((latitude + 80) / 8)], easting, northing: northing + (latitude < 0 ? SOUTH : 0) };
}

/** Returns easting and northing in a zone in metres, also outside of it. The northing is negative
 * in the south. */
export function inZone(zone, latitude, longitude) {
  const phi = radians(latitude), lambda = radians(longitude - middleOf(zone));
  const tau = Math.tan(phi), sigma = Math.sinh(E * Math.atanh(E * Math.sin(phi)));
  const conformal = tau * Math.hypot(1, sigma) - sigma * Math.hypot(1, tau);
  const xi = Math.atan2(conformal, Math.cos(lambda));
  const eta = Math.asinh(Math.sin(lambda) / Math.hypot(conformal, Math.cos(lambda)));
  let [north, east] = [xi, eta];
  ALPHA.forEach((each, at) => {
    const order = 2 * (at + 1);
    north += each * Math.sin(order * xi) * Math.cosh(order * eta);
    east += each * Math.cos(order * xi) * Math.sinh(order * eta);
  });
  return [EAST + SCALE * RECTIFYING * east, SCALE * RECTIFYING * north];
}

/** Returns the 100 km square in two letters, and the metres in it: "32T MT 65356 47001". */
function mgrs({ zone, band, easting, northing }) {
  const column = COLUMNS[(zone - 1) % 3][Math.floor(easting / 100_000) - 1];
  const row = ROWS[(Math.floor(northing / 100_000) + (zone % 2 ? 0 : 5)) % 20];
  const metres = value => String(Math.floor(value % 100_000)).padStart(5, "0");
  return `${zone}${band} ${column}${row} ${metres(easting)} ${metres(northing)}`;
}

/** The band is in the place where other programs write the hemisphere: S is a band of the north. */
const utm = ({ zone, band, easting, northing }) => `${zone}${band} ${Math.floor(easting)} ${Math.floor(northing)}`;

/** Returns degrees, minutes and seconds with one decimal, which is 3 m. */
function sexagesimal(degrees, sides) {
  const tenths = Math.round(Math.abs(degrees) * 36_000);
  const [minutes, seconds] = [Math.floor(tenths / 600) % 60, (tenths % 600) / 10];
  return `${Math.floor(tenths / 36_000)}°${String(minutes).padStart(2, "0")}′${seconds.toFixed(1).padStart(4, "0")}″${sides[degrees < 0 ? 1 : 0]}`;
}

/** Functions that write a position, by form. They take degrees as numbers, or as text that keeps
 * its precision. Near the poles they use degrees instead of a grid. */
export const FORMS = {
  decimal: (latitude, longitude) => `${latitude}, ${longitude}`,
  dms: (latitude, longitude) => `${sexagesimal(latitude, "NS")} ${sexagesimal(longitude, "EW")}`,
  utm: (latitude, longitude) => inGrid(utm, latitude, longitude),
  mgrs: (latitude, longitude) => inGrid(mgrs, latitude, longitude),
};

function inGrid(write, latitude, longitude) {
  const found = utmOf(Number(latitude), Number(longitude));
  return found === null ? FORMS.decimal(latitude, longitude) : write(found);
}
