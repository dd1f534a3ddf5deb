"""A team's week in virtual time: real agents and a real hub, over simulated modems, radios and
networks, and a report of how it went."""
