"""Repair of a damaged journal. `mending` writes a new journal beside it from the rows that
`salvage` finds intact. It is loaded only when needed.
"""
