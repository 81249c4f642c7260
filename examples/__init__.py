"""Examples: an app that books GitHub's webhook deliveries, and the demo that makes its life hard."""
