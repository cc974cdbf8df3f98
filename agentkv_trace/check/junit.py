"""A check as JUnit XML: a test case for each gate."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from agentkv_trace.check.model import CheckResult

_CONTROL = {number: "?" for number in range(32) if number not in (9, 10, 13)}


def render(result: CheckResult, *, source: str = "TRACE") -> str:
    """Return one suite as XML text; times are 0, since nothing of a check depends on them."""
    counts = {"tests": str(len(result.findings)), "failures": str(len(result.failed))}
    counts |= {"errors": "0", "time": "0"}
    root = ElementTree.Element("testsuites", {"name": "agentkv-trace check", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "agentkv-trace.check", **counts})
    for finding in result.findings:
        name = " ".join(filter(None, (finding.figure, finding.scope, finding.where)))
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"agentkv-trace.{finding.rule}", "name": _clean(name), "time": "0"},
        )
        if not finding.passed:
            failure = ElementTree.SubElement(
                case, "failure", {"type": finding.rule, "message": _clean(finding.message)}
            )
            failure.text = _clean(
                f"{finding.message}\ncause: {finding.cause or 'not known'}\n"
                f"next: agentkv-trace explain {source}"
            )
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _clean(text: str) -> str:
    """Return text without the control characters that XML cannot hold."""
    return text.translate(_CONTROL)
