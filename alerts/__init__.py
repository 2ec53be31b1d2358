"""Rules about wallets and about the service, and the deliveries of their events."""
