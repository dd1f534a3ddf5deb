// Users, as an administrator adds and changes them.

import { act, all, button, choice, deeds, filled, flag, fold, form, line, list, once, sure } from "./acts.js";
import { call, me } from "./hub.js";
import { by, clock } from "./text.js";

const ROLES = [["member", "member: sees what is theirs"], ["observer", "observer: sees all, answers nothing"], ["dispatcher", "dispatcher: sees all, answers an SOS"],
  ["administrator", "administrator: says who is who, too"]];
const TYPES = [["User", "person"], ["Integration", "program that sees all"], ["Resource", "resource"], ["Device", "device"]];

const tellPassword = (name, { password, until }) => once(
  `The password of ${name}, for the first sign-in until ${clock(until)} UTC`, password);

function change(user) {
  const id = `user-${user.id}`;
  const path = `/api/users/${user.id}`;
  const patch = (body, done) => act(async () => { await call("PATCH", path, body); return done; }, loadUsers);
  const saved = () => {
    const { role, overSatellite } = filled(id, ["role", "overSatellite"]);
    // Nobody changes their own role, and a program has none.
    return patch(role && role !== user.role ? { role, overSatellite } : { overSatellite }, `${user.name} is changed.`);
  };
  const password = () => act(async () => {
    tellPassword(user.name, await call("POST", `${path}/password`));
    return `${user.name} chooses their own at the next sign-in.`;
  }, loadUsers);
  const gone = () => act(async () => {
    await call("DELETE", path);
    return `${user.name} is deleted.`;
  }, loadUsers);
  const off = user.disabled;
  const words = user.type === "User" ? user.role : user.type;
  return fold(id, [`${user.name} (${user.id})`, words, user.email, off && "disabled"].filter(Boolean).join(", "),
    form(`Change ${user.name}`, saved, { id: `${id}-save`, text: "Save" },
      choice(`${id}-role`, "Role", user.type === "User" ? ROLES : ROLES.slice(0, 1), user.role),
      flag(`${id}-overSatellite`, "What others send reaches them over satellite too", user.overSatellite)),
    user.id === me.id ? "" : deeds(
      button(`${id}-off`, off ? "Enable" : "Disable",
        () => patch({ disabled: !off }, `${user.name} is ${off ? "in use again" : "out of use"}, with their devices.`)),
      ...user.type === "User" ? [button(`${id}-password`, "New password", password)] : [],
      button(`${id}-delete`, "Delete", sure(`Delete ${user.name} for good, with their devices and all that they sent?`, gone))));
}

export async function loadUsers() {
  const users = await all("/api/users?limit=1000", "users");
  list("admin-users", users.reverse().map(change), "Nobody yet.");
}

const add = () => act(async () => {
  const body = filled("new-user", ["name", "email", "type", "role", "signIn"]);
  if (body.type !== "User") Object.assign(body, { role: "member", signIn: false });
  const told = await call("POST", "/api/users", body);
  for (const each of ["name", "email"]) by(`new-user-${each}`).value = "";
  if (told.password) tellPassword(body.name, told);
  return `${body.name} is added, as user ${told.id}.`;
}, loadUsers);

export const newUser = () => form("Add a user", add, { id: "new-user-add", text: "Add the user" },
  line("new-user-name", "Name of the new user", { maxlength: "80" }),
  line("new-user-email", "E-mail address, to sign in with", { type: "email", maxlength: "80" }),
  choice("new-user-type", "What it is", TYPES, "User"),
  choice("new-user-role", "Role of the new user", ROLES, "member"),
  flag("new-user-signIn", "May sign in here: make a password", true));
