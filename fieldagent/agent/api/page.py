"""The page at `/`: how the agent is doing, for whoever stands before the gateway with a browser."""

from __future__ import annotations

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fieldagent</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto;
    padding: 0 1rem }
  table { border-collapse: collapse; width: 100%; margin-bottom: 1.5rem }
  th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884 }
  #trouble { color: #b00020 }
  #sos p { background: #b00020; color: #fff; font-weight: bold; padding: .6rem; margin: 0 0 .5rem }
  #sos p.confirmed { background: #0b6b2e }
</style>
<div id="sos" role="alert"></div>
<h1>fieldagent</h1>
<p id="trouble" role="alert"></p>
<p id="agent"></p>
<table><tbody id="losses"></tbody></table>
<h2>Channels</h2>
<table><thead><tr><th>channel<th>state<th>signal<th>queued<th>credits today</thead>
<tbody id="channels"></tbody></table>
<h2>Waiting</h2>
<table><thead><tr><th>id<th>kind<th>priority<th>since</thead><tbody id="queue"></tbody></table>
<p id="more"></p>
<script>
const show = (id, rows) => document.getElementById(id).replaceChildren(...rows.map(cells => {
  const row = document.createElement("tr");
  row.append(...cells.map(text => {
    const cell = document.createElement("td");
    cell.textContent = text ?? "–";
    return cell;
  }));
  return row;
}));
const time = unix => new Date(unix * 1000).toLocaleString();
const who = receipts => receipts.map(each =>
  `${each.name || each.id} (${each.type}) at ${time(each.at)}`).join(", ");
const alarms = sos => sos.packages.map(each => {
  const line = document.createElement("p");
  const again = each.nextTry ? `next try ${time(each.nextTry)}` : "no channel goes on";
  line.className = each.confirmedBy.length ? "confirmed" : "";
  line.textContent = `SOS ${each.id}, sent ${time(each.since)}: ` + (each.confirmedBy.length
    ? `confirmed by ${who(each.confirmedBy)}` : `NOBODY HAS CONFIRMED IT YET; ${again}`);
  return line;
});
const tell = (id, nodes) => {
  const place = document.getElementById(id);
  // What says the same is left alone: a screen reader would read it again.
  if (place.textContent !== nodes.map(node => node.textContent).join(""))
    place.replaceChildren(...nodes);
};
const get = async path => (await fetch(path)).json();
async function look() {
  const trouble = document.getElementById("trouble");
  try {
    const [status, queue] = await Promise.all([get("/api/status"), get("/api/queue?limit=100")]);
    tell("sos", alarms(status.sos));
    document.getElementById("agent").textContent =
      `version ${status.version}, up for ${Math.floor(status.uptime)} s`;
    show("losses", status.journal.losses.map(loss =>
      [time(loss.at), loss.text]));
    show("channels", Object.entries(status.channels).map(([name, channel]) =>
      [name, channel.configured ? `${channel.state} ${channel.reason}` : "not configured",
       channel.signal, channel.queued, channel.creditsToday]));
    show("queue", queue.packages.map(waiting =>
      [waiting.id, waiting.kind, waiting.priority, time(waiting.accepted)]));
    const more = queue.queued - queue.packages.length;
    document.getElementById("more").textContent = more > 0 ? `and ${more} more` : "";
    trouble.textContent = "";
  } catch (error) {
    trouble.textContent = `The agent does not answer: ${error.message}`;
  }
}
look();
setInterval(look, 2000);
</script>
</html>
"""
