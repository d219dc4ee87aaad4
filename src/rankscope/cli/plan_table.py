"""A plan in the terminal."""

from rankscope.auditing.plan import Plan
from rankscope.cli import console


def print_plan(plan: Plan) -> None:
    """Print a plan, its law, its notes, the alternatives and the models beside it."""
    embedding, law = plan.budget.embedding, plan.law
    share = plan.budget.size(plan.depth, plan.width) / plan.budget.parameters
    table = embedding.parameters_at(plan.width)
    console.print_columns(
        [
            ("depth", f"{plan.depth:,}", f"the law gives {plan.law_depth}"),
            ("width", f"{plan.width:,}", _within_fit(plan)),
            ("heads", f"{plan.shape.heads:,}", f"of size {plan.shape.head_size}"),
            ("parameters", f"{plan.parameters:,}", f"without embeddings; budget used: {share:.1%}"),
            (
                "embedding",
                "-" if table is None else f"{table:,.0f}",
                f"parameters; rank at most {plan.shape.embedding_rank:,}",
            ),
        ],
        numbers=(1,),
    )
    print(
        f"\nLaw: ln(width) = {law.intercept} ± {law.intercept_error} + "
        f"({law.slope} ± {law.slope_error}) x depth    [{law.reference}]"
        f"\nFitted on {law.data}."
    )
    for note in plan.notes:
        print(f"\n{note}")
    print("\nAlternatives for the same budget; bounds are log3 of the separation rank")
    _print_alternatives(plan)
    if plan.compared:
        print("\nModels, and the depth that the law gives the parameters in their blocks")
        _print_compared(plan)


def _within_fit(plan: Plan) -> str:
    down, up = plan.shapes_within_fit
    return f"{down.depth} x {down.width:,} to {up.depth} x {up.width:,} within the fit's errors"


def _print_alternatives(plan: Plan) -> None:
    head = ("depth", "width", "heads", "parameters", "at least", "at most", "regime", "")
    rows = [head]
    for row in plan.alternatives:
        shape, lower = row.shape, row.shape.lower
        mark = "planned" if row.is_planned else "within the fit" if row.is_within_fit else ""
        rows.append(
            (
                f"{shape.depth:,}",
                f"{shape.width:,}",
                f"{shape.heads} x {shape.head_size}",
                f"{row.parameters:,}",
                "-" if lower is None else f"{lower.log3:,.4g}",
                f"{shape.count.log3:,.4g}",
                str(shape.regime),
                mark,
            )
        )
    console.print_columns(rows, numbers=(0, 1, 2, 3, 4, 5))


def _print_compared(plan: Plan) -> None:
    rows = [("model", "depth", "width", "parameters", "law's depth", "", "")]
    for model in plan.compared:
        rows.append(
            (
                model.name,
                str(model.shape.depth),
                f"{model.shape.width:,}",
                f"{model.parameters:,}",
                str(model.law_depth),
                model.verdict,
                model.remark or "",
            )
        )
    console.print_columns(rows, numbers=(1, 2, 3))
