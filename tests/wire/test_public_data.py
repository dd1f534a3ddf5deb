"""Our decoders with the test data of other programs, compared with those programs."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from smspdudecoder.easy import read_incoming_sms  # type: ignore[import-untyped]

from fieldagent.wire import gpsd, nmea, sms_pdu
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.sms_pdu import Deliver
from tests.public_data import fetch_debian_source, fetch_sdist, read_files

pytestmark = pytest.mark.full

PDU = re.compile(r"""['"]((?:[0-9A-Fa-f]{2}){18,})['"]""")


def test_gpsd_test_reports_are_read() -> None:
    """gpsd's source has a log of each receiver and the reports that it makes of the log."""
    files = read_files(fetch_debian_source("gpsd", "bookworm"), r"/test/daemon/.*\.log\.chk$")
    counts: Counter[str] = Counter()
    for content in files.values():
        for line in filter(lambda line: line.startswith(b"{"), content.splitlines()):
            report, ours = json.loads(line), gpsd.parse_line(line)
            if report["class"] != "TPV":
                assert ours is None, line
                continue
            counts["TPV"] += 1
            if report.get("mode") not in (2, 3) or "lat" not in report:
                assert isinstance(ours, gpsd.NoFix), line
                continue
            assert isinstance(ours, gpsd.Fix), line
            assert (ours.latitude, ours.longitude) == (report["lat"], report["lon"])
            assert (ours.speed, ours.course) == (report.get("speed"), report.get("track"))
            assert bool(ours.time) is ("time" in report), line
            counts["position"] += 1
    assert len(files) > 140
    assert (counts["TPV"] > 7_000, counts["position"] > 6_000) == (True, True), counts


def test_nmea_sentences_of_gpsd_logs_are_found_among_other_bytes() -> None:
    """The logs contain NMEA 0183, binary protocols, and noise. A sentence of a satellite system has
    a talker of two letters and a type of three.
    """
    files = read_files(fetch_debian_source("gpsd", "bookworm"), r"/test/daemon/.*\.log$")
    count = 0
    for name, content in files.items():
        for line in content.splitlines(keepends=True):
            match = re.fullmatch(rb"\$(G[A-Z]{4},[ -#%-)+-~]*)\*([0-9A-Fa-f]{2})\r?\n", line)
            if match is None:
                continue
            checksum = 0
            for byte in match[1]:
                checksum ^= byte
            wanted = [match[1].decode()] if checksum == int(match[2], 16) else []
            assert nmea.parse_sentences(line) == wanted, (name, line)
            count += len(wanted)
    assert count > 20_000


def test_sms_pdus_of_other_programs_are_read_as_by_them() -> None:
    """Our decoder refuses the damaged PDU of smspdudecoder's own tests."""
    pdus: set[str] = set()
    for name, version in (("python-gsmmodem-new", "0.13.0"), ("smspdudecoder", "2.2.0")):
        for content in read_files(fetch_sdist(name, version), r"\.(py|rst|md)$").values():
            text = re.sub(r"""['"]\s*\n\s*['"]""", "", content.decode())
            pdus |= set(PDU.findall(text))
    counts: Counter[str] = Counter()
    for pdu in sorted(pdus):
        try:
            ours = sms_pdu.decode(bytes.fromhex(pdu))
        except RemoteProtocolError:
            counts["refused"] += 1
            continue
        counts[type(ours).__name__] += 1
        if isinstance(ours, Deliver):
            theirs = read_incoming_sms(pdu)
            assert ours.content.text == theirs["content"], pdu
            assert ours.at == theirs["date"].timestamp(), pdu
            # smspdudecoder takes the padding of a name for a letter.
            assert ours.number.lstrip("+") == theirs["sender"].lstrip("+").rstrip("@"), pdu
    assert counts == {"Submit": 19, "Deliver": 8, "StatusReport": 2, "refused": 6}
