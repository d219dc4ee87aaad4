"""Texts, translations, losses and scores of the experiments."""
