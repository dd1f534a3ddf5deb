// Beside each time of a page that a contact answers on, what time that is where they are. The page
// says all that it has to say without this.

for (const each of document.querySelectorAll("time[data-local]")) {
  const moment = new Date(each.dateTime);
  const how = moment.toDateString() === new Date().toDateString() ? { timeStyle: "short" } : { dateStyle: "short", timeStyle: "short" };
  const local = moment.toLocaleString(document.documentElement.lang, how);
  if (moment.getTimezoneOffset()) each.after(` (${each.dataset.local.replace("{time}", () => local)})`);
}
