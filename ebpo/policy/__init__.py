"""Base policies: loading them from a folder or the hub, and building the small one of the demo."""
