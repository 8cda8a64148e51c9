"""Operators: each has a plain-torch reference and may have a native fast path.

The native library is optional. `backend` tells which path an operator takes; `native_status`
says whether the library is live and, if not, why.
"""

from lawful.kernels._native import Backend as Backend
from lawful.kernels._native import NativeStatus as NativeStatus
from lawful.kernels._native import force_backend as force_backend
from lawful.kernels._native import native_status as native_status
from lawful.kernels._native import use_native as use_native

__all__ = ["Backend", "NativeStatus", "force_backend", "native_status", "use_native"]
