// The console's service worker: shows pushed alarms without an open page, and opens the desk.

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("push", event => {
  const told = event.data.json();
  const [kind, id] = told.alarm ? ["alarm", told.id] : ["sos", told.sos];
  const about = id ? { tag: `${kind}-${id}`, renotify: true, data: `/console/${kind}/${id}` } : { data: "/console" };
  event.waitUntil(self.registration.showNotification(told.title,
    { body: told.body, icon: "/console/file/icon.svg", requireInteraction: true, ...about }));
});

self.addEventListener("notificationclick", event => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

async function show(path) {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const there = pages.find(each => new URL(each.url).pathname === path);
  return there ? there.focus() : self.clients.openWindow(path);
}
