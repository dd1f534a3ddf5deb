// Keeps the files of the page, and nothing that it shows, so that it opens while the agent is away:
// it says so, and its SOS leaves as soon as the agent is back.

const KEPT = "page";
/** Milliseconds in which an agent answers; one that hangs keeps nobody from the page. */
const ANSWERS = 4_000;

self.addEventListener("install", () => self.skipWaiting());

// The page tells what it consists of, once all of it is there.
self.addEventListener("message", event => event.waitUntil(keep(event.data)));

self.addEventListener("fetch", event => {
  const { pathname } = new URL(event.request.url);
  if (event.request.method === "GET" && (pathname === "/" || pathname.startsWith("/page/")))
    event.respondWith(answer(event.request));
});

async function keep(addresses) {
  const cache = await caches.open(KEPT);
  for (const each of await cache.keys()) if (!addresses.includes(each.url)) await cache.delete(each);
  await cache.addAll(addresses);
}

async function answer(request) {
  const late = new Promise((_, reject) => setTimeout(reject, ANSWERS));
  try {
    return await Promise.race([fetch(request), late]);
  } catch {
    return await caches.match(request, { cacheName: KEPT }) ?? Response.error();
  }
}
