"""Contractions told step by step: storyboards, animations, pages to click through."""
