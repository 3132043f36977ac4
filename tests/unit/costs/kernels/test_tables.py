"""Reading kernel times between the measured ones, on tables whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from breakeven.costs.kernels.attention import Attention, LatentAttention
from breakeven.costs.kernels.collectives import AllReduce
from breakeven.costs.kernels.dense import Gemm
from breakeven.costs.kernels.experts import Moe
from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import Axis, MissingKernel

Write = Callable[..., None]


def products(times: dict[tuple[int, int, int], float], precision: str = "bfloat16") -> list[dict[str, object]]:
    return [{"gemm_dtype": precision, "m": m, "n": n, "k": k, "latency": ms} for (m, n, k), ms in times.items()]


def test_an_axis_is_straight_on_log_scales_flat_before_and_proportional_after() -> None:
    axis = Axis.of({1.0: 2.0, 4.0: 8.0, 16.0: 8.0})
    assert axis.at(2.0) == pytest.approx(4.0)
    assert axis.at(0.5) == 2.0
    assert axis.at(8.0) == pytest.approx(8.0)
    assert axis.at(32.0) == pytest.approx(16.0)


def test_a_measured_product_is_read_and_the_fastest_of_two_kernels_counts(library: Library, write_table: Write) -> None:
    rows = products({(1, 4096, 4096): 0.060}) + products({(1, 4096, 4096): 0.050})
    write_table("gemm", "sglang", "0.5.14", "gemm_perf", rows)
    time = Gemm(library).at(1, 4096, 4096, "bfloat16")
    assert time.value == pytest.approx(50e-6)
    assert time.source == "sglang 0.5.14"


def test_no_product_is_faster_than_reading_its_weights(library: Library, write_table: Write) -> None:
    # 32 MB that stayed in the cache of the benchmark: 10 us, where reading them takes 42
    write_table("gemm", "sglang", "0.5.14", "gemm_perf", products({(1, 4096, 4096): 0.010}))
    time = Gemm(library).at(1, 4096, 4096, "bfloat16")
    assert time.value == pytest.approx(2 * 4096 * 4096 / 0.8e12)
    assert time.notes == ("raised to the time of reading its weights once",)


def test_between_shapes_time_goes_with_the_weights(library: Library, write_table: Write) -> None:
    # 3 us a million weights, which is above reading them
    grid = {(1, n, k): n * k * 3e-9 for n in (1024, 2048, 4096) for k in (1024, 4096)}
    write_table("gemm", "sglang", "0.5.14", "gemm_perf", products(grid))
    gemm = Gemm(library)
    assert gemm.at(1, 1536, 2048, "bfloat16").value == pytest.approx(1536 * 2048 * 3e-12, rel=0.3)
    assert gemm.at(1, 8192, 4096, "bfloat16").value == pytest.approx(8192 * 4096 * 3e-12, rel=0.05)


def test_weight_only_products_are_scaled_from_bfloat16_and_say_so(library: Library, write_table: Write) -> None:
    write_table("gemm", "sglang", "0.5.14", "gemm_perf", products({(1, 4096, 4096): 0.100, (1024, 4096, 4096): 0.400}))
    gemm = Gemm(library)
    few, many = gemm.at(1, 4096, 4096, "int4_wo"), gemm.at(1024, 4096, 4096, "int4_wo")
    assert few.value == pytest.approx(100e-6 * 0.5625 / 2)
    assert many.value > 300e-6
    assert few.low < few.value < few.high
    assert "no measured rows in int4_wo" in few.notes[0]


def test_a_precision_without_rows_is_missing(library: Library, write_table: Write) -> None:
    write_table("gemm", "sglang", "0.5.14", "gemm_perf", products({(1, 64, 64): 0.01}))
    with pytest.raises(MissingKernel, match="nvfp4 on box"):
        Gemm(library).at(1, 64, 64, "nvfp4")


def reduction(ms: float, backend: str, elements: int = 4096) -> dict[str, object]:
    return {"num_gpus": 8, "allreduce_dtype": "bfloat16", "message_size": elements, "backend": backend, "latency": ms}


def test_reductions_inside_graphs_count_and_one_gpu_has_none(library: Library, write_table: Write) -> None:
    rows = [reduction(0.050, "sglang_eager"), reduction(0.030, "sglang_graph"), reduction(0.060, "sglang_graph", 16384)]
    write_table("comm", "sglang", "0.5.14", "custom_allreduce_perf", rows)
    reduce = AllReduce(library)
    assert reduce.at(4096, 8).value == pytest.approx(30e-6)
    assert reduce.at(8192, 8).value == pytest.approx(30e-6 * 2**0.5)
    assert reduce.at(4096, 1).value == 0.0
    with pytest.raises(MissingKernel, match="4 GPUs"):
        reduce.at(4096, 4)


def test_experts_are_looked_up_by_their_whole_shape(library: Library, write_table: Write) -> None:
    row = {
        "moe_dtype": "int4_wo", "num_tokens": 4, "hidden_size": 64, "inter_size": 32, "topk": 2, "num_experts": 8,
        "moe_tp_size": 2, "moe_ep_size": 1, "distribution": "balanced", "latency": 0.5,
    }  # fmt: skip
    write_table("moe", "sglang", "0.5.14", "moe_perf", [row, {**row, "moe_tp_size": 4, "latency": 0.3}])
    times, _ = Moe(library).by_tokens(hidden=64, intermediate=32, top_k=2, num_experts=8, precision="int4_wo", tensor_parallel=2)
    assert times["balanced"].at(4) == pytest.approx(0.5e-3)
    with pytest.raises(MissingKernel, match="8 experts of 64 x 32"):
        Moe(library).by_tokens(hidden=64, intermediate=32, top_k=2, num_experts=8, precision="fp8", tensor_parallel=2)


def attention_rows(kv_heads: int = 2, head_dim: int = 64) -> list[dict[str, object]]:
    """1 us a request and key/value head for reading, 0.1 us a query head for multiplying."""
    return [
        {
            "num_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "window_size": 0, "batch_size": batch,
            "step": context - 1, "kv_cache_dtype": "bfloat16", "latency": 1e-3 * batch * (kv_heads + 0.1 * heads) * context / 1024,
        }
        for heads in (4, 8, 16, 32)
        for batch in (1, 8, 64)
        for context in (512, 1024, 2048)
    ]  # fmt: skip


def test_rows_of_one_request_share_what_they_read(library: Library, write_table: Write) -> None:
    write_table("attention", "sglang", "0.5.14", "generation_attention_perf", attention_rows())
    attention = Attention(library)
    one = attention.at(batch=8, queries=1, context=1024, heads=8, kv_heads=2, head_dim=64)
    four = attention.at(batch=8, queries=4, context=1024, heads=8, kv_heads=2, head_dim=64)
    assert one.value == pytest.approx(8e-6 * 2.8)
    # four rows as 32 heads on the same keys and values, between one row and four requests
    assert four.value == pytest.approx(8e-6 * 5.2)
    assert four.low == pytest.approx(one.value)
    assert four.high == pytest.approx(4 * one.value, rel=0.01)


def test_heads_and_windows_that_were_not_measured_are_put_together(library: Library, write_table: Write) -> None:
    write_table("attention", "sglang", "0.5.14", "generation_attention_perf", attention_rows())
    attention = Attention(library)
    twice = attention.at(batch=4, queries=1, context=1024, heads=16, kv_heads=4, head_dim=64)
    assert twice.value == pytest.approx(attention.at(batch=8, queries=1, context=1024, heads=8, kv_heads=2, head_dim=64).value)
    windowed = attention.at(batch=8, queries=1, context=2048, heads=8, kv_heads=2, head_dim=64, window=512)
    assert windowed.value == pytest.approx(attention.at(batch=8, queries=1, context=512, heads=8, kv_heads=2, head_dim=64).value)
    with pytest.raises(MissingKernel, match="heads of 96"):
        attention.at(batch=1, queries=1, context=512, heads=8, kv_heads=2, head_dim=96)


def test_older_tables_without_windows_are_read(library: Library, write_table: Write) -> None:
    rows = [{key: value for key, value in row.items() if key != "window_size"} for row in attention_rows()]
    write_table("attention", "sglang", "0.5.10", "generation_attention_perf", rows)
    time = Attention(library).at(batch=1, queries=1, context=1024, heads=8, kv_heads=2, head_dim=64)
    assert (time.value, time.source) == (pytest.approx(2.8e-6), "sglang 0.5.10")


def test_newer_releases_than_the_one_asked_for_are_not_read(library: Library, write_table: Write) -> None:
    write_table("gemm", "sglang", "0.5.16", "gemm_perf", products({(1, 64, 64): 0.01}))
    write_table("gemm", "sglang", "0.5.10", "gemm_perf", products({(1, 64, 64): 0.02}))
    assert Gemm(library).at(1, 64, 64, "bfloat16").value == pytest.approx(20e-6)


def test_another_engine_stands_in_and_is_named(library: Library, write_table: Write) -> None:
    row = {"num_heads": 8, "batch_size": 1, "step": 1023, "kv_cache_dtype": "bfloat16", "latency": 0.02}
    write_table("mla", "vllm", "0.24.0", "generation_mla_perf", [row])
    time = LatentAttention(library).at(batch=1, queries=1, context=1024, heads=8)
    assert (time.value, time.source) == (pytest.approx(20e-6), "vllm 0.24.0")


def test_quantized_products_far_slower_than_bfloat16_are_no_kernels(library: Library, write_table: Callable[..., None]) -> None:
    def rows(precision: str, factor: float) -> list[dict[str, object]]:
        return [
            {"gemm_dtype": precision, "m": m, "n": n, "k": 4096, "latency": 0.05 * (n / 2048) * factor}
            for n in (2048, 4096)
            for m in (1, 4, 64)
        ]

    write_table("gemm", "sglang", "0.5.14", "gemm_perf", [*rows("bfloat16", 1.0), *rows("fp8_block", 20.0), *rows("fp8", 1.2)])
    gemm = Gemm(library)
    stood_in = gemm.at(4, 4096, 4096, "fp8_block")
    assert stood_in.value == pytest.approx(50e-6)  # half the bytes
    assert stood_in.value < stood_in.high
    assert stood_in.high == pytest.approx(100e-6)  # no more than bfloat16 takes
    assert any("take longer than bfloat16 ones" in note for note in stood_in.notes)
    # a little slower than bfloat16 is what dynamic quantization costs, and a measurement
    own = gemm.at(4, 4096, 4096, "fp8")
    assert own.value == pytest.approx(120e-6)
    assert own.notes == ()


def test_a_slip_of_the_benchmark_is_not_a_kernels_time(library: Library, write_table: Callable[..., None]) -> None:
    def row(precision: str, m: int, latency: float) -> dict[str, object]:
        return {"gemm_dtype": precision, "m": m, "n": 7168, "k": 2048, "latency": latency}

    plain = [row("bfloat16", m, 0.030) for m in (1, 2, 4)]
    write_table("gemm", "sglang", "0.5.14", "gemm_perf", [*plain, row("fp8", 1, 0.065), row("fp8", 2, 0.022), row("fp8", 4, 0.021)])
    gemm = Gemm(library)
    assert gemm.at(1, 7168, 2048, "fp8").value == pytest.approx(21e-6)
    # within the jitter of such tables a row stays as measured
    assert gemm.at(2, 7168, 2048, "fp8").value == pytest.approx(22e-6)
