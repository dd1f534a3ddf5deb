"""A team's week in virtual time. Real agents and a real hub use simulated modems, radios and
networks. A report shows the results.
"""
