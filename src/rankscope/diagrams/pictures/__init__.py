"""From a diagram to a picture, and from a picture to files."""
