"""Transformers of any form of attention: language, translation, pixels."""
