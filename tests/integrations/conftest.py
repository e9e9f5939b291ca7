"""Collection of the tests inside other trainers."""

# A program for torchrun without doctests: collecting it would import trl, which verl's environment lacks.
collect_ignore = ["trl_processes.py"]
