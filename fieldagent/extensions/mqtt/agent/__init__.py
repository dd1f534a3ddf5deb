"""MQTT: what other programs near the kit take from it, and send by it, through a broker."""
