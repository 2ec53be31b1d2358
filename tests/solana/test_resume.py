"""A back-fill that is killed in the middle is finished by the next run: every row once."""

from __future__ import annotations

from pathlib import Path

from bench.solana_history import Wallet, Watching, expected, serving


def test_a_killed_back_fill_is_finished_by_the_next_run_with_every_row_once(tmp_path: Path) -> None:
    wallet = Wallet(700)
    with serving(wallet) as url:
        broken = Watching(wallet, url, tmp_path)
        assert broken.killed(650)
        broken.whole()
        assert broken.rows() == expected(wallet)
        assert broken.whole() < 20
