"""Comparisons as the result states them: ratio, outcome, the rule that gave it, and how it stands to the prediction."""

from __future__ import annotations

from breakeven.experiment.comparing import PAIR_ASSUMED_SD, Compared, compare
from breakeven.experiment.summary import log_decode_time_per_token, log_throughput
from breakeven.stats.decision import Outcome, launches_to_decide
from breakeven.stats.intervals import Estimate, block_interval
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.prediction import Prediction, mean_prefill_share
from breakeven.verdict.measured.wording import interval_of_log, listed, percent, ratio
from breakeven.verdict.result import ByObjective, Comparison, Interval

__all__ = ["comparisons"]


def comparisons(case: Case) -> tuple[Comparison, ...]:
    return tuple(_comparison(case, compared) for compared in case.compared.values())


def _comparison(case: Case, compared: Compared) -> Comparison:
    run, record = case.run, case.record
    outcome = case.outcome(compared)
    log_times = run.paired(compared.arm, record.baseline, compared.load, log_decode_time_per_token)
    decode = block_interval([[-value for value in values] for values in log_times.values()], assumed_sd=PAIR_ASSUMED_SD)
    prediction = case.predictions.get((compared.arm, compared.load), Prediction())
    measured = interval_of_log(compared.log_ratio)
    return Comparison(
        arm=compared.arm,
        baseline=record.baseline,
        load=compared.load,
        ratio=measured,
        outcome=None if run.arm(compared.arm).probe else outcome,
        why=_why(case, compared, outcome, measured),
        num_blocks=compared.log_ratio.num_blocks,
        launches_to_decide=_further(case, compared),
        decode_ratio=interval_of_log(decode) if decode.usable else None,
        prefill_share=mean_prefill_share(run, compared.load),
        predicted=None if prediction.log_speedup is None else interval_of_log(prediction.log_speedup),
        gap_explained=_gap(prediction, _by_throughput(case, compared, measured)),
        by_objective=_by_objective(case, compared),
    )


def _by_objective(case: Case, compared: Compared) -> tuple[ByObjective, ...]:
    """None for forced arms, whose answers are junk, and none that the samples give no figure for."""
    if case.run.arm(compared.arm).probe:
        return ()
    found = []
    for objective in case.record.objective.others():
        other = compare(case.run, compared.arm, compared.load, objective)
        if other.log_ratio.usable:
            ratio_ = interval_of_log(other.log_ratio)
            found.append(ByObjective(objective=objective.text, ratio=ratio_, outcome=case.outcome(other)))
    return tuple(found)


def _by_throughput(case: Case, compared: Compared, measured: Interval) -> Interval:
    """What a prediction is held against, whatever the plan judges by."""
    if case.record.objective.name == "throughput":
        return measured
    blocks = case.run.paired(compared.arm, case.record.baseline, compared.load, log_throughput)
    return interval_of_log(block_interval(list(blocks.values()), assumed_sd=PAIR_ASSUMED_SD))


def _further(case: Case, compared: Compared) -> int | None:
    """None for comparisons that are decided or void, and for forced arms, which are not there to be decided."""
    if compared.outcome != "undecided" or case.is_void(compared.arm, compared.load) or case.run.arm(compared.arm).probe:
        return None
    return launches_to_decide(compared.log_ratio, case.record.threshold)


def _why(case: Case, compared: Compared, outcome: Outcome, measured: Interval) -> str:
    if case.run.arm(compared.arm).idle:
        return "speculation is loaded and never drafts: what carrying it costs, not an arm to run"
    if case.run.arm(compared.arm).forced:
        return "accepts to order: what a drafter of this accept length would gain here, not an arm to run"
    threshold = case.record.threshold
    lower, upper = f"{1 - threshold:.2f}", f"{1 + threshold:.2f}"
    if compared.not_comparable:
        return f"not comparable: {compared.not_comparable}"
    if compared.load in case.impossible:
        cheap = listed(case.impossible[compared.load])
        return f"the baseline at {compared.load} cannot be right: {cheap} would have rounds cheaper than a plain step"
    assert measured.low is not None
    assert measured.high is not None
    span = f"the interval, {measured.low:.2f} to {measured.high:.2f},"
    if outcome == "pays":
        rule = f"{span} lies above {upper}"
    elif outcome == "slower":
        rule = f"{span} lies below {lower}"
    elif outcome == "no useful difference":
        rule = f"{span} lies within {lower} to {upper}"
    else:
        bounds = ((lower, 1 - threshold), (upper, 1 + threshold))
        rule = f"{span} reaches across {listed(text for text, bound in bounds if measured.low <= bound <= measured.high)}"
    return rule + _caveat(compared.log_ratio)


def _caveat(log_ratio: Estimate) -> str:
    if log_ratio.assumed:
        return "; one launch an arm, so it assumes a launch s.d. of 10 %"
    if log_ratio.num_blocks == 2:
        return "; two launches an arm, so it is wide"
    return ""


def _gap(prediction: Prediction, measured: Interval) -> str:
    if prediction.log_speedup is None or prediction.log_gap is None:
        return prediction.why_none
    predicted = interval_of_log(prediction.log_speedup)
    told = f"predicted {ratio(predicted)} from its accept length and the cost ratio of {listed(prediction.sources)}"
    if prediction.agrees:
        return f"{told}; measured {measured.estimate:.2f}x: they agree within noise"
    gap = percent(abs(interval_of_log(prediction.log_gap).estimate - 1))
    side = "above" if prediction.log_gap.value > 0 else "below"
    causes = "; ".join(prediction.causes) or "nothing measured here explains it"
    return f"{told}; measured {measured.estimate:.2f}x, {gap} {side} it: {causes}"
