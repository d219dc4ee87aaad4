"""An audit as one page that needs no network."""
