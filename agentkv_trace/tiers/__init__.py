"""What each backend's cache tiers would hold and hit."""
