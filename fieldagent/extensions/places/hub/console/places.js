// Fences on the console's map, and links to the reports of a kit.

import { call } from "./hub.js";
import { say } from "./language.js";
import { label } from "./map.js";
import { element } from "./text.js";

let fences = [];

/** Loads the content of the map. */
export async function loadMap() {
  ({ fences } = await call("GET", "/api/fences"));
}

/** Draws on the marks of the map. */
export function drawOnMap(marks) {
  for (const each of fences) fence(each, marks);
}

/** Draws a fence, which is a shape with a watched border, and its name. */
function fence({ name, circle, polygon }, marks) {
  // The record in the hub's database is damaged.
  if (!circle && !polygon) return;
  const look = { className: "fence", interactive: false };
  // A side over the antimeridian goes the short way.
  const laid = ring => ring.reduce((before, [east, north]) => {
    const turn = before.length ? Math.round((before.at(-1)[1] - east) / 360) * 360 : 0;
    return [...before, [north, east + turn]];
  }, []);
  const drawn = circle ? L.circle([circle.latitude, circle.longitude], { ...look, radius: circle.radius })
    : L.polygon(polygon.coordinates.map(laid), look);
  drawn.addTo(marks);
  label(circle ? [circle.latitude, circle.longitude] : drawn.getBounds().getCenter(), name, "name").addTo(marks);
}

/** Returns the ISO 8601 week of a Unix time in ms (UTC). The year is that of the week's
 * Thursday. */
function weekOf(moment) {
  const day = 86400000, thursday = moment + (3 - (new Date(moment).getUTCDay() + 6) % 7) * day;
  const year = new Date(thursday).getUTCFullYear();
  return `${year}-W${String(1 + Math.floor((thursday - Date.UTC(year, 0, 1)) / (7 * day))).padStart(2, "0")}`;
}

/** Returns links to a kit's reports of the last week and this week, as a page to print, a track and
 * a table. */
export const linksOf = device => [-7, 0].map(days => weekOf(Date.now() + days * 86400000)).map(week =>
  element("p", {}, `${say("Report of {week}:", { week })} `, ...["html", "gpx", "kml", "csv"].flatMap(format => [
    element("a", { href: `/api/devices/${device.id}/report?week=${week}&format=${format}`, target: format === "html" ? "_blank" : null, download: format === "html" ? null : "" },
      format === "html" ? say("print") : format.toUpperCase()), " "])));
