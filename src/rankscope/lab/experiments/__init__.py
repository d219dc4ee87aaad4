"""Experiments: tables whose rows are computed one by one, with seeds, intervals and figures."""
