// A client of CloudTAK's library at a TAK server: node node_tak.mjs URL PEM, with key and
// certificate in one file. Prints a JSON line for each event. Each input line is a message to send:
// {"from": {"uid": …, "callsign": …}, "to": {…}, "message": …}
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

// The libraries are in the current folder, not in this file's.
const find = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(find.resolve(name)));
const { default: TAK } = await load('@tak-ps/node-tak');
const { DirectChat } = await load('@tak-ps/node-cot');
const [url, pem] = process.argv.slice(2);
const both = readFileSync(pem, 'utf8');
const say = (news) => console.log(JSON.stringify(news));
const tak = await TAK.connect('test', new URL(url), { cert: both, key: both });
tak.on('ping', () => say({ ping: tak.open }));
tak.on('cot', (cot) => say(cot.to_geojson()));
tak.on('error', (error) => say({ error: String(error) }));
tak.on('end', () => say({ end: true }));
createInterface({ input: process.stdin }).on('line', (line) => {
  tak.write([new DirectChat(JSON.parse(line))]);
});
