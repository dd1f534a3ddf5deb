// The form that sends a Package. It shows the agent's messages beside each field, and the expected
// cost.

import { Away, Refused, call, outlives, post } from "./agent.js";
import { takeGrid } from "./choices.js";
import { counted, say, spoken, term } from "./language.js";
import { named } from "./people.js";
import { base64Of, scaled } from "./picture.js";
import { fixOfBrowser, wordButton } from "./sos.js";
import { METRES, UNIT, by, element, expected, lengthInWords, moment, rounded, tell } from "./text.js";

// The labels are made once, so the language must be loaded first.
await spoken;

const POSITION = [
  { name: "latitude", label: say("Latitude"), hint: say("degrees, such as {example}, UTM or MGRS", { example: "47.3769" }) },
  { name: "longitude", label: say("Longitude"), mode: "decimal", hint: say("degrees, such as {example}", { example: "8.5417" }) },
];
const KINDS = {
  message: [{ name: "content", label: say("Text"), rows: 3 }],
  location: [
    ...POSITION,
    { name: "altitude", label: say("Altitude ({unit})", { unit: UNIT }), mode: "decimal", number: true, factor: METRES },
    { name: "speedOverGround", label: say("Speed (m/s)"), mode: "decimal", number: true },
    { name: "courseOverGround", label: say("Course (degrees)"), mode: "decimal", number: true },
  ],
  waypoint: [
    ...POSITION,
    { name: "name", label: say("Name") },
    { name: "notes", label: say("Notes"), rows: 2 },
  ],
  data: [{ name: "payload", label: say("Payload (base64)"), rows: 3 }],
  picture: [],
};
const TERMS = [
  { name: "priority", label: say("Priority"), mode: "numeric", number: true,
    hint: say("100 and above is an SOS") },
  { name: "timeToLive", label: say("Give up after (seconds)"), mode: "numeric", number: true },
  { name: "collapseKey", label: say("Collapse key"), mode: "numeric", number: true,
    hint: say("replaces a waiting item with the same key") },
];
const WHOM = { name: "to", label: say("To"), list: "people",
  hint: say("empty: everyone; or a name, a group, an e-mail address, a telephone number") };
const PAUSE = 300, AGAIN = 3_000;
/** Lowest priority of an SOS (`package.SOS_PRIORITY`). */
const SOS_PRIORITY = 100;

let kind = "message";
let key = crypto.randomUUID();
let touched = new Set();
let timer = 0;
let asked = 0;
let canned = [];
let placesAsked = 0;
/** The picture in the chosen size, as base64. Empty without a picture. */
let picture = "";
/** Number of the last choice. Results of an earlier choice are dropped. */
let pictures = 0;

/** Sets up the form. `sent` is called after each sent Package. */
export function setUpForm(sent) {
  by("more-kinds").onclick = () => {
    by("more-kinds").remove();
    by("form").querySelector(".kinds").classList.add("all");
  };
  offerCanned();
  by("whom").replaceChildren(field(WHOM, "/to"), element("label", { class: "tick" },
    element("input", { type: "checkbox", id: "receipt" }), say("Request a read receipt")));
  by("terms").replaceChildren(...TERMS.map(each => field(each, `/${each.name}`)));
  drawFields();
  const left = outlives("message", () => kind === "message" && by("field-content").value
    ? { key, content: by("field-content").value, to: by("field-to").value } : null);
  if (left) {
    by("field-content").value = left.content;
    by("field-to").value = left.to;
    key = left.key;
    ask();
  }
  by("form").addEventListener("change", event => {
    if (event.target.name === "kind") {
      kind = event.target.value;
      drawFields();
    }
    changed(event);
  });
  by("form").addEventListener("input", changed);
  by("form").addEventListener("submit", async event => {
    event.preventDefault();
    clearTimeout(timer);
    by("submit").disabled = true;
    try {
      await submit(sent);
    } finally {
      by("submit").disabled = false;
    }
  });
}

/** Offers canned messages as buttons that only fill the field. */
async function offerCanned() {
  try {
    canned = (await call("GET", "/api/messages/canned")).messages;
  } catch {
    setTimeout(offerCanned, AGAIN);
    return;
  }
  showCanned();
}

function showCanned() {
  by("canned").hidden = kind !== "message" || !canned.length;
  by("canned").replaceChildren(...canned.map(text => wordButton(term(text), "field-content", () => {
    by("field-content").dispatchEvent(new Event("input", { bubbles: true }));
  })));
}

/** Offers buttons that fill the position fields. */
async function offerPlaces() {
  const question = ++placesAsked;
  by("own-places").replaceChildren();
  if (!["location", "waypoint"].includes(kind)) return;
  const here = fixOfBrowser();
  const offered = here === null ? []
    : [[say("Here, from this browser, within {distance}", { distance: lengthInWords(here.accuracy) }), here.latitude, here.longitude]];
  const { features } = await call("GET", "/api/positions?of=own&limit=1");
  const last = features.at(-1);
  if (last) {
    const [longitude, latitude] = last.geometry.coordinates;
    const at = Date.parse(last.properties.timestamp) / 1000;
    offered.push([say("Position of this kit {time}", { time: moment(at) }), latitude, longitude]);
  }
  if (question !== placesAsked) return;
  by("own-places").replaceChildren(...offered.map(([text, latitude, longitude]) => {
    const button = element("button", { type: "button" }, text);
    button.onclick = () => {
      by("field-latitude").value = latitude;
      by("field-longitude").value = longitude;
      by("field-latitude").dispatchEvent(new Event("input", { bubbles: true }));
    };
    return button;
  }));
}

/** Shows the configured channels as a choice. */
export function showChoice(status) {
  const names = Object.entries(status.channels).filter(([, each]) => each.configured)
    .map(([name]) => name);
  const place = by("channels");
  if (place.dataset.names === names.join()) return;
  place.dataset.names = names.join();
  place.hidden = names.length < 2;
  place.replaceChildren(place.firstElementChild, ...names.map(name => element("label", {},
    element("input", { type: "checkbox", name: "channel", value: name, checked: true }), term(name))));
}

/** Draws the sizes in which a photograph can be sent, each with its cost. */
function drawPicture() {
  picture = "";
  pictures += 1;
  const sizes = element("div", { id: "sizes" });
  const file = element("input", {
    id: "field-picture", type: "file", accept: "image/*",
    onchange: () => showSizes(file.files[0], sizes),
  });
  by("fields").replaceChildren(element("div", { class: "wide" },
    element("label", { for: "field-picture" }, say("Photograph")), file, sizes,
    element("p", { class: "hint" }, say("The page scales the picture to the chosen size and sends it as WebP."))));
}

async function showSizes(file, place) {
  const mine = ++pictures;
  picture = "";
  place.replaceChildren();
  if (file === undefined) return;
  const made = await scaled(file).catch(() => null);
  if (mine !== pictures) return;
  if (made === null) return place.append(element("p", { class: "fault" }, say("The browser cannot read this picture.")));
  for (const { side, blob } of made) {
    const payload = await base64Of(blob);
    let told = "";
    try {
      told = inWords((await call("POST", "/api/package/cost", { data: { payload } })).channels);
    } catch (error) {
      told = error.faults?.[0]?.detail ?? error.message;
    }
    if (mine !== pictures) return;
    const first = picture === "";
    if (first) picture = payload;
    place.append(element("label", {},
      element("input", { type: "radio", name: "size", checked: first, onchange: () => {
        picture = payload;
      } }),
      `${say("{side} pixels", { side })}, ${counted(blob.size, "{n} byte", "{n} bytes")}. ${told}`));
  }
}

function drawFields() {
  showCanned();
  offerPlaces().catch(() => {});
  if (kind === "picture") {
    by("fields").className = "";
    drawPicture();
    touched = new Set();
    tell("cost", "");
    return;
  }
  by("fields").className = KINDS[kind].length > 1 ? "pair" : "";
  by("fields").replaceChildren(...KINDS[kind].map(each => field(each, `/${kind}/${each.name}`)));
  if (by("field-latitude")) takeGrid(by("field-latitude"), by("field-longitude"), fault => tell("field-latitude-fault", fault));
  touched = new Set();
  ask();
}

function field({ name, label, rows, mode, hint, list }, pointer) {
  const id = `field-${name}`;
  const control = element(rows ? "textarea" : "input", {
    id, rows, list, inputmode: mode, autocomplete: "off", "data-pointer": pointer,
    "aria-describedby": `${id}-hint ${id}-fault`,
  });
  return element("div", { class: rows ? "wide" : null },
    element("label", { for: id }, label), control,
    element("p", { id: `${id}-hint`, class: "hint" }, hint ?? ""),
    element("p", { id: `${id}-fault`, class: "fault" }));
}

function changed(event) {
  if (event.target.dataset.pointer) touched.add(event.target.dataset.pointer);
  // Changed content is a new Package, so it needs a new key.
  key = crypto.randomUUID();
  tell("done", "");
  ask();
}

function ask() {
  clearTimeout(timer);
  timer = setTimeout(estimate, PAUSE);
}

/** Returns a number if the text is one, else the text, which the agent then refuses. A comma is
 * decimal, unless it may separate thousands. */
function value(text, isNumber, factor = 1) {
  const number = factor * Number(text.replace(/^(-?\d+),(\d{1,2})$/, "$1.$2"));
  return isNumber && text.trim() !== "" && Number.isFinite(number) ? number : text;
}

function written() {
  const item = kind === "picture" ? { payload: picture } : {};
  const body = { [kind === "picture" ? "data" : kind]: item };
  const read = (fields, into) => {
    for (const each of fields) {
      const text = by(`field-${each.name}`).value;
      if (text !== "") into[each.name] = value(each.rows ? text : text.trim(), each.number, each.factor);
    }
  };
  read(KINDS[kind], item);
  read(TERMS, body);
  read([WHOM], body);
  if (typeof body.to === "string") body.to = named(body.to);
  if (by("receipt").checked) body.receipt = "read";
  const boxes = [...document.querySelectorAll("[name=channel]")];
  const chosen = boxes.filter(box => box.checked).map(box => box.value);
  if (chosen.length < boxes.length) body.channels = chosen;
  return body;
}

async function estimate() {
  const question = ++asked;
  if (kind === "picture") return;
  if (KINDS[kind].every(each => by(`field-${each.name}`).value === "")) {
    showFaults([]);
    tell("cost", "");
    return;
  }
  try {
    const { channels } = await call("POST", "/api/package/cost", written());
    if (question !== asked) return;
    showFaults([]);
    tell("cost", inWords(channels));
  } catch (error) {
    if (question !== asked) return;
    tell("cost", "");
    // Show no faults of fields that the person has not reached yet.
    if (error instanceof Refused)
      showFaults(error.faults.filter(each => touched.has(each.pointer)));
  }
}

function inWords(channels) {
  const inTurn = Object.entries(channels).sort(([, one], [, other]) => one.begins - other.begins);
  const told = inTurn.map(([name, cost]) => {
    if (cost.reason) return `${term(name)}: ${cost.reason}`;
    const left = cost.byBytes ? cost.bytesLeft : cost.creditsLeft;
    const turn = cost.begins ? `${say("otherwise, after {age}", { age: rounded(cost.begins) })}: ` : "";
    return `${turn}${term(name)}: ${counted(cost.parts, "{n} part", "{n} parts")}, `
      + (cost.byBytes ? counted(cost.bytes, "{n} paid byte", "{n} paid bytes")
        : `${counted(cost.bytes, "{n} byte", "{n} bytes")}, ${counted(cost.credits, "{n} credit", "{n} credits")}`)
      + (left === null ? "" : ` ${say("of {n} left today", { n: left })}`) + (cost.money ? `: ${cost.money}` : "")
      + (cost.expected ? ` (${say("expected: {times}", { times: expected(cost.expected) })})` : "");
  });
  return told.join(" · ") || say("None of the chosen channels is configured.");
}

/** Shows each fault beside its field, and the others above the button. Returns true if a field has
 * a fault. */
function showFaults(faults, rest = "") {
  const controls = [...document.querySelectorAll("[data-pointer]")];
  for (const control of controls) {
    const own = faults.filter(each => each.pointer === control.dataset.pointer);
    control.toggleAttribute("aria-invalid", false);
    if (own.length) control.setAttribute("aria-invalid", "true");
    tell(`${control.id}-fault`, own.map(each => control.gridFault || each.detail).join("; "));
  }
  const pointers = controls.map(control => control.dataset.pointer);
  const others = faults.filter(each => !pointers.includes(each.pointer))
    .map(each => `${each.pointer.slice(1)} ${each.detail}`.trim());
  tell("fault", others.join("; ") || rest);
  return controls.find(control => control.hasAttribute("aria-invalid"));
}

/** A call for help, in letters of three alphabets, or in Morse. */
const S = "[sсσς]", O = "[o0оο]";
const CALL = new RegExp(`^[^\\p{L}\\p{N}]*(${S}+${O}+${S}+(${O}+${S}+)*|${S}([. *_-]{1,2})${O}\\3${S}|mayday|ме[ий]дей|мэйдэй)(?!\\p{L})`
  + "|^\\s*\\.{3}\\s*(---|—-|-—|—)\\s*\\.{3}", "iu");

/** Returns true if a text reads like a call for help, as `package.distress` reads a direct one. */
export function isCall(text) {
  const plain = text.replace(/\p{Cf}|\ufe0f/gu, "").normalize("NFKC").replaceAll("🆘", " SOS ");
  return CALL.test(plain) && !/^[\W_]*sos[\W_]+cancel[\W_]*$/i.test(plain);
}

/** Asks what a person means who typed that priority, or with `words` such a text: "send" as an SOS,
 * "message", or "" for neither. */
async function meantAsSos(words) {
  const dialog = by("urgent");
  by("urgent-priority").hidden = words;
  by("urgent-words").hidden = by("urgent-message").hidden = !words;
  dialog.returnValue = "";
  dialog.showModal();
  by("urgent-back").focus();
  await new Promise(resolve => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue;
}

async function submit(sent) {
  if (kind === "picture" && picture === "") {
    tell("fault", say("Choose a photograph first."));
    return;
  }
  const body = written();
  if (body.priority >= SOS_PRIORITY) {
    if (!await meantAsSos(false)) return;
  } else if (isCall(body.message?.content ?? "")) {
    const meant = await meantAsSos(true);
    if (!meant) return;
    if (meant === "send") body.priority = SOS_PRIORITY;
  }
  const mine = key;
  try {
    const accepted = await post(body, mine);
    // If the content changed meanwhile, it belongs to the next Package.
    if (key !== mine) return sent();
    asked += 1;
    key = crypto.randomUUID();
    showFaults([]);
    tell("cost", "");
    tell("done", `${say("Package {id}", { id: accepted.id })}: ${accepted.status ? term(accepted.status) : say("in the queue")}.`
      + ` ${accepted.reason ?? ""}`);
    for (const each of KINDS[kind]) by(`field-${each.name}`).value = "";
    by("receipt").checked = false;
    if (kind === "picture") drawPicture();
    touched = new Set();
    sent();
  } catch (error) {
    const wrong = showFaults(error.faults ?? [], error instanceof Away
      ? say("The agent does not answer. Your text is still here. Press Send again later. It is sent only once.")
      : error.message);
    if (wrong !== undefined && error.faults.length) {
      tell("fault", "");
      by("terms").contains(wrong) && (wrong.closest("details").open = true);
      wrong.focus();
    }
  }
}
