"""Readers of public file formats: what is corrupt or cut short is refused with numbers."""
