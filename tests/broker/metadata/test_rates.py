"""Rates over windows and buckets of tokens, on a clock that the test sets."""

from __future__ import annotations

import pytest

from broker.metadata.rates import THROTTLE_MAX_MS, Rate, TokenBucket, Windows

KAFKAS = Windows(11, 1000)
QUOTA = 1000.0


def test_a_first_burst_may_use_what_all_full_windows_hold() -> None:
    rate = Rate(KAFKAS)

    rate.record(10_000, 50_000)
    assert rate.throttle_ms(QUOTA, 50_000) == 0

    rate.record(1, 50_000)
    assert rate.throttle_ms(QUOTA, 50_000) == 1


@pytest.mark.parametrize(("amount", "wait_ms"), [(11_000, 1_000), (20_000, 10_000)])
def test_the_wait_is_what_the_excess_takes_at_the_quota(amount: int, wait_ms: int) -> None:
    rate = Rate(KAFKAS)
    rate.record(amount, 0)

    assert rate.throttle_ms(QUOTA, 0) == wait_ms


def test_windows_that_have_not_begun_count_whole() -> None:
    rate = Rate(KAFKAS)
    rate.record(13_000, 0)

    # As in Kafka: the time since the first record, and what is missing of ten windows.
    assert rate.throttle_ms(QUOTA, 0) == 3_000
    assert rate.throttle_ms(QUOTA, 2_500) == 2_500
    assert rate.throttle_ms(QUOTA, 10_900) == 2_100
    assert rate.throttle_ms(QUOTA, 11_000) == 0


def test_who_waits_each_time_comes_to_the_quota_in_the_long_run() -> None:
    rate, now_ms, sent = Rate(KAFKAS), 0.0, 0
    while now_ms < 600_000:
        rate.record(700, now_ms)
        sent += 700
        now_ms += 20 + rate.throttle_ms(QUOTA, now_ms)

    assert sent / 600 == pytest.approx(QUOTA, rel=0.15)


def test_what_is_older_than_all_windows_counts_no_more() -> None:
    rate = Rate(KAFKAS)
    rate.record(1_000_000, 0)

    assert rate.amount(10_999) == 1_000_000
    assert rate.amount(11_000) == 0


def test_a_rate_keeps_no_more_samples_than_it_needs() -> None:
    rate = Rate(KAFKAS)
    for now_ms in range(0, 1_000_000, 1000):
        rate.record(1, now_ms)

    assert rate.amount(999_000) <= KAFKAS.number + 1


def test_what_is_taken_back_was_never_counted() -> None:
    rate = Rate(KAFKAS)
    rate.record(5_000, 0)
    rate.record(9_000, 10)
    rate.record(-9_000, 10)

    assert rate.amount(10) == 5_000


def test_no_wait_is_longer_than_an_answer_can_tell() -> None:
    rate, bucket = Rate(KAFKAS), TokenBucket(KAFKAS)
    rate.record(1e15, 0)
    bucket.take(1e15, 0.001, 0)

    assert rate.throttle_ms(0.001, 0) == bucket.throttle_ms(0.001, 0) == THROTTLE_MAX_MS


def test_one_window_is_enough_for_a_rate() -> None:
    rate = Rate(Windows(1, 1000))
    rate.record(2_000, 5)

    assert rate.throttle_ms(QUOTA, 5) == 1_000


def test_a_bucket_begins_full_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(KAFKAS)

    bucket.take(22, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 0
    bucket.take(10, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 5_000
    assert bucket.throttle_ms(2.0, 3_000) == 2_000
    assert bucket.throttle_ms(2.0, 5_000) == 0


def test_a_bucket_never_holds_more_than_all_windows_bring() -> None:
    bucket = TokenBucket(KAFKAS)
    bucket.take(1, 1.0, 0)

    bucket.take(12, 1.0, 3_600_000)

    assert bucket.throttle_ms(1.0, 3_600_000) == 1_000
