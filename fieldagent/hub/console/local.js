// On the page where a contact answers, adds the local time beside each UTC time. The page is
// complete without this script.

for (const each of document.querySelectorAll("time[data-local]")) {
  const moment = new Date(each.dateTime);
  const how = moment.toDateString() === new Date().toDateString() ? { timeStyle: "short" } : { dateStyle: "short", timeStyle: "short" };
  const local = moment.toLocaleString(document.documentElement.lang, how);
  if (moment.getTimezoneOffset()) each.after(` (${each.dataset.local.replace("{time}", () => local)})`);
}
