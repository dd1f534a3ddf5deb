#!/bin/sh
# A hub of our packages in /srv/with, first without and then with the optional libraries that this
# Debian has.
set -eu
. tests/shipping/kit.sh
home=$(mktemp -d)
export PYTHONPATH=/usr/lib/fieldagent
libraries="apprise python3-cryptography python3-psycopg qrencode"

hub() {
    fieldagent hub "$@" --config "$home/hub.properties"
}

refused() {
    words=$1
    shift
    ! hub "$@" >/tmp/told 2>&1 || fail "hub $* was not refused"
    grep -qF "$words" /tmp/told || fail "hub $* was refused for something else: $(cat /tmp/told)"
}

begin_hub() {
    fieldagent hub run --config "$home/hub.properties" >"$home/log" 2>&1 &
    running=$!
    for _ in $(seq 300); do
        ! grep -q "the hub answers at" "$home/log" || return 0
        kill -0 $running || break
        sleep 0.1
    done
    fail "the hub does not start: $(cat "$home/log")"
}

end_hub() {
    kill $running
    wait $running
}

clean
apt-get -qq update
apt-get -qq purge --autoremove $libraries >/dev/null 2>&1
cat >"$home/hub.properties" <<END
database=$home/hub.sqlite3
listen=127.0.0.1
port=$port
console-address=https://hub.example.org
trusted-proxies=127.0.0.1/32
webhook-allow=127.0.0.0/8
tak-listen=127.0.0.1:$((port + 1))
tak-address=hub.example.org:8089
tak-workspace=Alps
END

step "without its libraries, the hub runs and names Debian's packages"
apt-get -qq --no-install-recommends install /srv/with/fieldagent-common_*.deb /srv/with/fieldagent-hub_*.deb >/dev/null
hub init Alps >/dev/null 2>&1
hub user add Ada >/dev/null
refused "apt install python3-cryptography" user tak Ada --out "$home/none.zip"
refused "apt install apprise" contact add Duty json://127.0.0.1:$((port + 2))/
refused "apt-get install python3-psycopg" database migrate --database "postgresql://127.0.0.1:$((port + 3))/hub"
begin_hub
grep -q "tak-listen: .*apt install python3-cryptography" "$home/log" || fail "$(cat "$home/log")"
grep -q "passkey is off: .*webauthn" "$home/log" || fail "$(cat "$home/log")"
end_hub

step "with them, it has phones, web push, other services and PostgreSQL"
for each in $libraries; do
    dpkg-query --show --showformat='${Recommends}, ${Suggests}\n' fieldagent-hub | grep -qwF "$each" ||
        fail "the package does not name $each"
done
apt-get -qq --no-install-recommends install $libraries >/dev/null
dpkg-query --show $libraries
hub user tak Ada --out "$home/ada.zip" >/dev/null
hub user tak | grep -q "Ada" || fail "the phone is not listed"
begin_hub
for _ in $(seq 100); do
    ! grep -q "phones can connect" "$home/log" || break
    sleep 0.1
done
grep -q "phones can connect" "$home/log" || fail "$(cat "$home/log")"
end_hub
python3 - $((port + 2)) >"$home/notice" <<'END' &
import http.server, sys
class Service(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Service).handle_request()
END
service=$!
hub contact add Duty json://127.0.0.1:$((port + 2))/ >/dev/null
hub contact test 1 || fail "the test was not sent"
wait $service
grep -q message "$home/notice" || fail "the service got $(cat "$home/notice")"
python3 - <<'END'
from cryptography.hazmat.primitives.asymmetric import ec
from fieldagent.extensions.desk.hub import web_push
key = ec.generate_private_key(ec.SECP256R1())
there = web_push.Subscription("https://push.example.org/1", web_push.get_public_text(key), "A" * 22)
assert not there.find_fault()
assert len(web_push.encrypt(b"SOS", there)) > 100
assert web_push.make_vapid_token(key, there.endpoint, "https://hub.example.org", 1.0).count(".") == 2
END
refused "onnection refused" database migrate --database "postgresql://127.0.0.1:$((port + 3))/hub"

clean
apt-get -qq purge --autoremove $libraries >/dev/null
step "done"
