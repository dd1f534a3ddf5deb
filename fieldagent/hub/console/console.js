// The console: what the read API has, kept up by its events. No text of the field is ever markup.

const by = id => document.getElementById(id);
const state = { sos: new Map(), items: [], older: null, text: "", role: "", events: null, last: "" };

function element(name, members = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(members))
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const clock = at => `${new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;

async function call(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: body ? { "Content-Type": "application/json" } : {},
    body: body && JSON.stringify(body),
  });
  if (answer.status === 401 && path !== "/console/session") return signedOut(), null;
  const told = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw Object.assign(new Error(told.detail || told.title), { sos: told.sos });
  return told;
}

function trouble(error) {
  by("away").textContent = error ? error.message : "";
  by("away").hidden = !error;
}

const place = position => position
  ? `${Number(position.latitude).toFixed(5)} ${Number(position.longitude).toFixed(5)}, ${clock(position.at)}`
  : "no position is known";

function said(event) {
  if (event.type === "Message") return event.content;
  if (event.type === "Data") return "data";
  return [event.name, `${event.latitude} ${event.longitude}`, event.notes].filter(Boolean).join(", ");
}

// The SOS desk.

function note(sos) {
  state.sos.set(sos.id, sos);
  showDesk();
  const list = by(`timeline-${sos.id}`);
  if (list && opened.has(sos.id)) showTimeline(sos.id, list).catch(trouble);
}

function showDesk() {
  const shown = [...state.sos.values()].filter(each => each.state !== "closed");
  shown.sort((a, b) => (b.state === "open") - (a.state === "open") || b.id - a.id);
  const nodes = shown.map(kept);
  const there = [...by("sos").children];
  // Who is moved loses the focus.
  if (nodes.length !== there.length || nodes.some((node, index) => node !== there[index]))
    by("sos").replaceChildren(...nodes);
  by("calm").hidden = shown.length > 0;
  ring(shown.filter(each => each.state === "open").length);
}

// What has not changed stays as it is: somebody may be writing in it.
const cards = new Map();
const reasons = new Map();
const written = new Map();
const opened = new Set();

function kept(sos) {
  const { event, timeline, ...now } = sos;
  const text = JSON.stringify([state.role, now]);
  if (cards.get(sos.id)?.text !== text) cards.set(sos.id, { text, card: alarm(sos) });
  return cards.get(sos.id).card;
}

function alarm(sos) {
  const what = sos.kind === "overdue" ? "Overdue" : "SOS";
  const sender = sos.item ? sos.item.sender.name : "";
  const lines = [
    element("strong", {}, `${what} ${sos.id}: ${sender} (${sos.device.name}), since ${clock(sos.raised)}`),
    element("p", {}, sos.item ? said(sos.item.event) : ""),
    element("p", {}, `Last seen: ${place(sos.position)}`),
  ];
  if (sos.item && sos.item.unauthenticated) lines.push(element("p", {}, "Nobody has proved that it is theirs."));
  if (sos.acknowledged)
    lines.push(element("p", {}, `${sos.acknowledged.by.name} has it since ${clock(sos.acknowledged.at)}`));
  const deeds = element("div", { class: "deeds" });
  if (state.role === "dispatcher") {
    const reason = element("input", {
      "aria-label": `Reason to close ${sos.id}`,
      placeholder: "reason to close",
      oninput: () => reasons.set(sos.id, reason.value),
    });
    reason.value = reasons.get(sos.id) || "";
    if (sos.state === "open")
      deeds.append(element("button", { type: "button", onclick: () => answer(sos.id, "acknowledge") }, "Acknowledge"));
    deeds.append(reason, element("button", {
      type: "button",
      onclick: () => reason.value ? answer(sos.id, "close", { reason: reason.value }) : reason.focus(),
    }, "Close"));
  }
  return element("li", { class: sos.state }, ...lines, deeds, story(sos));
}

// What happened, step by step, and what people write down; looked at when somebody opens it.

function story(sos) {
  const list = element("ol", { id: `timeline-${sos.id}` });
  const whole = element("details", {
    ontoggle: () => {
      opened[whole.open ? "add" : "delete"](sos.id);
      if (whole.open) showTimeline(sos.id, list).catch(trouble);
    },
  }, element("summary", {}, "What happened"), list);
  whole.open = opened.has(sos.id);
  if (state.role === "dispatcher") whole.append(noteForm(sos, list));
  return whole;
}

function noteForm(sos, list) {
  const text = element("input", {
    "aria-label": `Note on ${sos.id}`,
    placeholder: "write down what happens",
    maxlength: "2000",
    oninput: () => written.set(sos.id, text.value),
  });
  text.value = written.get(sos.id) || "";
  const write = async event => {
    event.preventDefault();
    if (!text.value.trim()) return text.focus();
    try {
      const now = await call("POST", `/api/sos/${sos.id}/note`, { text: text.value });
      if (!now) return;
      written.delete(sos.id);
      text.value = "";
      list.replaceChildren(...now.timeline.map(step));
      trouble();
    } catch (error) {
      trouble(error);
    }
  };
  return element("form", { class: "deeds", onsubmit: write }, text, element("button", {}, "Note"));
}

const STEPS = {
  raised: "raised", webhook: "taken by the webhook", agent: "stored by the agent of",
  heard: "heard of again", acknowledged: "acknowledged by", note: "noted by", closed: "closed by",
};

const step = ({ at, event, by: who, detail }) => element("li", {},
  element("span", { class: "quiet" }, `${clock(at)} `),
  [STEPS[event] || event, who && who.name, detail && `“${detail}”`].filter(Boolean).join(" "));

async function showTimeline(id, list) {
  const now = await call("GET", `/api/sos/${id}`);
  if (now) list.replaceChildren(...now.timeline.map(step));
}

async function answer(id, deed, body) {
  try {
    const told = await call("POST", `/api/sos/${id}/${deed}`, body || {});
    if (told) note(told);
    trouble();
  } catch (error) {
    if (error.sos) note(error.sos);
    trouble(error);
  }
}

// Sound begins with the click by which somebody signed in, or any later one.
let sound = null;
let ringing = null;
const wake = () => { sound ||= new AudioContext(); sound.resume(); };
document.addEventListener("click", wake);

function ring(open) {
  document.title = open ? `${open} SOS · fieldagent console` : "fieldagent console";
  if (!open) {
    clearInterval(ringing);
    ringing = null;
  } else if (ringing === null) {
    beep();
    ringing = setInterval(beep, 3000);
  }
}

function beep() {
  if (!sound || sound.state !== "running") return;
  const tone = sound.createOscillator();
  const volume = sound.createGain();
  volume.gain.value = 0.2;
  tone.frequency.value = 880;
  tone.connect(volume).connect(sound.destination);
  tone.start();
  tone.stop(sound.currentTime + 0.4);
}

// Devices and conversation.

/** Why nothing comes from it, as far as the hub can tell, and what to do. */
function silence(device) {
  const why = [];
  if (device.disabled) why.push("it is disabled");
  if (device.trouble) why.push(device.trouble);
  if (!device.lastContact) why.push("it has never called: look at its hub-token, or its IMEI here");
  else if (!device.linked && device.over === "ip") why.push("its link ended: no network, or no power");
  if (device.checkIn && device.checkIn.state !== "in time")
    why.push(`a word of it was due by ${clock(device.checkIn.due)}`);
  if (device.waiting && !device.linked) why.push(`${device.waiting} wait for it`);
  return why.join("; ");
}

async function showDevices() {
  const told = await call("GET", "/api/devices?limit=1000");
  by("devices").replaceChildren(...(told ? told.devices : []).map(each => element("tr", {},
    ...[
      each.name,
      each.user.name,
      each.linked ? "linked now" : each.lastContact ? `${clock(each.lastContact)} over ${each.over}` : "never",
      place(each.position),
      each.checkIn ? `${each.checkIn.state}, ${each.checkIn.rule}` : "none",
      String(each.waiting),
      silence(each),
    ].map(text => element("td", {}, text)))));
}

const line = item => element("li", {},
  element("span", { class: "quiet" }, `${clock(item.accepted)} ${item.sender.name}: `),
  item.sos ? element("strong", {}, "SOS ") : "", said(item.event));

async function showItems(more) {
  const told = await call("GET", more || `/api/items?limit=50&text=${encodeURIComponent(state.text)}`);
  if (!told) return;
  state.older = told.next;
  by("older").hidden = !told.next;
  const lines = told.items.map(line);
  if (more) by("items").append(...lines);
  else by("items").replaceChildren(...lines);
}

function listen() {
  state.events = new EventSource("/api/events");
  state.events.addEventListener("item", event => {
    if (!state.text) by("items").prepend(line(JSON.parse(event.data)));
    later();
  });
  state.events.addEventListener("sos", event => note(JSON.parse(event.data)));
  state.events.addEventListener("lost", () => load().catch(trouble));
  state.events.addEventListener("open", () => trouble());
  const mine = state.events;
  mine.addEventListener("error", () => setTimeout(() => {
    // A stream ends now and then, and the browser comes back by itself.
    if (state.events !== mine || mine.readyState === EventSource.OPEN) return;
    trouble(new Error("The hub is away: what is shown may be old. It is tried again."));
    // One that was refused it does not try again.
    if (mine.readyState === EventSource.CLOSED) begin();
  }, 6000));
}

let waits = null;
function later() {
  waits ||= setTimeout(() => { waits = null; showDevices().catch(trouble); }, 2000);
}

async function load() {
  for (const which of ["open", "acknowledged"]) {
    const told = await call("GET", `/api/sos?state=${which}&limit=200`);
    for (const each of told ? told.sos : []) state.sos.set(each.id, each);
  }
  showDesk();
  await Promise.all([showDevices(), showItems()]);
}

// Signing in and out.

function signedOut() {
  if (state.events) state.events.close();
  state.events = null;
  state.sos.clear();
  showDesk();
  show(false);
}

function show(inside) {
  by("enter").hidden = inside;
  for (const id of ["desk", "fleet", "talk", "leave"]) by(id).hidden = !inside;
  if (!inside) by("who").textContent = "";
}

async function begin() {
  if (state.events) state.events.close();
  let who;
  try {
    who = await call("GET", "/console/session");
  } catch {
    return signedOut();
  }
  state.role = who.role;
  by("who").textContent = `${who.name}, ${who.role}`;
  show(true);
  // Listening first: what comes while the rest is loaded is not missed.
  listen();
  await load().catch(trouble);
}

by("enter").addEventListener("submit", async event => {
  event.preventDefault();
  wake();
  const form = event.target;
  const told = Object.fromEntries(new FormData(form));
  try {
    await call("POST", "/console/session", told);
    by("refused").textContent = "";
    form.reset();
    await begin();
  } catch (error) {
    by("refused").textContent = error.message;
  }
});
by("leave").addEventListener("click", async () => {
  await call("DELETE", "/console/session").catch(trouble);
  signedOut();
});
by("search").addEventListener("change", event => {
  state.text = event.target.value;
  showItems().catch(trouble);
});
by("older").addEventListener("click", () => showItems(state.older).catch(trouble));
setInterval(() => state.events && showDevices().catch(trouble), 60000);
begin();
