"""The algorithms of the comparison. An algorithm is an advantage estimator, a token loss and an aggregation.

`settings` is torch-free; everything else is pure functions on tensors.
"""
