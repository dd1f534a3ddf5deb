// Pictures are sent as data. Their first bytes identify them, and the page shows them only as
// pictures.

import { counted, say } from "./language.js";

const MAGIC = [
  ["image/jpeg", 0, "\xff\xd8\xff"],
  ["image/png", 0, "\x89PNG\r\n\x1a\n"],
  ["image/gif", 0, "GIF8"],
  ["image/webp", 8, "WEBP"],
  ["image/avif", 4, "ftypavif"],
];

/** Returns the media type of a base64 picture, or undefined for other data. */
function pictureType(payload) {
  let begins = "";
  try {
    begins = atob(payload.slice(0, 24));
  } catch {
    return undefined;
  }
  return MAGIC.find(([, at, text]) => begins.slice(at, at + text.length) === text)?.[0];
}

/** Returns an image of a type from our list, so the browser never takes it for a page. */
export function pictureOf(payload) {
  const type = pictureType(payload);
  if (type === undefined) return null;
  const bytes = Uint8Array.from(atob(payload), each => each.charCodeAt(0));
  const image = document.createElement("img");
  image.src = URL.createObjectURL(new Blob([bytes], { type }));
  image.alt = counted(bytes.length, "a picture of {n} byte", "a picture of {n} bytes");
  image.className = "picture";
  image.addEventListener("load", () => URL.revokeObjectURL(image.src));
  image.addEventListener("error", () => image.replaceWith(say("This picture cannot be shown.")));
  return image;
}

const SIDES = [320, 640, 1024, 1600];
const QUALITY = 0.4;

/** Returns a photograph in several sizes as WebP Blobs, the smallest first: `{ side, blob }`. */
export async function scaled(file) {
  const bitmap = await createImageBitmap(file);
  const made = [];
  for (const side of SIDES) {
    const factor = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * factor));
    canvas.height = Math.max(1, Math.round(bitmap.height * factor));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise(done => canvas.toBlob(done, "image/webp", QUALITY));
    if (blob) made.push({ side: Math.max(canvas.width, canvas.height), blob });
    if (factor === 1) break;
  }
  bitmap.close();
  return made;
}

/** Returns the bytes of a Blob as base64. */
export async function base64Of(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}
