"""SMS as a second bearer of channel Cellular: where there is GSM, and no way to the hub by IP."""
