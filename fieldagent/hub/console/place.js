// The current place in the console is in the address, so that reload and the back button keep it.

const KIT = /^\/console\/kit\/([0-9]+)$/;
const SOS = /^\/console\/sos\/([0-9]+)$/;
const ALARM = /^\/console\/alarm\/([0-9]+)$/;
const SUBJECT = /^\/console\/administration(?:\/([a-z]+))?$/;

/** Returns the selected kit, SOS or alarm, or the subject of administration, which is empty for the list
 * of subjects. The others are null. `find`, `show` and `sort` are the search, filter and order of
 * the kits. */
export function here() {
  const { pathname, search } = location;
  const asked = new URLSearchParams(search);
  const number = pattern => Number(pattern.exec(pathname)?.[1]) || null;
  return {
    kit: number(KIT), sos: number(SOS), alarm: number(ALARM), subject: SUBJECT.exec(pathname)?.slice(1).map(each => each ?? "")[0] ?? null,
    account: pathname === "/console/account", fleet: pathname === "/console/fleet",
    find: asked.get("find") ?? "", show: asked.get("show") ?? "", sort: asked.get("sort") ?? "",
  };
}

let changed = () => {};

/** Calls `look` after each change of the place, with true if a press caused it. */
export function setUpPlace(look) {
  changed = look;
  addEventListener("popstate", () => changed(false));
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-place]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
}

/** Goes to `path`. The search, filter and order of the kits stay. */
export function go(path) {
  if (path !== location.pathname) history.pushState(null, "", path + location.search);
  changed(true);
}

/** Changes the search, filter and order of the kits, without a step for the back button. */
export function list(how) {
  const asked = new URLSearchParams(Object.entries({ ...here(), ...how })
    .filter(([name, value]) => ["find", "show", "sort"].includes(name) && value));
  history.replaceState(null, "", `${location.pathname}${asked.size ? `?${asked}` : ""}`);
}
