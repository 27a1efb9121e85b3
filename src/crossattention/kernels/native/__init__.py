"""The compiled kernel: its Python side here, its C++ in `source`."""

from crossattention.kernels.native.kernel import Native

__all__ = ["Native"]
