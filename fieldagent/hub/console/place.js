// Where somebody is in the console, as the address says: reload and the back button keep it.

const KIT = /^\/console\/kit\/([0-9]+)$/;
const SOS = /^\/console\/sos\/([0-9]+)$/;
const SUBJECT = /^\/console\/administration(?:\/([a-z]+))?$/;

/** The kit or SOS that is looked at, or the subject of administration, empty for the list of them;
 * what is none of these is null. `find`, `show` and `sort` are how the kits are listed. */
export function here() {
  const { pathname, search } = location;
  const asked = new URLSearchParams(search);
  const number = pattern => Number(pattern.exec(pathname)?.[1]) || null;
  return {
    kit: number(KIT), sos: number(SOS), subject: SUBJECT.exec(pathname)?.slice(1).map(each => each ?? "")[0] ?? null,
    account: pathname === "/console/account", fleet: pathname === "/console/fleet",
    find: asked.get("find") ?? "", show: asked.get("show") ?? "", sort: asked.get("sort") ?? "",
  };
}

let changed = () => {};

/** Calls `look` whenever the place is another, with whether a press has led there. */
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

/** `path` keeps how the kits are listed. */
export function go(path) {
  if (path !== location.pathname) history.pushState(null, "", path + location.search);
  changed(true);
}

/** How the kits are listed is no step back. */
export function list(how) {
  const asked = new URLSearchParams(Object.entries({ ...here(), ...how })
    .filter(([name, value]) => ["find", "show", "sort"].includes(name) && value));
  history.replaceState(null, "", `${location.pathname}${asked.size ? `?${asked}` : ""}`);
}
