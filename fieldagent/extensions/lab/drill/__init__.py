"""A team's week in virtual time: real agents and a real hub, over simulated modems, radios and
networks, with a report of the results.
"""
