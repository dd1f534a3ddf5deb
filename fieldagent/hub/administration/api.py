"""The administration API: what an administrator of a workspace sees and does there, and nowhere
else."""

from __future__ import annotations

from fieldagent.http.client import Opener
from fieldagent.http.routes import Route
from fieldagent.hub.administration.acts import Acts
from fieldagent.hub.administration.devices import DevicesApi
from fieldagent.hub.administration.keys import KeysApi
from fieldagent.hub.administration.records import RecordsApi
from fieldagent.hub.administration.users import UsersApi
from fieldagent.hub.administration.webhooks import WebhooksApi
from fieldagent.hub.mobile_originated import MobileOriginated


def routes(acts: Acts, mobile_originated: MobileOriginated, open_stream: Opener) -> list[Route]:
    return [
        *DevicesApi(acts, mobile_originated).routes(),
        *UsersApi(acts, mobile_originated).routes(),
        *KeysApi(acts).routes(),
        *WebhooksApi(acts, open_stream).routes(),
        *RecordsApi(acts, mobile_originated).routes(),
    ]
