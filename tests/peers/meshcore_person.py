"""A person with MeshCore's own Python client, which is independent of the project. It connects to a
companion radio on TCP, obeys commands, and prints a JSON line for each news.

Argument: the radio's port. Prints `ready KEY` first, with the radio's own public key. Commands on
the input:
    text KEY WORDS …    send a direct message, and report if the receiver's radio acknowledges it
    channel N WORDS …   send a text to channel N
    position LAT LON [ALT …]    set the position, and send it in an advert
    advert              send the name
    name WORDS …        change the name
    nodes               print the radio's known nodes
    battery             print the state of the radio's battery
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from meshcore import EventType, MeshCore

ACK_MAX = 30.0


def tell(**what: Any) -> None:
    print(json.dumps(what, ensure_ascii=False), flush=True)


class Person:
    def __init__(self, radio: MeshCore) -> None:
        self.radio = radio
        self.sent_at = int(time.time())

    async def heard(self, event: Any) -> None:
        said = event.payload
        tell(
            heard="channel" if "channel_idx" in said else "direct",
            **{"from": said.get("pubkey_prefix", "")},
            text=said["text"],
            at=said["sender_timestamp"],
            snr=said.get("SNR"),
        )

    async def text(self, to: str, words: str) -> None:
        # Each of their messages has its own time, as with a typing person.
        self.sent_at = max(self.sent_at + 1, int(time.time()))
        sent = await self.radio.commands.send_msg(to, words, timestamp=self.sent_at)
        if sent.type == EventType.ERROR:
            tell(sent=None, error=sent.payload)
            return
        tell(sent=self.sent_at)
        code = sent.payload["expected_ack"].hex()
        ack = await self.radio.wait_for_event(
            EventType.ACK, attribute_filters={"code": code}, timeout=ACK_MAX
        )
        tell(ack=self.sent_at, there=ack is not None)

    async def obey(self, line: str) -> None:
        word, *rest = line.split()
        commands = self.radio.commands
        if word == "text":
            await self.text(rest[0], " ".join(rest[1:]))
        elif word == "channel":
            self.sent_at = max(self.sent_at + 1, int(time.time()))
            await commands.send_chan_msg(int(rest[0]), " ".join(rest[1:]), self.sent_at)
        elif word == "position":
            await commands.set_coords(float(rest[0]), float(rest[1]))
            await commands.send_advert(flood=True)
        elif word == "advert":
            await commands.send_advert(flood=True)
        elif word == "name":
            await commands.set_name(" ".join(rest))
            await commands.send_advert(flood=True)
        elif word == "nodes":
            contacts = await commands.get_contacts()
            nodes = {key: each["adv_name"] for key, each in contacts.payload.items()}
            places = {
                key: [each["adv_lat"], each["adv_lon"]] for key, each in contacts.payload.items()
            }
            tell(nodes=nodes, places=places)
        elif word == "battery":
            tell(battery=(await commands.get_bat()).payload["level"])


async def live(port: int) -> None:
    radio = await MeshCore.create_tcp("127.0.0.1", port)
    if radio is None:
        sys.exit("the radio does not answer")
    person = Person(radio)
    radio.subscribe(EventType.CONTACT_MSG_RECV, person.heard)
    radio.subscribe(EventType.CHANNEL_MSG_RECV, person.heard)
    await radio.commands.send_device_query()
    await radio.commands.set_time(int(time.time()))
    await radio.ensure_contacts()
    print(f"ready {radio.self_info['public_key']}", flush=True)
    await radio.start_auto_message_fetching()
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    loop.run_in_executor(None, read)
    while line := await lines.get():
        await person.obey(line)
    await radio.disconnect()


if __name__ == "__main__":
    asyncio.run(live(int(sys.argv[1])))
