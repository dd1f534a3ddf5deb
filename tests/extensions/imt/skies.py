"""The simulated satellite network of the modem 9704 for the contract test of satellite modems."""

from __future__ import annotations

from tests.processes import imt_sky

SKIES = {"imt": imt_sky}
