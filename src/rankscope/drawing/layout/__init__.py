"""Automatic layout of one diagram: `place` decides where things stand, `render` draws them."""
