// Users: an administrator adds and changes them.

import { act, all, button, choice, deeds, emptied, filled, flag, fold, form, line, longList, once, sure } from "./acts.js";
import { call, me } from "./hub.js";
import { say, spoken, term } from "./language.js";
import { by, moment } from "./text.js";

await spoken;

const ROLES = [["member", say("member: sees only own items")], ["observer", say("observer: sees everything, cannot answer")], ["dispatcher", say("dispatcher: sees all, answers an SOS")],
  ["administrator", say("administrator: also manages users and devices")]];
const TYPES = [["User", say("person")], ["Integration", say("program that sees everything")], ["Resource", say("resource")], ["Device", say("device")]];

const tellPassword = (name, { password, until }) => once(
  say("The password of {name}, for the first sign-in until {time}", { name, time: moment(until) }), password);

function change(user) {
  const id = `user-${user.id}`, { name } = user;
  const path = `/api/users/${user.id}`;
  const patch = (body, done) => act(async () => { await call("PATCH", path, body); return done; }, loadUsers);
  const saved = () => {
    const { role, ...rules } = filled(id, ["role", "overSatellite", "allPositions"]);
    // Administrators cannot change their own role, and a program has no role.
    return patch(role && role !== user.role ? { role, ...rules } : rules, say("{name} is changed.", { name }));
  };
  const password = () => act(async () => {
    tellPassword(user.name, await call("POST", `${path}/password`));
    return say("{name} chooses their own at the next sign-in.", { name });
  }, loadUsers);
  const gone = () => act(async () => {
    await call("DELETE", path);
    return say("{name} is deleted.", { name });
  }, loadUsers);
  const off = user.disabled;
  const words = term(user.type === "User" ? user.role : user.type);
  return fold(id, [`${user.name} (${user.id})`, words, user.email, off && say("disabled")].filter(Boolean).join(", "),
    () => [form(say("Change {name}", { name }), saved, { id: `${id}-save`, text: say("Save") },
      choice(`${id}-role`, say("Role"), user.type === "User" ? ROLES : ROLES.slice(0, 1), user.role),
      flag(`${id}-overSatellite`, say("Items of other kits reach them over satellite, too"), user.overSatellite),
      flag(`${id}-allPositions`, say("Their kits get every position of other kits, not only the newest"), user.allPositions)),
    user.id === me.id ? "" : deeds(
      button(`${id}-off`, off ? say("Enable") : say("Disable"),
        () => patch({ disabled: !off }, off ? say("{name} is enabled, with their devices.", { name }) : say("{name} is disabled, with their devices.", { name }))),
      ...user.type === "User" ? [button(`${id}-password`, say("New password"), password)] : [],
      button(`${id}-delete`, say("Delete"), sure(say("Delete {name} for good, with their devices and all that they sent?", { name }), gone)))]);
}

export async function loadUsers() {
  const users = await all("/api/users?limit=1000", "users");
  longList("admin-users", users.reverse(), change, say("No contact yet."));
}

const add = () => act(async () => {
  const body = filled("new-user", ["name", "email", "type", "role", "signIn"]);
  if (body.type !== "User") Object.assign(body, { role: "member", signIn: false });
  const told = await call("POST", "/api/users", body);
  emptied("new-user", ["name", "email"], body);
  if (told.password) tellPassword(body.name, told);
  return say("{name} is added, as user {id}.", { name: body.name, id: told.id });
}, loadUsers);

export const newUser = () => form(say("Add a user"), add, { id: "new-user-add", text: say("Add the user") },
  line("new-user-name", say("Name of the new user"), { maxlength: "80" }),
  line("new-user-email", say("E-mail address, to sign in with"), { type: "email", maxlength: "80" }),
  choice("new-user-type", say("Type"), TYPES, "User"),
  choice("new-user-role", say("Role of the new user"), ROLES, "member"),
  flag("new-user-signIn", say("May sign in here: create a password"), true));
