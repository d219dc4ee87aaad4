"""Explicit networks that prove theorems on expressivity, and blocks of networks by hand."""
