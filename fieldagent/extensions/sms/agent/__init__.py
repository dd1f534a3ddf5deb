"""SMS as a second bearer of channel Cellular. It is used if there is GSM, but no IP route to the
hub."""
