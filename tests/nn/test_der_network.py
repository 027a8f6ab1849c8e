"""The network of data-efficient Rainbow."""

from __future__ import annotations

from border_cli.nn.architecture import DER_WINDOWS, size_after


def test_two_windows_of_five_that_do_not_overlap_make_576_numbers_of_a_screen() -> None:
    assert size_after(DER_WINDOWS, (4, 84, 84)) == 64 * 3 * 3  # 84 -> 16 -> 3
    assert size_after(DER_WINDOWS, (4, 25, 25)) == 64  # 25 -> 5 -> 1: the least
