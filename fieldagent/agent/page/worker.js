// Keeps the files of the page, but none of its content, so that the page opens without the agent.
// It then shows that the agent is away, and its SOS leaves as soon as the agent is back.

const KEPT = "page";
/** Milliseconds to wait for the agent. After that the page opens from the kept files. */
const ANSWERS = 4_000;

self.addEventListener("install", () => self.skipWaiting());
// Also handle files that the first visit loads later.
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));

// The page sends the list of its files after they have loaded.
self.addEventListener("message", event => event.waitUntil(keep(event.data)));

self.addEventListener("fetch", event => {
  const { pathname } = new URL(event.request.url);
  const isKept = ["/", "/track"].includes(pathname) || ["/page/", "/help/"].some(folder => pathname.startsWith(folder));
  if (event.request.method === "GET" && isKept)
    event.respondWith(answer(event));
});

/** Keeps the listed files. Files that are already kept are not loaded again. */
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
    // A person without a session gets the sign-in page instead, which must not be kept.
    if (found.ok && !found.redirected) event.waitUntil(store(event.request, found.clone()));
    return found;
  } catch {
    // A file that is not kept may still arrive over a slow line, so wait for it.
    return await caches.match(event.request, { cacheName: KEPT }) ?? asked;
  }
}

const store = async (request, found) => (await caches.open(KEPT)).put(request, found);
