"""MQTT: lets other programs near the kit receive from it, and send through it, over a broker."""
