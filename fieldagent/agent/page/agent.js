// Calls to the agent.

import { language, read, say } from "./language.js";

/** The agent refused; `faults` say what and where. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail || problem.title || say("the agent refused it"));
    this.faults = problem.errors ?? [];
  }
}

/** Nobody answered. */
export class Away extends Error {
  constructor() {
    super(say("The agent does not answer."));
  }
}

const PATIENCE = 20_000;

/** What is typed, which is to outlive that somebody has to sign in anew: by name, what tells it. */
const typed = new Map();
const TYPED = "typed";

/** Lets what `give` returns be there after signing in; what was there before comes back, once. */
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
    // Where nothing is kept, they type it again.
  }
  location.assign("/enter");
}

let answers = () => {};

/** `heard` is called with true at each answer, and with false where none came. */
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
  // Who is signed in no more does so anew; on this machine nobody has to.
  if (answer.status === 401) enter();
  if (!answer.ok) throw new Refused(document);
  return document;
}

/** Posts once, however often it has to be tried: the key makes the second one the first. */
export const post = (body, key) =>
  call("POST", "/api/package/async", body, { "Idempotency-Key": key });

/** Calls of it run one after the other, `pause` apart, and never more than one waits. */
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
