"""Settings that an engine refuses together.

Detects: speculation with data-parallel attention, pipeline stages, paged trees, attention backends or forced acceptance, in the
combinations that the engine's own checks of its arguments refuse; methods that a release no longer has.

Why it hurts: the server does not start, often after it has loaded the weights, and only one of the two settings is in its message.

Evidence: both settings, and the release in which the check was read.

Remedy: leave one of them out, as told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.launch import Flag, Launch
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.versions import Span

# Flags that are in each other's way, or nothing.
Clash = tuple[Flag, ...]
_PAGED_TREES = ("flashinfer", "fa3", "triton")
_GONE = ("medusa", "mlp_speculator")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """`found` gives the settings that clash in a launch. `is_certain`: for every target and device."""

    engine: str
    found: Callable[[Launch], Clash]
    title: str
    remedy: str
    source: str
    span: Span
    is_certain: bool = True


def _dp_attention(launch: Launch) -> Flag:
    size = launch.number("--dp-size", "--data-parallel-size") or 1
    flag = launch.flag("--enable-dp-attention")
    return flag if flag and size > 1 else Flag()


def _with(launch: Launch, algorithms: tuple[str, ...], other: Flag) -> Clash:
    return (launch.method, other) if launch.method.value in algorithms and other else ()


def _tree(launch: Launch) -> Flag:
    return launch.flag("--speculative-eagle-topk") if (launch.topk or 1) > 1 else Flag()


def _backend(launch: Launch) -> Flag:
    return launch.flag("--decode-attention-backend", "--attention-backend")


def _paged_tree(launch: Launch) -> Clash:
    tree, pages, backend = _tree(launch), launch.flag("--page-size"), _backend(launch)
    paged = (launch.number("--page-size") or 1) > 1
    return (tree, pages, backend) if tree and paged and backend and backend.value not in _PAGED_TREES else ()


def _tree_on(launch: Launch, name: str) -> Clash:
    tree, backend = _tree(launch), _backend(launch)
    return (tree, backend) if tree and backend.value == name else ()


def _stages(launch: Launch) -> Flag:
    flag = launch.flag("--pp-size", "--pipeline-parallel-size")
    return flag if (launch.number("--pp-size", "--pipeline-parallel-size") or 1) > 1 else Flag()


def _block(launch: Launch) -> Clash:
    block, drafts = launch.flag("--speculative-dflash-block-size"), launch.flag("--speculative-num-draft-tokens")
    return (block, drafts) if block and drafts and str(block.value) != str(drafts.value) else ()


def _sampled_tree(launch: Launch) -> Clash:
    flag = launch.flag("--speculative-use-rejection-sampling")
    return (flag, _tree(launch)) if flag and _tree(launch) else _with(launch, ("STANDALONE", "NGRAM", "DFLASH"), flag)


def _spec_v2(launch: Launch) -> Clash:
    asked = launch.env.get("SGLANG_ENABLE_SPEC_V2", "").lower() in ("1", "true", "yes")
    name = Flag(value=launch.env.get("SGLANG_ENABLE_SPEC_V2"), name="SGLANG_ENABLE_SPEC_V2", source="environment")
    return (name, _tree(launch)) if asked and _tree(launch) else ()


def _synthetic(launch: Launch) -> Clash:
    length, drafts = launch.spec("synthetic_acceptance_length"), launch.num_drafted
    if length and drafts is not None and isinstance(length.value, (int, float)) and not 1.0 <= length.value <= drafts + 1:
        return (length, launch.spec("num_speculative_tokens"))
    rates = launch.spec("synthetic_acceptance_rates")
    if rates and drafts is not None and isinstance(rates.value, list) and len(rates.value) != drafts:
        return (rates, launch.spec("num_speculative_tokens"))
    return ()


def _method(launch: Launch, names: tuple[str, ...]) -> Clash:
    return (launch.method,) if launch.method.value in names else ()


_HOOK = "arg_groups/speculative_hook.py, 0.5.23"
_ANY = Span.of(None, None, "0.5.23")
_REFUSALS = (
    _Refusal(
        engine="sglang",
        found=lambda launch: _with(launch, ("NGRAM", "STANDALONE"), _dp_attention(launch)),
        title="does not draft so with data-parallel attention",
        remedy="Leave --enable-dp-attention out, or draft with EAGLE, EAGLE3 or MTP.",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=lambda launch: () if launch.flag("--enable-dp-lm-head") else _with(launch, ("DFLASH",), _dp_attention(launch)),
        title="takes DFLASH with data-parallel attention only with --enable-dp-lm-head",
        remedy="Add --enable-dp-lm-head.",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=lambda launch: _with(launch, ("DFLASH",), _stages(launch)),
        title="does not draft with DFLASH over several pipeline stages",
        remedy="Set --pp-size 1.",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=_paged_tree,
        title="drafts trees over pages of several tokens on flashinfer, fa3 and triton only",
        remedy="Set --speculative-eagle-topk 1, --page-size 1, or one of these backends.",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=lambda launch: _tree_on(launch, "trtllm_mha"),
        title="drafts chains only on trtllm_mha",
        remedy="Set --speculative-eagle-topk 1, or another --attention-backend.",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=_block,
        title="wants the block size and the draft tokens of DFLASH to be one number",
        remedy="Give one of the two, or both the same.",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=_sampled_tree,
        title="samples rejections for chains of EAGLE and EAGLE3 only",
        remedy="Leave --speculative-use-rejection-sampling out, or draft a chain (--speculative-eagle-topk 1).",
        source=_HOOK,
        span=_ANY,
    ),
    _Refusal(
        engine="sglang",
        found=_spec_v2,
        title="drafts chains only with SGLANG_ENABLE_SPEC_V2",
        remedy="Set --speculative-eagle-topk 1, or leave the variable out.",
        source="sglang/docs/advanced_features/speculative_decoding.md, releases with this variable",
        span=Span.of(None, "0.5.12.post1", "0.5.12.post1"),
    ),
    _Refusal(
        engine="vllm",
        found=_synthetic,
        title="cannot force such an acceptance with so many drafts",
        remedy="Give a length from 1 to the number of drafts plus 1, or as many rates as drafts.",
        source="config/speculative.py, 0.32.0",
        span=Span.of("0.20.0", None, "0.32.0"),
    ),
    _Refusal(
        engine="vllm",
        found=lambda launch: (launch.method, _stages(launch)) if launch.method.value == "eagle3" and _stages(launch) else (),
        title="drafts with EAGLE-3 over pipeline stages for some targets only",
        remedy="Use tensor parallelism alone, or try it: targets whose model file hands hidden states on between stages start.",
        source="v1/worker/gpu/spec_decode/eagle/eagle3_utils.py, 0.32.0",
        span=Span.of(None, None, "0.32.0"),
        is_certain=False,
    ),
    _Refusal(
        engine="vllm",
        found=lambda launch: _method(launch, _GONE),
        title="no longer has this method",
        remedy="Serve an EAGLE-3 head or the target's MTP layers; or stay on 0.32.",
        source="config/speculative.py, 0.33.0",
        span=Span.of("0.33.0", None, "0.33.0"),
    ),
)


def check(evidence: Evidence) -> Iterator[Told]:
    launch, version = evidence.launch, evidence.version
    assert launch is not None
    for row in _REFUSALS:
        if row.engine != launch.engine or (version is not None and version not in row.span):
            continue
        # without a release, one that takes it may be meant
        certain = row.is_certain and (version is not None or (row.span.first is None and row.span.last is None))
        clash = [flag for flag in row.found(launch) if flag]
        if not clash:
            continue
        is_read = version is not None and row.span.checked_to is not None and version <= row.span.checked_to
        yield Fault(
            severity="error" if certain else "warning",
            confidence="high" if certain and is_read else "medium",
            title=f"{evidence.engine_text} {row.title}",
            evidence=(*(str(flag) for flag in clash), f"read in {row.source}"),
            remedy=row.remedy,
            symptoms=Symptoms(vllm="load-error", sglang="nothing") if row.engine == "vllm" else Symptoms(sglang="load-error"),
        )
