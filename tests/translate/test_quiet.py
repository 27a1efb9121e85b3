import logging
import signal

from crossattention.translate.quiet import quiet_lightning


def test_logging_and_the_interrupt_handler_come_back() -> None:
    logger, handler = logging.getLogger("lightning.pytorch"), signal.getsignal(signal.SIGINT)
    level = logger.level
    with quiet_lightning():
        assert not logger.isEnabledFor(logging.ERROR)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert logger.level == level and signal.getsignal(signal.SIGINT) is handler
