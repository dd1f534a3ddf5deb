"""A card of build/image provides Wi-Fi with a hub's settings on it: on an emulated board with two
adapters that hear each other (mac80211_hwsim), one of which belongs to a phone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shipping.board import BOOT, Board

pytestmark = [pytest.mark.full, pytest.mark.machine]

SETTINGS = "page-listen=192.168.4.0/24\npage-portal-port=9093\n"
KIT = """\
hostname=kit-ada
time-zone=Europe/Zurich
address=10.1.2.3/24
country=CH
access-point=camp
access-point-password=four words of ours
"""
PHONE = "ip netns exec phone"
JOIN = """\
country=CH
network={
    ssid="camp"
    psk="four words of ours"
}
"""
ASK = r"""
import os, socket, struct
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
line.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"wlan1")
line.bind(("0.0.0.0", 68))
line.settimeout(60)
own = bytes.fromhex(open("/sys/class/net/wlan1/address").read().strip().replace(":", ""))
# RFC 2131: DHCPDISCOVER, to be answered by broadcast.
head = struct.pack(">BBBBIHH16x16s64x128x", 1, 1, 6, 0, 7, 0, 0x8000, own)
line.sendto(head + bytes([99, 130, 83, 99, 53, 1, 1, 255]), ("255.255.255.255", 67))
print(socket.inet_ntoa(line.recv(2048)[16:20]))
"""


@pytest.fixture(scope="module")
def board(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    made = Board(tmp_path_factory.mktemp("board"), image, None)
    (made.share / "join.conf").write_text(JOIN)
    (made.share / "ask.py").write_text(ASK)
    try:
        made.write("::/fieldagent.properties", SETTINGS.encode())
        made.write("::/kit.properties", KIT.encode())
        made.boot()
        yield made
    finally:
        made.close()


def test_board_applies_host_name_time_zone_and_address(board: Board) -> None:
    # The shell on the console starts before the card is read.
    board.until("grep -qx kit-ada /proc/sys/kernel/hostname", BOOT)
    board.until('test "$(date -d @0 +%H)" = 01', BOOT)
    board.until("ip address show | grep -q 10.1.2.3/24", BOOT)
    board.run("sync")
    assert not board.shows(b"four words of ours")


def test_phone_joins_the_kits_access_point(board: Board) -> None:
    board.run("modprobe mac80211_hwsim radios=2 && ip netns add phone")
    board.until_active("hostapd", "dnsmasq", "nftables", seconds=BOOT)
    board.run("iw phy phy1 set netns name phone")
    start = "wpa_supplicant -B -i wlan1 -c /mnt/join.conf"
    board.run(f"{PHONE} {start} && {PHONE} ip link set lo up")
    board.until(f"{PHONE} iw wlan1 link | grep -q 'SSID: camp'", BOOT)
    board.until(f"{PHONE} python3 /mnt/ask.py | grep '^192.168.4.'", BOOT)
    assert "camp" in board.run("fieldagent page --wifi")


def test_phone_in_the_kits_network_is_redirected_to_the_page(board: Board) -> None:
    settings = "--config /etc/fieldagent/agent.properties"
    board.run(f"echo 'a pass phrase of the camp' | fieldagent page --set {settings}")
    board.run("systemctl restart fieldagent")
    board.run(f"{PHONE} ip address add 192.168.4.50/24 dev wlan1")
    board.run(
        "mkdir -p /etc/netns/phone && echo nameserver 192.168.4.1 >/etc/netns/phone/resolv.conf"
    )
    board.until(f"{PHONE} getent ahostsv4 anything.example.org | grep -q ^192.168.4.1", BOOT)
    asked = "http://connectivitycheck.gstatic.com/generate_204"
    # As a phone's sign-in window does.
    page = board.until(f"{PHONE} curl --silent --fail --location {asked}", BOOT)
    assert "https://" in page
    # The agent's own API is not available.
    assert board.ask(f"{PHONE} curl --silent --max-time 20 http://192.168.4.1:9091/")[0] != 0


def test_result_file_lists_the_working_settings(board: Board) -> None:
    board.run("systemctl restart kit-card-check")
    board.until("systemctl show --value -p ActiveState kit-card-check | grep -q inactive", BOOT)
    board.run("sync")
    report = board.read("::/kit-result.txt")
    assert report.startswith("This is kit-ada.\n")
    assert {"address: works", "access-point: works", "agent: works"} <= set(report.splitlines())
