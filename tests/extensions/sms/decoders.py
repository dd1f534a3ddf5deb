"""The decoder of a GSM modem's answers, for the fuzzer."""

from __future__ import annotations

from fieldagent.extensions.sms import sms_modem
from fieldagent.wire import sms_pdu
from tests.fuzz.decoders import in_pieces, try_each


def read_gsm(data: bytes) -> None:
    """Decode a GSM modem's answers while a text is sent, its list is read and its storage is
    queried.
    """
    text = sms_pdu.Submit("+41790000000", sms_pdu.split("hello", 1)[0])
    for asked in ("AT+CMGL=4", "AT+CMGS", "AT+CPMS?"):
        talk = sms_modem.GsmConversation()
        if asked == "AT+CMGS":
            talk.submit(text)
        else:
            talk.make_command(asked)
        for piece in in_pieces(data):
            talk.receive_data(piece)
            while (event := talk.next_event()) is not sms_modem.NEED_MORE:
                if isinstance(event, sms_modem.Prompt):
                    talk.encode_pdu(text)
                elif isinstance(event, sms_modem.GsmReply):
                    sms_modem.find_result(event)
                    try_each((sms_modem.parse_listed, sms_modem.parse_used_places), event)


DECODERS = {"gsm": read_gsm}
