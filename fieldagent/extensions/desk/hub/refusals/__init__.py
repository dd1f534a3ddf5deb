"""Refusals of the hub in each language. A catalogue is a JSON file beside this module, which
`fieldagent.page.refusals` reads.
"""
