"""Each anomaly where it is, and not where noise or load explains it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.readers.conftest import codes, counters, sgl, vllm, vllm_before_v1, vllm_load

from breakeven.readers.files import Told
from breakeven.readers.reading import Reading, ReadResult

ReadOne = Callable[..., Reading]
Read = Callable[..., ReadResult]


def noisy(length: float, num: int, *, spread: float = 0.15, at_s: int = 0, seed: int = 3, **fields: object) -> str:
    rng = random.Random(seed + at_s)
    text = ""
    for i in range(num):
        shown = round(length + rng.gauss(0, spread), 2)
        text += sgl(shown, (shown - 1) / 3, at_s=at_s + i, **fields)  # type: ignore[arg-type]
    return text


@pytest.mark.parametrize("rate", [0.25, 0.0])
def test_floor_whatever_the_rate_says(read_one: ReadOne, rate: float) -> None:
    reading = read_one("".join(sgl(1.0, rate, at_s=i) for i in range(10)))
    (finding,) = [f for f in reading.findings if f.severity == "error"]
    assert finding.code == "accept-length-at-floor"
    assert "wiring fault" in finding.remedy


def test_floor_in_counters(read_one: ReadOne) -> None:
    assert "accept-length-at-floor" in codes(read_one(counters(312, 936, 0, (0, 0, 0))))


def test_a_weak_head_is_not_at_the_floor(read_one: ReadOne) -> None:
    assert "accept-length-at-floor" not in codes(read_one(noisy(1.12, 30, spread=0.03)))


def test_ceiling(read_one: ReadOne) -> None:
    assert "accept-length-at-ceiling" in codes(read_one("".join(sgl(4.0, 1.0, at_s=i) for i in range(10))))
    assert "accept-length-at-ceiling" in codes(read_one(vllm([1.0, 1.0, 1.0], 500)))
    assert "accept-length-at-ceiling" not in codes(read_one(noisy(3.6, 30, spread=0.1)))


def test_drift_over_time(read_one: ReadOne) -> None:
    text = "".join(noisy(3.0 - 0.01 * i, 1, at_s=i, spread=0.08) for i in range(90))
    assert "accept-length-drifts" in codes(read_one(text))


@pytest.mark.parametrize("seed", range(6))
def test_a_noisy_steady_log_has_no_finding(read_one: ReadOne, seed: int) -> None:
    assert codes(read_one(noisy(2.7, 120, seed=seed, spread=0.2))) == set()


def test_slow_waves_of_traffic_are_no_drift_nor_collapse(read_one: ReadOne) -> None:
    text = "".join(noisy(2.7 + (0.15 if i // 15 % 2 else -0.15), 1, at_s=i, spread=0.1) for i in range(180))
    assert not {f.code for f in read_one(text).findings if f.severity != "info"}


def test_fall_with_context_and_not_with_time_or_batch(read_one: ReadOne) -> None:
    rng = random.Random(0)
    text = ""
    for i in range(200):
        context = rng.choice([500, 1500, 3000, 6000])
        length = 2.74 if context < 2048 else 1.6
        text += noisy(length, 1, at_s=i, tokens=8 * context)
    assert codes(read_one(text)) == {"accept-length-falls-with-context"}


def test_a_slow_fall_to_the_end_is_the_contexts_and_no_collapse(read_one: ReadOne) -> None:
    # one long request: context and time grow together, and nothing but its place in the log speaks for a collapse
    text = "".join(noisy(3.1 - 1.5 * i / 60, 1, at_s=i, spread=0.03, running=1, tokens=2000 + 600 * i, seed=i) for i in range(60))
    assert codes(read_one(text)) == {"accept-length-falls-with-context"}


def test_a_rank_that_accepts_nothing_is_named_and_not_averaged_away(read_one: ReadOne) -> None:
    def text(*lengths: float) -> str:
        return "".join(
            noisy(length, 1, at_s=i, rank=f" DP{rank} TP{rank}", spread=0.0 if length == 1.0 else 0.05, seed=i)
            for i in range(30)
            for rank, length in enumerate(lengths)
        )

    (found,) = [one for one in read_one(text(2.6, 2.6, 1.0, 2.6)).findings if one.code == "rank-accepts-less"]
    assert found.severity == "error"
    assert found.title.startswith("Rank 2 accepts 1.00, the others 2.60")
    (weaker,) = [one for one in read_one(text(2.6, 1.9)).findings if one.code == "rank-accepts-less"]
    assert weaker.severity == "warning"
    assert "rank-accepts-less" not in codes(read_one(text(2.6, 2.55, 2.62)))
    assert "rank-accepts-less" not in codes(read_one(text(1.0, 1.0)))


def test_an_engine_that_accepts_nothing_is_seen_in_counters(read_one: ReadOne) -> None:
    alive = counters(5000, 15000, 8000, (4000, 2500, 1500), engine="0")
    dead = counters(5000, 15000, 0, (0, 0, 0), engine="1")
    assert "rank-accepts-less" in codes(read_one(alive + dead))
    assert "rank-accepts-less" not in codes(read_one(alive + counters(5000, 15000, 7900, (3950, 2480, 1470), engine="1")))
    assert "rank-accepts-less" not in codes(read_one(alive + counters(3, 9, 0, (0, 0, 0), engine="1"))), "three drafts show nothing"


def test_steps_without_drafts_are_seen_in_lines_that_print_no_interval(read_one: ReadOne) -> None:
    def text(speed: float) -> str:
        lines = (vllm_load(speed, at_s=10 * i) + vllm([0.7, 0.5, 0.3], 1000, at_s=10 * i, old_order=True) for i in range(4))
        return "".join(lines)

    assert "steps-without-drafts" in codes(read_one(text(2500.0)))
    assert "steps-without-drafts" not in codes(read_one(text(250.0)))


@pytest.mark.parametrize("tokens", ["", " tokens"])
def test_counts_since_the_start_are_differenced_and_their_rate_is_not_believed(read_one: ReadOne, tokens: str) -> None:
    counts = ((3000, 2400), (6000, 4900), (9000, 7300))  # 1000 rounds each: 2.4, 2.5 and 2.4 tokens
    lines = [vllm_before_v1(3, *both, at_s=5 * place, tokens=tokens) for place, both in enumerate(counts)]
    reading = read_one("".join(lines))
    found = reading.acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(7300 / 3000)
    assert found.draft_acceptance == pytest.approx((7300 / 3000 - 1) / 3)
    assert (reading.num_lines, reading.queued, found.rounds) == (3, 2, pytest.approx(3000))
    assert "rate-counts-unkept-drafts" in codes(reading)
    # the server was started anew: its counts begin again
    again = read_one("".join((*lines, vllm_before_v1(3, 1500, 1000, at_s=60, tokens=tokens)))).acceptance
    assert again is not None
    assert again.rounds == pytest.approx(3500)
    assert again.accept_length == pytest.approx(8300 / 3500)


def test_a_head_that_nothing_accepts_before_v1(read_one: ReadOne) -> None:
    lines = [vllm_before_v1(16, 16000 * place, 1000 * place, at_s=5 * place) for place in range(1, 9)]
    assert "accept-length-at-floor" in codes(read_one("".join(lines)))


def test_saturated_queue(read_one: ReadOne) -> None:
    reading = read_one(noisy(2.7, 40, running=100, queued=37))
    assert codes(reading) == {"queue-saturated"}


def test_the_engines_own_cap_is_named(read_one: ReadOne) -> None:
    reading = read_one(noisy(2.7, 40, running=48, queued=37))
    (finding,) = reading.findings
    assert finding.code == "admission-capped"
    assert "--max-running-requests" in finding.remedy


def test_a_queue_now_and_then_is_not_saturation(read_one: ReadOne) -> None:
    assert codes(read_one(noisy(2.7, 30, running=20) + noisy(2.7, 5, running=48, queued=9, at_s=100))) == set()


def test_graphs_off_above_a_batch(read_one: ReadOne) -> None:
    reading = read_one(noisy(2.7, 30, running=16) + noisy(2.7, 30, running=64, graph="cuda graph: False", at_s=100))
    (finding,) = [f for f in reading.findings if f.code == "cuda-graph-off"]
    assert "from batch 64 on" in finding.title
    assert "--cuda-graph-max-bs" in finding.remedy


def test_graphs_disabled_by_flag_and_no_graphs_on_a_cpu(read_one: ReadOne) -> None:
    banner = "server_args=ServerArgs(disable_cuda_graph=True)\n"
    (finding,) = read_one(banner + noisy(2.7, 30, graph="cuda graph: False")).findings
    assert "without the flag" in finding.remedy
    assert codes(read_one(noisy(2.7, 30, graph="cpu graph: False"))) == set()


def test_retractions(read_one: ReadOne) -> None:
    text = noisy(2.7, 30) + "[2026-03-01 01:00:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1\n"
    assert codes(read_one(text)) == {"kv-cache-full"}


def test_steps_without_drafts_flatter_the_length(read_one: ReadOne) -> None:
    # 1000 drafts in 10 s, 1800 accepted; 5800 tokens: 4000 steps, a quarter of them drafted
    reading = read_one("".join(vllm_load(580.0, at_s=10 * i) + vllm([0.8, 0.6, 0.4], 1000, at_s=10 * i) for i in range(5)))
    found = reading.acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(2.8)
    assert found.per_step == pytest.approx(1.45, abs=0.01)
    assert found.drafted_share == pytest.approx(0.25, abs=0.01)
    assert "steps-without-drafts" in codes(reading)


def test_speed_is_judged_by_the_length_over_all_steps(read_one: ReadOne) -> None:
    text = "".join(vllm_load(580.0, at_s=10 * i) + vllm([0.8, 0.6, 0.4], 1000, at_s=10 * i) for i in range(5))
    found = read_one(text, Told(break_even=1.2)).acceptance
    assert found is not None
    assert found.decode_speedup == pytest.approx(1.45 / 1.2, abs=0.01)


def test_drafts_on_every_step_do_not(read_one: ReadOne) -> None:
    reading = read_one("".join(vllm_load(284.0, at_s=10 * i) + vllm([0.8, 0.6, 0.4], 1000, at_s=10 * i) for i in range(5)))
    assert codes(reading) == set()


def test_length_that_is_not_the_sum_of_its_positions(read_one: ReadOne) -> None:
    text = "".join(vllm([0.8, 0.6, 0.4], 1000, length=2.3, at_s=10 * i) for i in range(4))
    assert "counters-contradict" in codes(read_one(text))


def test_a_later_position_above_an_earlier_one(read_one: ReadOne) -> None:
    assert "counters-contradict" in codes(read_one(vllm([0.4, 0.6, 0.3], 1000)))


def test_a_release_that_counts_otherwise_than_the_lines(read_one: ReadOne) -> None:
    text = "INFO 03-01 00:00:00 [x.py:1] vLLM API server version 0.11.0\n" + vllm([0.8, 0.6, 0.4], 1000, bonus=False)
    assert "counters-contradict" in codes(read_one(text))


def test_a_release_newer_than_the_checked_ones_is_unverified(read_one: ReadOne) -> None:
    reading = read_one("sglang 0.6.1\n" + noisy(2.7, 10))
    assert codes(reading) == {"release-unverified"}


def test_two_starts_of_a_server_are_two_parts(read: Read) -> None:
    banner = "server_args=ServerArgs(speculative_num_steps={0}, speculative_eagle_topk=1, speculative_num_draft_tokens={1})\n"
    text = banner.format(3, 4) + noisy(2.7, 20) + banner.format(3, 4) + noisy(1.8, 20, at_s=100)
    result = read(text)
    assert [reading.part for reading in result.readings] == [1, 2]
    (comparison,) = result.comparisons
    assert "lower in a.log, part 2" in comparison.findings[0].title


def test_on_against_off(read: Read) -> None:
    off = "".join(sgl(None, None, running=8, speed=400.0, at_s=i) for i in range(20))
    result = read(off, noisy(2.6, 20, running=8, speed=520.0))
    (comparison,) = result.comparisons
    (at_batch,) = [d for d in comparison.differences if d.running == 8]
    assert at_batch.speedup == pytest.approx(1.3)
    assert at_batch.speedup_low is not None
    assert at_batch.speedup_low < 1.1 < 1.5 < (at_batch.speedup_high or 0)
    (finding,) = [f for f in comparison.findings if f.code == "speculation-on-against-off"]
    assert "1.99 plain steps" in finding.evidence[0]


def banner(**settings: object) -> str:
    stated = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"[2026-03-01 00:00:00] server_args=ServerArgs(model_path='org/m', {stated})\n"


@pytest.mark.parametrize(
    ("plain", "drafting", "is_compared"),
    [
        ({"tp_size": 8}, {"tp_size": 4}, False),
        ({"disable_radix_cache": True}, {"disable_radix_cache": False}, False),
        ({"quantization": "fp8"}, {"quantization": "w4afp8"}, False),
        ({"quantization": None}, {"quantization": "fp8"}, True),
        ({"attention_backend": "fa3"}, {"attention_backend": "auto"}, True),
        ({"tp_size": 4, "max_running_requests": 8}, {"tp_size": 4, "max_running_requests": 64}, True),
    ],
)
def test_speeds_of_servers_that_differ_beside_speculation_are_not_compared(
    read: Read, plain: dict[str, object], drafting: dict[str, object], is_compared: bool
) -> None:
    off = banner(**plain) + "".join(sgl(None, None, at_s=i) for i in range(12))
    on = banner(speculative_algorithm="EAGLE3", **drafting) + noisy(2.6, 12, speed=800.0)
    (comparison,) = read(off, on).comparisons
    found = {finding.code for finding in comparison.findings}
    assert ("speculation-on-against-off" in found) == is_compared
    assert ("launches-not-alike" in found) != is_compared
    assert any(one.speedup is not None for one in comparison.differences) == is_compared


def test_logs_without_a_common_batch_say_so(read: Read) -> None:
    off = "".join(sgl(None, None, at_s=i, running=16) for i in range(12))
    (comparison,) = read(off, noisy(2.6, 12, running=4)).comparisons
    assert [finding.code for finding in comparison.findings] == ["no-batch-in-common"]
    assert "16 against 4" in comparison.findings[0].title


def test_lengths_of_drafted_steps_alone_give_no_cost_of_a_round(read: Read) -> None:
    def log(speed: float, *, drafts: bool) -> str:
        lines = (vllm([0.7, 0.5, 0.3], 200, at_s=10 * i) if drafts else "" for i in range(8))
        return "".join(vllm_load(speed, at_s=10 * i) + line for i, line in enumerate(lines))

    (comparison,) = read(log(600.0, drafts=False), log(700.0, drafts=True)).comparisons
    (finding,) = [one for one in comparison.findings if one.code == "speculation-on-against-off"]
    assert "plain steps" not in finding.evidence[0]


def test_engines_of_one_log_are_kept_apart_and_summed(read_one: ReadOne) -> None:
    text = "".join(
        vllm_load(284.0, at_s=10 * i, engine=engine) + vllm([0.8, 0.6, 0.4], 1000, at_s=10 * i)
        for i in range(4)
        for engine in (0, 1)
    )
    reading = read_one(text)
    assert reading.num_engines == 2
    assert reading.throughput == pytest.approx(568.0)
    assert reading.num_lines == 8


@pytest.mark.parametrize("banner", ["ServerArgs(disable_cuda_graph=True, tp_size=2)", "{'disable_cuda_graph': True, 'tp_size': 2}"])
def test_launch_settings_in_both_forms_of_the_banner(read_one: ReadOne, banner: str) -> None:
    reading = read_one(f"[2026-03-01 00:00:00] server_args={banner}\n" + noisy(2.7, 10))
    assert reading.settings == {"disable_cuda_graph": "True", "tp_size": "2"}


BY_BATCH = (
    "(APIServer pid=42) INFO 03-01 00:00:00 [utils.py:253] non-default args: {'max_num_seqs': 4, 'speculative_config': {'method': "
    "'eagle3', 'num_speculative_tokens': 3, 'num_speculative_tokens_per_batch_size': [[1, 1, 3], [2, 64, 1]]}}\n"
)


def by_batch(banner: str) -> str:
    """Three drafts at one running request, one at four."""
    text = banner
    for i in range(8):
        joint, running = ((0.6, 0.4, 0.3), 1) if i < 4 else ((0.6, 0.0, 0.0), 4)
        text += vllm_load(20.0 * (1 + sum(joint)), running, at_s=10 * i + 1) + vllm(list(joint), 200, at_s=10 * i + 2)
    return text


def test_drafts_that_follow_the_batch_make_no_fall_with_it(read_one: ReadOne) -> None:
    plain, told = read_one(by_batch("")), read_one(by_batch(BY_BATCH))
    assert "accept-length-falls-with-batch" in codes(plain)
    assert codes(told) == {"drafts-follow-batch"}
    assert plain.acceptance is not None
    assert told.acceptance is not None
    # only the first position is one of all rounds
    assert len(plain.acceptance.joint) == 3
    assert told.acceptance.joint == pytest.approx((0.6,))
    assert told.acceptance.num_drafted is None
    assert told.acceptance.accept_length == plain.acceptance.accept_length


def test_an_adaptive_sglang(read_one: ReadOne) -> None:
    lines = "".join(sgl(2.4 if i < 20 else 1.4, 0.4, at_s=i, running=1 if i < 20 else 4) for i in range(40))
    assert "accept-length-falls-with-batch" in codes(read_one(lines))
    banner = "[2026-03-01 00:00:00] server_args={'speculative_algorithm': 'EAGLE3', 'speculative_adaptive': True}\n"
    found = codes(read_one(banner + lines))
    assert "drafts-follow-batch" in found
    assert not found & {"accept-length-falls-with-batch", "accept-length-drifts", "accept-length-collapses"}


def test_positions_that_were_seldom_drafted_are_not_dead(read_one: ReadOne) -> None:
    """What a real vLLM counted at two running requests, with one draft there and three at one."""
    assert "only-first-position-alive" in codes(read_one(counters(1800, 5400, 1350, (1350, 0, 0))))
    assert "only-first-position-alive" not in codes(read_one(counters(1800, 1800, 1350, (1350, 0, 0))))
