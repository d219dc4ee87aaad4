import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.drawing import to_latex


@pytest.mark.parametrize(
    "label",
    [
        "$R_{17}$",
        r"$\mathcal{W}^{\,Q}$",
        r"$\mathrm{softmax}_M(\,\cdot\,/\sqrt{D}\,)$",
        r"$\mathrm{log\,softmax}$",
        r"$\frac{a}{b}\leq\alpha$",
        r"$\hat{x}\tanh$",
        r"$F=768$",
        r"$H'$",
        r"$\{a\}\%$",
        r"$\sqrt[3]{x}$",
    ],
)
def test_what_both_languages_say_alike_is_kept(label: str) -> None:
    assert to_latex(label) == label


@pytest.mark.parametrize(
    ("label", "latex"),
    [
        ("100% of {a_b} & #1~^", r"100\% of \{a\_b\} \& \#1\textasciitilde{}\textasciicircum{}"),
        (r"\$5 back\slash", r"\$5 back\textbackslash{}slash"),
        ("a < b > c | d", "a $<$ b $>$ c $|$ d"),
        ("two--dashes", "two{-}{-}dashes"),
        (r"$\mathbf x$", r"$\mathbf{x}$"),
        ("$a·b×c$", r"$a\cdot b\times c$"),
        ("5$ alone", r"5\$ alone"),
    ],
)
def test_what_latex_would_misread_is_translated(label: str, latex: str) -> None:
    assert to_latex(label) == latex


@pytest.mark.parametrize(
    "label",
    [
        r"$\mathcal{w}$",  # CM has no small script letters
        r"$\mathbb{1}$",  # nor double-struck digits
        r"$\mathbf{\alpha}$",  # \mathbf does nothing to Greek
        r"$\mathscr{L}$",  # needs another package
        r"$\mathdefault{x}$",  # mathtext only
        r"$\bigstar$",  # not in our list
        r"$x % y$",  # a comment
        r"$a & b$",
        r"$\mathrm{a_b}$",
        "naïve",
        "αβγ",
        "$α$",
        "line\nbreak",
        r"$\mathbf{{x}}$",
        r"$\input{secret}$",
    ],
)
def test_what_latex_cannot_say_is_none(label: str) -> None:
    assert to_latex(label) is None


@pytest.mark.slow
@given(st.text(max_size=30))
def test_no_text_can_escape_into_commands(text: str) -> None:
    latex = to_latex(text.replace("$", "").replace("\\", ""))
    if latex is None:
        return
    rest = latex
    for known in (r"\textasciitilde{}", r"\textasciicircum{}", "$<$", "$>$", "$|$", "{-}", "{''}"):
        rest = rest.replace(known, "")
    for escaped in (r"\{", r"\}", r"\%", r"\#", r"\&", r"\_"):
        rest = rest.replace(escaped, "")
    assert not any(character in rest for character in "\\{}%#&_~^$")
