"""The real OpenTAKServer, on Debian 13, because it needs a later Python than Debian 12 has.

It runs with PostgreSQL, RabbitMQ and an nginx that ends TLS for enrolment, all on loopback.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.debian_thirteen import DebianThirteen
from tests.extensions.tak.tak_server import Identity
from tests.processes import MODULE, PATIENCE, Running, free_port

HERE = DebianThirteen("opentakserver")
VERSION = "1.7.14"
NAME = "opentakserver"
"""Name in the server's certificate."""
USER, PASSWORD = "administrator", "password"
"""The account that OpenTAKServer makes at its first start."""
INSTALL = f"""
cd /opt
[ "$(cat ots/version 2>/dev/null)" = {VERSION} ] && exit
apt-get update -q
apt-get install -qy --no-install-recommends python3-venv python3-dev gcc g++ libc6-dev libpq-dev \
    nginx-light openssl postgresql postgresql-17-postgis-3 rabbitmq-server
python3 -m venv --clear ots
ots/bin/pip install -q opentakserver=={VERSION}
echo {VERSION} >ots/version
"""
RUN = r"""
export LC_ALL=C.UTF-8 ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
export OTS_DATA_FOLDER=/tmp/ots OTS_STREAMING_INTERFACE=127.0.0.1 OTS_MEDIAMTX_ENABLE=False
export SQLALCHEMY_DATABASE_URI=postgresql+psycopg://ots:ots@127.0.0.1:$POSTGRES/ots
as_postgres() {
    setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
}
sql() {
    as_postgres psql -q -h /tmp/pg -p $POSTGRES "$@"
}
programs=/usr/lib/postgresql/17/bin
install -d -o postgres /tmp/pg
cd /tmp
as_postgres $programs/initdb --auth trust -D /tmp/pg/data >/dev/null
as_postgres $programs/postgres -D /tmp/pg/data -k /tmp/pg \
    -p $POSTGRES -c listen_addresses=127.0.0.1 &
rabbitmq-server >/dev/null &
for _ in $(seq 200); do
    ! sql -c "CREATE ROLE ots SUPERUSER LOGIN PASSWORD 'ots'" 2>/dev/null || break
    sleep 0.3
done
sql -c "CREATE DATABASE ots OWNER ots"
sql ots -c "CREATE EXTENSION postgis"
rabbitmqctl await_startup
/opt/ots/bin/opentakserver &
files=/tmp/ots/ca/certs/opentakserver
for _ in $(seq 200); do
    [ ! -e $files/opentakserver.nopass.key ] || break
    sleep 0.5
done
/opt/ots/bin/eud_handler --ssl &
/opt/ots/bin/cot_parser &
cat >/tmp/nginx.conf <<END
daemon off;
pid /tmp/nginx.pid;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:$ENROLL ssl;
        ssl_certificate $files/opentakserver.pem;
        ssl_certificate_key $files/opentakserver.nopass.key;
        location / { proxy_pass http://127.0.0.1:$OTS_LISTENER_PORT; }
    }
}
END
until_it_listens() {
    for _ in $(seq 200); do
        ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null || return 0
        sleep 0.5
    done
    echo "nothing listens at port $1"
    exit 1
}
until_it_listens $OTS_LISTENER_PORT
until_it_listens $OTS_SSL_STREAMING_PORT
cat /tmp/ots/ca/ca.pem
echo "all of it listens"
nginx -c /tmp/nginx.conf
"""


def install() -> None:
    """Install OpenTAKServer, unless an earlier run has done so."""
    HERE.install(INSTALL)


class OpenTakServer(Running):
    """A new server. It gives certificates only by enrolment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.port, self._enroll = free_port(), free_port()
        self.url = f"tls://127.0.0.1:{self.port}"
        ports = {
            "ENROLL": str(self._enroll),
            "POSTGRES": str(free_port()),
            "OTS_LISTENER_PORT": str(free_port()),
            "OTS_SSL_STREAMING_PORT": str(self.port),
        }
        super().__init__(HERE.make_command(RUN), "all of it listens", **HERE.environment, **ports)
        text = "\n".join(self.output())
        authority = re.search(
            r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.S
        )
        assert authority, text
        self.authority = folder / "ca.pem"
        self.authority.write_text(authority[0])

    def enroll(
        self, name: str, password: str = PASSWORD, *more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run our command for enrolment. Its files are in the folder `name`."""
        target = self._folder / name
        target.mkdir()
        command = [
            *(*MODULE, "hub", "tak", "enroll", "127.0.0.1", "--port", str(self._enroll)),
            *("--user", USER, "--ca-file", str(self.authority), "--folder", str(target)),
            *("--server-name", NAME, *more),
        ]
        return subprocess.run(
            command, input=f"{password}\n", capture_output=True, text=True, timeout=PATIENCE
        )

    def identity(self, name: str) -> Identity:
        """Return a client certificate of this server's authority."""
        done = self.enroll(name)
        assert done.returncode == 0, done.stderr
        target = self._folder / name
        return Identity(target / "tak.pem", target / "tak-key.pem", target / "tak-ca.pem")
