"""MQTT at the kit. Through a broker, other programs near the kit can receive items from the kit and
send items through it.
"""
