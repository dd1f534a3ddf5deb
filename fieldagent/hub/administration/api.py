"""The administration API. Administrators of a workspace use it, and it is limited to their
workspace.
"""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.http.client import Opener
from fieldagent.http.routes import Route
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.commands import CommandsApi
from fieldagent.hub.administration.devices import DevicesApi
from fieldagent.hub.administration.groups import GroupsApi
from fieldagent.hub.administration.keys import KeysApi
from fieldagent.hub.administration.radio_key import RadioKeyApi
from fieldagent.hub.administration.records import RecordsApi, UsageApi
from fieldagent.hub.administration.users import UsersApi
from fieldagent.hub.administration.webhooks import WebhooksApi
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.operator.registry import get_operator_places
from fieldagent.hub.records.usage import Prices


def make_routes(
    acts: AdministrationContext,
    mobile_originated: MobileOriginatedReceiver,
    open_stream: Opener,
    operators: Collection[str] = tuple(get_operator_places()),
    prices: Prices = lambda operator: None,
    grace: float = 0.0,
) -> list[Route]:
    """Return all routes of the API. `open_stream` opens connections for tests of webhooks.
    `operators` are the satellite operators that a device may have. `prices` returns an operator's
    price per credit. The hub pays for a satellite message if the link has not delivered a command
    after `grace` seconds.
    """
    return [
        *DevicesApi(acts, mobile_originated, operators).make_routes(),
        *UsageApi(acts, prices).make_routes(),
        *CommandsApi(acts, grace).make_routes(),
        *RadioKeyApi(acts).make_routes(),
        *UsersApi(acts, mobile_originated).make_routes(),
        *GroupsApi(acts).make_routes(),
        *KeysApi(acts).make_routes(),
        *WebhooksApi(acts, open_stream).make_routes(),
        *RecordsApi(acts, mobile_originated).make_routes(),
    ]
