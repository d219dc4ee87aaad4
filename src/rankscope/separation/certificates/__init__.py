"""What proves a measured rank to someone who trusts nobody."""
