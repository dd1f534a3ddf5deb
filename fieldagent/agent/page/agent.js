// Calls to the agent.

import { language, read, say } from "./language.js";

/** Error: the agent refused a request. `faults` contains the reasons and their places. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail || problem.title || say("the agent refused it"));
    this.faults = problem.errors ?? [];
  }
}

/** Error: the agent did not answer. */
export class Away extends Error {
  constructor() {
    super(say("The agent does not answer."));
  }
}

const PATIENCE = 20_000;

/** Functions that return typed text which must survive a new sign-in, by name. */
const typed = new Map();
const TYPED = "typed";

/** Keeps the result of `give` over a sign-in. Returns the kept value of that name, once. */
export function outlives(name, give) {
  typed.set(name, give);
  try {
    const { [name]: left, ...others } = JSON.parse(sessionStorage.getItem(TYPED)) ?? {};
    sessionStorage.setItem(TYPED, JSON.stringify(others));
    return left ?? null;
  } catch {
    return null;
  }
}

function enter() {
  try {
    sessionStorage.setItem(TYPED, JSON.stringify(Object.fromEntries([...typed].map(([name, give]) => [name, give()]))));
  } catch {
    // Without storage, the person must type the text again.
  }
  location.assign("/enter");
}

let answers = () => {};

/** Registers `heard`. It is called with true at each answer, and with false if no answer came. */
export const onAnswer = heard => { answers = heard; };

export async function call(method, path, body, headers = {}) {
  const how = { method, headers: { "Accept-Language": language, ...headers }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) };
  if (body !== undefined) {
    how.body = JSON.stringify(body);
    how.headers["Content-Type"] = "application/json";
  }
  let answer, document;
  try {
    answer = await fetch(path, how);
    document = await read(await answer.text());
  } catch {
    answers(false);
    throw new Away();
  }
  answers(true);
  // A person whose session has ended signs in again. This machine itself needs no sign-in.
  if (answer.status === 401) enter();
  if (!answer.ok) throw new Refused(document);
  return document;
}

/** Posts a Package once, even after several tries: the key identifies it. */
export const post = (body, key) =>
  call("POST", "/api/package/async", body, { "Idempotency-Key": key });

/** Returns a function that runs `job`. Runs follow each other with at least `pause` between them,
 * and at most one run waits. */
export function seldom(job, pause, failed) {
  let runs = false, wanted = false;
  return async () => {
    wanted = true;
    if (runs) return;
    runs = true;
    try {
      while (wanted) {
        wanted = false;
        await job().catch(failed);
        await new Promise(resolve => setTimeout(resolve, pause));
      }
    } finally {
      runs = false;
    }
  };
}
