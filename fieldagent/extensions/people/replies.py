"""The kit's own texts to people with handhelds, in the languages of the catalogues beside this
module.
"""

from __future__ import annotations

from fieldagent.page.language import catalogue_of, filled

RAISED = (
    "Your SOS is on this kit's disk and goes out on every channel that it has. SOS CANCEL takes it"
    " back."
)
WITHHELD = (
    "Your SOS is on this kit's disk and rings here. It takes the channels that cost nothing: the"
    " satellite credits for radios that this kit does not know are spent for today."
)
AGAIN = "This is added to the SOS that is open here. `SOS CANCEL` takes yours back."
NO_SOS = "No SOS of yours is open on this kit."
CALLED_OFF = "Your SOS is called off. Everyone who may have received it is notified."
STAYS = "Your part is called off. The SOS stays open, because it also has others."
UNPROVED = "This does not bear the key of the radio that raised the SOS: it stays open."
GUEST = (
    "This kit does not know you, and sends only an SOS from you: write `SOS` and the problem."
    " Ask its operator to add your radio {handle}."
)
STRANGER = (
    "This kit does not know you, and accepts nothing from you. Ask its operator to add your"
    " radio {handle}."
)
IS_EMERGENCY = "Is this an emergency? Write SOS, in capital letters, and the problem."
RINGS_NOBODY = (
    "An SOS over this route raises no alarm, because anyone could send it. It was sent as a"
    " message."
)
JOINED = "This kit knows you now, {name}: your texts here go to the hub."
WRONG_CODE = "That is not the code of this kit."
SPENT = "Your {limit} satellite credits of today are spent: it was not taken. An SOS goes always."
FULL = "This kit's disk is full: it was not taken."


def say(language: str, text: str, **values: object) -> str:
    """Return the text in that language, with `values` in its placeholders such as {name}."""
    return filled(catalogue_of(__package__, language).get(text, text), values)
