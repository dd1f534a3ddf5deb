// On the page where a contact answers, shows local times. Each UTC time becomes the tooltip. The page
// is complete without this script.

for (const each of document.querySelectorAll("time")) {
  const moment = new Date(each.dateTime);
  const how = moment.toDateString() === new Date().toDateString() ? { timeStyle: "short" } : { dateStyle: "short", timeStyle: "short" };
  each.title = each.textContent;
  each.textContent = moment.toLocaleString(document.documentElement.lang, how);
}
