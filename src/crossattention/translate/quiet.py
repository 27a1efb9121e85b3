"""Run lightning without its remarks, and with Ctrl-C as Python raises it.

Lightning reports hardware through a logger and warnings, and turns an interrupt into an exit; the
run reports for itself, and its caller decides what an interrupt means.
"""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence lightning inside; restore logging, warnings and the interrupt handler after."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        logger.setLevel(level)
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGINT, handler)
