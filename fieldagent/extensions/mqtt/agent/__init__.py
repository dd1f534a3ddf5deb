"""MQTT: other programs near the kit can receive from the kit, and send through it, over a
broker."""
