"""MQTT as both programs speak it: one session, commands that come by it, and discovery."""
