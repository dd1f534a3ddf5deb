// The form that sends, with the agent's own words beside each field, and what it would cost.

import { Away, Refused, call, post } from "./agent.js";
import { by, counted, element, tell } from "./text.js";

const POSITION = [
  { name: "latitude", label: "Latitude", mode: "decimal", hint: "degrees, such as 47.3769" },
  { name: "longitude", label: "Longitude", mode: "decimal", hint: "degrees, such as 8.5417" },
];
const KINDS = {
  message: [{ name: "content", label: "Text", rows: 3 }],
  location: [
    ...POSITION,
    { name: "altitude", label: "Altitude (m)", mode: "decimal", number: true },
    { name: "speedOverGround", label: "Speed (m/s)", mode: "decimal", number: true },
    { name: "courseOverGround", label: "Course (degrees)", mode: "decimal", number: true },
  ],
  waypoint: [
    ...POSITION,
    { name: "name", label: "Name" },
    { name: "notes", label: "Notes", rows: 2 },
  ],
  data: [{ name: "payload", label: "Payload (base64)", rows: 3 }],
};
const TERMS = [
  { name: "priority", label: "Priority", mode: "numeric", number: true,
    hint: "100 and above is an SOS" },
  { name: "timeToLive", label: "Give up after (seconds)", mode: "numeric", number: true },
  { name: "collapseKey", label: "Collapse key", mode: "numeric", number: true,
    hint: "replaces what waits with the same one" },
];
const PAUSE = 300;

let kind = "message";
let key = crypto.randomUUID();
let touched = new Set();
let timer = 0;
let asked = 0;

/** Sets the form up; `sent` is called when something was sent. */
export function setUpForm(sent) {
  by("terms").replaceChildren(...TERMS.map(each => field(each, `/${each.name}`)));
  drawFields();
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

/** The channels that may be chosen. */
export function showChoice(status) {
  const names = Object.entries(status.channels).filter(([, each]) => each.configured)
    .map(([name]) => name);
  const place = by("channels");
  if (place.dataset.names === names.join()) return;
  place.dataset.names = names.join();
  place.hidden = names.length < 2;
  place.replaceChildren(place.firstElementChild, ...names.map(name => element("label", {},
    element("input", { type: "checkbox", name: "channel", value: name, checked: true }), name)));
}

function drawFields() {
  by("fields").className = KINDS[kind].length > 1 ? "pair" : "";
  by("fields").replaceChildren(...KINDS[kind].map(each => field(each, `/${kind}/${each.name}`)));
  touched = new Set();
  ask();
}

function field({ name, label, rows, mode, hint }, pointer) {
  const id = `field-${name}`;
  const control = element(rows ? "textarea" : "input", {
    id, rows, inputmode: mode, autocomplete: "off", "data-pointer": pointer,
    "aria-describedby": `${id}-hint ${id}-fault`,
  });
  return element("div", { class: rows ? "wide" : null },
    element("label", { for: id }, label), control,
    element("p", { id: `${id}-hint`, class: "hint" }, hint ?? ""),
    element("p", { id: `${id}-fault`, class: "fault" }));
}

function changed(event) {
  if (event.target.dataset.pointer) touched.add(event.target.dataset.pointer);
  // Another content is another Package.
  key = crypto.randomUUID();
  tell("done", "");
  ask();
}

function ask() {
  clearTimeout(timer);
  timer = setTimeout(estimate, PAUSE);
}

/** Numbers as numbers, where they are some: what is none, the agent says. */
function value(text, isNumber) {
  const number = Number(text);
  return isNumber && text.trim() !== "" && Number.isFinite(number) ? number : text;
}

function written() {
  const item = {};
  const body = { [kind]: item };
  const read = (fields, into) => {
    for (const each of fields) {
      const text = by(`field-${each.name}`).value;
      if (text !== "") into[each.name] = value(each.rows ? text : text.trim(), each.number);
    }
  };
  read(KINDS[kind], item);
  read(TERMS, body);
  const boxes = [...document.querySelectorAll("[name=channel]")];
  const chosen = boxes.filter(box => box.checked).map(box => box.value);
  if (chosen.length < boxes.length) body.channels = chosen;
  return body;
}

async function estimate() {
  const question = ++asked;
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
    // Nobody is scolded for what he has not come to yet.
    if (error instanceof Refused)
      showFaults(error.faults.filter(each => touched.has(each.pointer)));
  }
}

function inWords(channels) {
  const told = Object.entries(channels).map(([name, cost]) =>
    `${name}: ${counted(cost.parts, "part")}, ${counted(cost.bytes, "byte")},`
    + ` ${counted(cost.credits, "credit")}`
    + (cost.creditsLeft === null ? "" : ` of ${cost.creditsLeft} left today`));
  return told.join(" · ") || "No channel that it names is configured.";
}

/** Each beside its field; the rest above the button. True where a field has one. */
function showFaults(faults, rest = "") {
  const controls = [...document.querySelectorAll("[data-pointer]")];
  for (const control of controls) {
    const own = faults.filter(each => each.pointer === control.dataset.pointer);
    control.toggleAttribute("aria-invalid", false);
    if (own.length) control.setAttribute("aria-invalid", "true");
    tell(`${control.id}-fault`, own.map(each => each.detail).join("; "));
  }
  const pointers = controls.map(control => control.dataset.pointer);
  const others = faults.filter(each => !pointers.includes(each.pointer))
    .map(each => `${each.pointer.slice(1)} ${each.detail}`.trim());
  tell("fault", others.join("; ") || rest);
  return controls.find(control => control.hasAttribute("aria-invalid"));
}

async function submit(sent) {
  try {
    const accepted = await post(written(), key);
    asked += 1;
    key = crypto.randomUUID();
    showFaults([]);
    tell("cost", "");
    tell("done", `Package ${accepted.id} is ${accepted.status ?? "in the queue"}.`
      + ` ${accepted.reason ?? ""}`);
    for (const each of KINDS[kind]) by(`field-${each.name}`).value = "";
    touched = new Set();
    sent();
  } catch (error) {
    const wrong = showFaults(error.faults ?? [], error instanceof Away
      ? `${error.message} What you wrote is still here: press Send again when it is back; it is`
        + " sent once, however often you press."
      : error.message);
    if (wrong !== undefined && error.faults.length) {
      tell("fault", "");
      by("terms").contains(wrong) && (wrong.closest("details").open = true);
      wrong.focus();
    }
  }
}
