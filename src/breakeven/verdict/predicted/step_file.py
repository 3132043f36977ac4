"""Step times that a user measured or read off a figure, as YAML: the curve of verification and of the drafter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.prediction_error import PredictionError
from breakeven.costs.step_times import StepTimes
from breakeven.costs.stepped_surface import SteppedSurface
from breakeven.errors import UsageError
from breakeven.inputs.checking import check_table
from breakeven.inputs.text import read_text
from breakeven.inputs.yaml_table import parse_yaml_table
from breakeven.verdict.predicted.result import Prediction
from breakeven.verdict.predicted.surfaces import batch_predictions, headline, with_error, with_times

__all__ = ["StepFile", "predict_from_steps", "read_step_file"]

MAX_BYTES = 200_000
EXPECTED = "a few dozen step times under verify_ms, draft_ms and drafts; docs/predict.md shows the form"
SERVED = "Isolated forward timings price a served round too cheap; times of served rounds are better"
# from a nanosecond on, so that one time over another stays a number
Milliseconds = Annotated[float, Field(ge=1e-6, lt=1e7, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class StepFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="step times", max_length=200, description="Title of the prediction")
    verify_ms: Mapping[Count, Milliseconds] = Field(
        min_length=2, max_length=10_000, description="Time of a verification by tokens in the step"
    )
    draft_ms: Mapping[Count, Milliseconds] = Field(
        min_length=1, max_length=10_000, description="Time of a whole round of the drafter by requests"
    )
    drafts: int = Field(ge=1, le=128, description="Drafts a round that draft_ms was measured with")
    draft_passes: str = Field(
        default="unknown",
        pattern="^(one|each|unknown)$",
        description="one: all drafts come from one forward of the drafter; each: one forward a draft; unknown",
    )

    noise: float = Field(default=0.05, ge=0.0, le=1.0, description="Relative error of a ratio of two of these times")

    def surface(self) -> SteppedSurface:
        return SteppedSurface(
            verify=StepTimes.of({tokens: time * 1e-3 for tokens, time in self.verify_ms.items()}),
            draft=StepTimes.of({requests: time * 1e-3 for requests, time in self.draft_ms.items()}),
            draft_for=self.drafts,
            is_one_pass={"one": True, "each": False, "unknown": None}[self.draft_passes],
        )


def read_step_file(path: Path) -> StepFile:
    """Raises UsageError: unreadable, not YAML, or not of this form, with every problem by its line and key."""
    text = read_text(path, max_bytes=MAX_BYTES, expected=EXPECTED, error=UsageError, option="--step-times")
    where = f"--step-times {path}"
    content, lines = parse_yaml_table(text, where, expected=EXPECTED, error=UsageError)
    return check_table(StepFile, content, lines, where, whole="the file", error=UsageError)


def predict_from_steps(
    file: StepFile, acceptance: AcceptanceCurve | None, batches: Sequence[int], drafts: Sequence[int], *, threshold: float
) -> Prediction:
    """c at every batch that step and draft times reach; without `batches` or `drafts`, those of the draft times."""
    surface = file.surface()
    noisy = with_error(surface, PredictionError(what="noise", half=file.noise, tenth=file.noise, num=0, num_targets=0))
    chosen = batches or tuple(sorted(file.draft_ms))
    numbers = drafts or tuple(sorted({1, file.drafts}))
    found, unknown = batch_predictions(noisy, acceptance, chosen, numbers, threshold=threshold)
    found = tuple(with_times(batch, surface.verify.at(batch.batch).value) for batch in found)
    cliffs = [
        f"Cliff between {cliff.below} and {cliff.above} tokens in a step: {cliff.factor:.1f} times as long, more than its tokens "
        "explain. Usually the end of the captured CUDA graphs: raise the capture size past the largest batch x (drafts + 1)"
        for cliff in surface.verify.cliffs
    ]
    return Prediction(
        kind="step times",
        title=file.name,
        headline=headline(found, threshold),
        threshold=threshold,
        batches=found,
        unpredicted=unknown,
        notes=(
            *cliffs,
            f"Intervals hold what lies between the points, and an error of {file.noise * 100:.0f} % of a ratio (noise in the file)",
            SERVED,
        ),
    )
