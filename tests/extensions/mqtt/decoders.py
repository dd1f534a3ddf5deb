"""The decoder of MQTT, for the fuzzer."""

from __future__ import annotations

from fieldagent.extensions.mqtt import packets as mqtt
from fieldagent.wire.errors import RemoteProtocolError
from tests.fuzz.decoders import in_pieces


def read_mqtt(data: bytes) -> None:
    """Read a broker's packets. A message with a topic that we may use can be encoded again."""
    whole, cut = mqtt.PacketReader(), mqtt.PacketReader()
    packets: list[mqtt.FromBroker] = []
    again: list[mqtt.FromBroker] = []
    refused = []
    for reader, pieces, read in ((whole, [data], packets), (cut, in_pieces(data), again)):
        try:
            for piece in pieces:
                for each in reader.receive_data(piece):
                    read.append(each)
        except RemoteProtocolError as error:
            refused.append(str(error))
    assert packets == again
    assert len(refused) != 1 and len({*refused}) < 2
    for each in packets:
        if isinstance(each, mqtt.Published) and not each.skipped:
            same = mqtt.encode_publish(each.topic, each.payload, each.number, retain=each.retained)
            (read_again,) = mqtt.PacketReader().receive_data(same)
            assert read_again == each._replace(again=False)


DECODERS = {"mqtt": read_mqtt}
