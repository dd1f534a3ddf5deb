// Keeps the files of the page, and nothing that it shows, so that it opens while the agent is away:
// it says so, and its SOS leaves as soon as the agent is back.

const KEPT = "page";
/** Milliseconds in which an agent answers; one that hangs keeps nobody from the page. */
const ANSWERS = 4_000;

self.addEventListener("install", () => self.skipWaiting());
// What the first visit loads by need passes by here, too.
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));

// The page tells what it consists of, once all of it is there.
self.addEventListener("message", event => event.waitUntil(keep(event.data)));

self.addEventListener("fetch", event => {
  const { pathname } = new URL(event.request.url);
  const isKept = ["/", "/track"].includes(pathname) || ["/page/", "/help/"].some(folder => pathname.startsWith(folder));
  if (event.request.method === "GET" && isKept)
    event.respondWith(answer(event));
});

/** What passes by here later is kept as it does: nothing is loaded twice. */
async function keep(addresses) {
  const cache = await caches.open(KEPT);
  const kept = (await cache.keys()).map(each => each.url);
  for (const each of kept) if (!addresses.includes(each)) await cache.delete(each);
  await cache.addAll(addresses.filter(each => !kept.includes(each)));
}

async function answer(event) {
  const late = new Promise((_, reject) => setTimeout(reject, ANSWERS)), asked = fetch(event.request);
  try {
    const found = await Promise.race([asked, late]);
    // Whoever has to sign in gets another page in the place of this one.
    if (found.ok && !found.redirected) event.waitUntil(store(event.request, found.clone()));
    return found;
  } catch {
    // What is not kept is waited for: over a slow line it comes later.
    return await caches.match(event.request, { cacheName: KEPT }) ?? asked;
  }
}

const store = async (request, found) => (await caches.open(KEPT)).put(request, found);
