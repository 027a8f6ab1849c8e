"""Output sizes of the network of data-efficient Rainbow."""

from __future__ import annotations

from border_cli.nn.architecture import DER_WINDOWS, size_after


def test_two_windows_of_five_without_overlap_give_576_features_for_a_screen() -> None:
    assert size_after(DER_WINDOWS, (4, 84, 84)) == 64 * 3 * 3  # 84 -> 16 -> 3
    assert size_after(DER_WINDOWS, (4, 25, 25)) == 64  # 25 -> 5 -> 1, the smallest input
