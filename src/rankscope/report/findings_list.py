"""The ranked findings: number against threshold, why, where from, and the command to act."""

from html import escape

from rankscope.auditing.findings import Finding, Severity
from rankscope.report.wording import percent, readable

# A shape beside each word, so that greyscale tells them apart.
MARKS = {Severity.WARNING: "▲", Severity.ADVICE: "●", Severity.NOTE: "○"}


def findings_list(findings: tuple[Finding, ...]) -> str:
    """An ordered list, or a sentence if nothing was found."""
    if not findings:
        return '<p class="nothing">Nothing stands out.</p>'
    return "<ol>\n" + "\n".join(_item(finding) for finding in findings) + "\n</ol>"


def _item(finding: Finding) -> str:
    severity = finding.severity.name.lower()
    saving = ""
    if finding.saving is not None:
        saving = f"<dt>would save</dt><dd>{percent(finding.saving)} of all parameters</dd>"
    return (
        f'<li class="finding {severity}" id="finding-{escape(finding.id)}">\n'
        f'<p class="severity"><span aria-hidden="true">{MARKS[finding.severity]}</span> '
        f"{severity.capitalize()}</p>\n"
        f"<h3>{escape(finding.title)}</h3>\n"
        f'<dl class="measure"><dt>found</dt><dd>{readable(finding.value)}</dd>'
        f"<dt>compared with</dt><dd>{readable(finding.threshold)}</dd>{saving}</dl>\n"
        f"<p>{escape(finding.reason)}</p>\n"
        f'<p class="reference">{escape(finding.reference)}</p>\n'
        f"{_command(finding.command)}</li>"
    )


def _command(command: str) -> str:
    if not command:
        return ""
    return (
        f'<div class="command"><code>{escape(command)}</code>'
        '<button type="button" class="copy" aria-label="Copy the command">Copy</button></div>\n'
    )
