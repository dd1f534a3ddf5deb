"""TAK on the kit's own network: phones there see the kit's data, and send messages through
the kit."""
