"""What ATen's kernels do where their meta functions say otherwise, or nothing: ``dtypes`` they refuse, ``layouts`` of
their results (by ``strides``), arguments they write to (``writes``), and writes through masks without a size that data
decides.
"""
