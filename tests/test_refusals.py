"""Text from files and arguments does nothing to a terminal."""

import pytest

from loopless.refusals import printable
from loopless.runs.failures import BadConfig, BadRun


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ünïcode → ± “quotes”", "plain, with ünïcode → ± “quotes”"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("\x9b31m\r\x7f\0", "\\x9b31m\\r\\x7f\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_cannot_be_printed_is_escaped(text, shown):
    assert printable(text) == shown


def test_every_failure_is_printable():
    assert "\x1b" not in str(BadRun("run: \x1b[31m"))
    assert "\x1b" not in str(BadConfig(["\x1b[31m"]))
