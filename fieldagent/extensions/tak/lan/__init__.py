"""TAK on the kit's own network: phones there see what the kit knows, and write by it."""
