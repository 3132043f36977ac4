"""What the doctor found, on a terminal: the likeliest cause first, then what is open and what was not checked."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from breakeven.doctor.evidence import NEEDS
from breakeven.doctor.result import Diagnosis, DoctorResult
from breakeven.doctor.signs import SIGNS
from breakeven.report.text import plain

__all__ = ["render_diagnoses"]

_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "info": "bold"}
MAX_EVIDENCE = 12
# our own sentences with a few words from files: lists of suspects and of rules run long, and their end must not be lost
MAX_TEXT = 4000


def render_diagnoses(result: DoctorResult, console: Console, *, verbose: bool = False) -> None:
    """Print `result`; `verbose` also names the rules that had not the input they need.

    Every string from a file is shown as text, never as markup, without control characters.
    """
    for line in result.examined:
        console.print(Text(plain(f"examined: {line}"), style="dim"))
    console.print()
    if not result.findings:
        if result.num_rules_checked:
            console.print(Text(f"Nothing wrong in what {_rules(result.num_rules_checked)} could check.", style="bold green"))
        else:
            console.print(Text("Nothing was checked: no rule has the input that it needs.", style="bold yellow"))
    for number, finding in enumerate(result.findings, 1):
        _finding(number, finding, console)
    for label, text in (("Together", result.conclusion), ("Check next", result.next_check)):
        if text:
            console.print(Text.assemble((f"{label}: ", "bold"), plain(text, MAX_TEXT)))
    for text in result.refuted:
        console.print(Text.assemble(("Not the cause: ", "bold"), plain(text, MAX_TEXT)))
    if result.open_questions:
        console.print(Text("Cannot decide", style="bold underline"))
    for question in result.open_questions:
        console.print(Text(plain(f"{question.question} [{question.code}]", MAX_TEXT)))
        for line in question.evidence[:MAX_EVIDENCE]:
            console.print(Padding(Text(plain(line), style="dim"), (0, 0, 0, 4)))
        console.print(Padding(Text(plain(f"Provide {question.provide}.", MAX_TEXT)), (0, 0, 0, 4)))
    _repairs(result, console)
    _unchecked(result, console, verbose)


def _finding(number: int, finding: Diagnosis, console: Console) -> None:
    console.print(
        Text.assemble(
            f"{number}. ",
            (finding.severity.upper(), _SEVERITIES[finding.severity]),
            f" {plain(finding.title)}",
            (f"  [{finding.code}, confidence {finding.confidence}]", "dim"),
        )
    )
    for line in finding.evidence[:MAX_EVIDENCE]:
        console.print(Padding(Text(plain(line), style="dim"), (0, 0, 0, 4)))
    shown = {engine: sign for engine, sign in finding.symptoms.items() if sign != "not known"}
    if finding.kind == "cause" and shown:
        told = "; ".join(f"{engine}: {SIGNS[sign]}" for engine, sign in shown.items())
        console.print(Padding(Text(plain(f"Shows as: {told}.")), (0, 0, 0, 4)))
    if finding.explains:
        console.print(Padding(Text(plain(f"Explains: {', '.join(finding.explains)}.")), (0, 0, 0, 4)))
    if finding.remedy:
        console.print(Padding(Text.assemble(("Remedy: ", "bold"), plain(finding.remedy, MAX_TEXT)), (0, 0, 0, 4)))
    console.print()


def _unchecked(result: DoctorResult, console: Console, verbose: bool) -> None:
    if not result.unchecked:
        return
    by_need: dict[str, list[str]] = {}
    for one in result.unchecked:
        # the plan that tells of the baseline tells of the arm too
        needs = [need for need in one.needs if need in NEEDS and not (need == "launch" and "baseline" in one.needs)]
        by_need.setdefault("; together with ".join(NEEDS[need] for need in needs), []).append(one.code)
    named = "" if verbose else ", which --verbose names"
    console.print(
        Text(f"Not checked for want of input: {_rules(len(result.unchecked))}{named}. To check more, provide", style="dim")
    )
    for need, codes in sorted(by_need.items(), key=lambda entry: -len(entry[1])):
        console.print(
            Padding(
                Text(plain(f"{need}: {', '.join(codes) if verbose else _rules(len(codes))}", MAX_TEXT), style="dim"), (0, 0, 0, 4)
            )
        )


def _rules(count: int) -> str:
    return "1 rule" if count == 1 else f"{count} rules"


def _repairs(result: DoctorResult, console: Console) -> None:
    if result.not_repaired:
        console.print(Text(plain(f"--fix wrote nothing: {result.not_repaired}.", MAX_TEXT), style="bold"))
    if not result.repaired:
        return
    console.print(Text(plain(f"Repaired copy in {result.repaired}"), style="bold underline"))
    for line in result.repairs:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else ""
        console.print(Padding(Text(plain(line), style=style), (0, 0, 0, 4)))
    left = ", ".join(result.remaining)
    console.print(
        Padding(Text(plain(f"Still to mend there: {left}." if left else "Nothing above info is left in it.")), (0, 0, 0, 4))
    )
    console.print()
