"""Automatic layout of one diagram: `place` decides where things stand, `render` draws them."""

from rankscope.diagrams.layout.choosing import lay_out, place
from rankscope.diagrams.layout.placement import Hints, Placement, Side, View
from rankscope.diagrams.layout.render import render

__all__ = ["Hints", "Placement", "Side", "View", "lay_out", "place", "render"]
