"""SMS as a second bearer of the channel Cellular. The kit uses it if there is a GSM network but no
IP route to the hub.
"""
