"""Settings that arrive as a remote command reach root's unit with the operator's signature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import trio

from fieldagent.agent import outcomes
from fieldagent.extensions.fleet import settings_trial
from fieldagent.package.package import CommandOutcome
from fieldagent.wire.command import parse_command
from fieldagent.wire.kit_note import SettingsOffer
from fieldagent.wire.kit_note import decode as decode_note
from fieldagent.wire.proof import prove_command
from fieldagent.wire.settings_change import SettingsChange, get_kit_id, make_command_arguments
from tests.agent.test_remote_commands import KEY, NOW, TOKEN, at_work, signer, told
from tests.processes import PATIENCE
from tests.signer import Signer

__all__ = ["signer"]


async def test_remote_settings_reach_roots_unit_with_the_operators_signature(
    tmp_path: Path, signer: Signer
) -> None:
    """The unit's own check accepts them. Its result is the answer, also from an agent that has
    restarted meanwhile.
    """
    change = SettingsChange(
        "kit", get_kit_id(TOKEN), NOW, (("sos-repeat", "900"), ("gpsd", "none"))
    )
    signed = tmp_path / "text"
    signed.write_text(change.format_text())
    arguments = make_command_arguments(change, signer.sign(signed))
    command = prove_command(NOW, replace(parse_command(["set", "a=b"]), arguments=arguments), KEY)
    state = tmp_path / "state"
    state.mkdir()
    async with at_work(state) as kit:
        await kit.hears_of(NOW, command, "Satellite")
        with trio.fail_after(PATIENCE):
            while not (state / outcomes.OFFER).exists():
                await trio.sleep(0.01)
        offer = decode_note((state / outcomes.OFFER).read_bytes())
        assert isinstance(offer, SettingsOffer) and offer.by_satellite
        trusted = tmp_path / "update.pub"
        trusted.write_text(signer.public)
        assert settings_trial._verify(offer.text, offer.signature, trusted) == change
        # The first step of its unit, and the later restart of the agent.
        (state / outcomes.OFFER).unlink()
        result = outcomes.find_root_folder(state) / outcomes.SETTINGS
        result.parent.mkdir()
        outcomes.write_outcome(result, NOW, "trial")
    async with at_work(state) as kit:
        assert not (state / outcomes.OFFER).exists()
        outcomes.write_outcome(result, NOW, "back", "no link within 15 minutes")
        (answer,) = await kit.answered(1)
        assert answer.outcome is CommandOutcome.FAILED
        assert told(answer) == "taken back: no link within 15 minutes"
