"""TAK on the kit's own network. Phones on this network see the kit's data and send messages through
the kit.
"""
