"""The kit's own texts to people with handhelds, in the languages of the catalogues in this
folder.
"""

from __future__ import annotations

from fieldagent.page.language import fill_in, read_catalogue

RAISED_REPLY = (
    "This kit has stored your SOS and sends it on all its channels. SOS CANCEL cancels it."
)
WITHHELD_REPLY = (
    "Your SOS is stored on this kit and rings here. It takes the channels that cost nothing: the"
    " satellite credits for radios that this kit does not know are spent for today."
)
ADDED_REPLY = "This is added to the SOS that is open here. `SOS CANCEL` cancels yours."
NO_SOS_REPLY = "No SOS of yours is open on this kit."
CALLED_OFF_REPLY = "Your SOS is called off. Everyone who may have received it is notified."
STAYS_OPEN_REPLY = "Your part is called off. The SOS stays open, because it also has others."
UNAUTHENTICATED_REPLY = (
    "The SOS stays open, because this radio's key is not that of the radio that raised it."
)
GUEST_REPLY = (
    "This kit does not know you, and sends only an SOS from you: write `SOS` and the problem."
    " Ask its operator to add your radio {handle}."
)
STRANGER_REPLY = (
    "This kit does not know you, and accepts nothing from you. Ask its operator to add your"
    " radio {handle}."
)
EMERGENCY_REPLY = "Is this an emergency? Write SOS, in capital letters, and the problem."
NO_ALARM_REPLY = (
    "An SOS over this route raises no alarm, because anyone could send it. It was sent as a"
    " message."
)
JOINED_REPLY = "This kit knows you now, {name}: your texts here go to the hub."
WRONG_CODE_REPLY = "That is not the code of this kit."
LIMIT_REPLY = (
    "Your {limit} satellite credits for today are spent: your text was not accepted. An SOS"
    " is always sent."
)
FULL_DISK_REPLY = "This kit's disk is full: your text was not accepted."


def translate(language: str, text: str, **values: object) -> str:
    """Return the text in a language. `values` replace placeholders such as {name}."""
    return fill_in(read_catalogue(__package__, language).get(text, text), values)
