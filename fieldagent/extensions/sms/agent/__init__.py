"""SMS as a second bearer of channel Cellular. The bearer is used if there is GSM, but no IP route
to the hub.
"""
