"""A campaign against bad luck and bad will: damaged inputs, and processes killed at any moment.

`python -m fuzz inputs` throws damaged files and odd options at the commands; `python -m fuzz kills`
kills long commands and lets them go on. Both are bounded in time, and follow from a seed.
"""
