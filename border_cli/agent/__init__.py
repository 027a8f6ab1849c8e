"""The algorithms. Apart from `nn`, this is the only package that imports torch."""
