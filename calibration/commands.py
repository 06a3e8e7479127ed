"""The verbs `kvtier calibrate` and `kvtier validate`, found through the entry-point group `kvtier.commands`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.errors import InputError
from scenarios.commands.options import Jobs, Json

if TYPE_CHECKING:
    from calibration.fitting import Fitted
    from calibration.validation import Validation

validate_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
calibrate_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@validate_app.command()
def validate(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="Shipped tables or .csv files; all that ship unless given."),
    ] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each run; medians are compared.")] = 9,
    parameters: Annotated[
        str | None, typer.Option(metavar="NAME", help="Fitted parameters in place of the scenarios' own; null: none.")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw simulated over measured.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of README.md.")] = False,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Simulate every measured figure and print it beside the measurement: error, fitted or held out, by group.

    Example: kvtier validate --plot parity.png
    """
    from calibration import validation
    from calibration.measurements import read_table, table_names
    from scenarios.commands.plots import check_plot_file
    from scenarios.commands.progress import Progress
    from scenarios.commands.tables import print_json

    picture = None if plot is None else Path(plot)
    if picture is not None:
        check_plot_file(picture)
    chosen = [read_table(name) for name in tables or table_names()]
    with Progress("validate", unit="runs", eta=True) as progress:
        found = validation.validate(chosen, seeds=seeds, parameters=parameters, jobs=jobs, progress=progress)
    if json:
        print_json(found.to_dict())
    elif markdown:
        sys.stdout.write(validation.markdown(found) + "\n")
    else:
        _print_validation(found)
    if picture is not None:
        validation.parity_plot(found).savefig(picture, dpi=150)
        sys.stderr.write(f"kvtier: plot saved to {picture}\n")


@calibrate_app.command()
def calibrate(
    fit: Annotated[
        str | None, typer.Argument(metavar="[FIT]", help="A fit that ships (r1-r2), or a .yaml file.")
    ] = None,
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Where to write the parameters; FIT-fitted.yaml unless given."
        ),
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Write fit.yaml and measured.csv to begin with into this folder.")
    ] = False,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Fit parameters to measured figures by running the simulator, and write them for `parameters:` of scenarios.

    Example: kvtier calibrate r1-r2 -o fitted.yaml
    """
    from calibration.fit_plan import load_plan, plan_names
    from calibration.fitted_file import fitted_document, today, yaml_text
    from calibration.fitting import fit as fit_plan
    from scenarios.commands.progress import Progress
    from scenarios.commands.tables import print_json
    from scenarios.whole_files import write_whole_text

    if template:
        from calibration.template import write_template

        for path in write_template(Path()):
            sys.stderr.write(f"kvtier: wrote {path}\n")
        sys.stderr.write("kvtier: fill in measured.csv, then: kvtier calibrate fit.yaml\n")
        return
    if fit is None:
        raise InputError(f"name a fit: {', '.join(plan_names())}, or a .yaml file (`kvtier calibrate --template`)")
    plan = load_plan(fit)
    target = Path(out or f"{plan.name}-fitted.yaml")
    if not target.parent.is_dir():
        raise InputError(f"--out {target}: there is no folder {target.parent}")
    with Progress(f"calibrate {plan.name}", unit="runs") as progress:
        fitted = fit_plan(plan, jobs=jobs, progress=progress)
    document = fitted_document(fitted, command=f"kvtier calibrate {fit}", date=today())
    write_whole_text(target, yaml_text(document))
    sys.stderr.write(f"kvtier: parameters written to {target}\n")
    if json:
        print_json({**document, "evaluations": fitted.evaluations, "figures": _figures(fitted)})
    else:
        print_fit(fitted, document)


def _print_validation(found: "Validation") -> None:
    from calibration.validation import seeds_of
    from scenarios.commands.tables import print_table

    rows = [
        [
            row.measurement.id,
            row.measurement.scenario,
            f"{row.measurement.value:g} {row.measurement.unit}",
            f"{row.simulated:.4g}",
            f"{row.error:+.1%}",
            "fitted" if row.used_in_fit else "held out",
        ]
        for row in found.rows
    ]
    print_table(["figure", "scenario", "measured", "simulated", "error", ""], rows)
    sys.stdout.write("\n")
    groups = [
        [
            group["group"],
            str(group["rows"]),
            str(group["used_in_fit"]),
            *(f"{group[key]:.1%}" for key in ("mean_abs_error", "median_abs_error", "worst_abs_error")),
            f"{group['bias']:+.1%}",
        ]
        for group in found.groups()
    ]
    print_table(["group", "figures", "fitted", "mean error", "median", "worst", "bias"], groups, numbers_from=1)
    _print_excluded(found)
    sys.stdout.write("\n")
    for table in found.tables:
        seeds = seeds_of(table, found.seeds)
        sys.stdout.write(
            f"{table.name}, medians over {seeds} seeds. Measured: {table.source} "
            f"({table.licence or 'no licence named'})\n"
        )


def _print_excluded(found: "Validation") -> None:
    left_out = [each for table in found.tables for each in table.excluded]
    if left_out:
        sys.stdout.write("\nPublished, but not simulated:\n")
    for each in left_out:
        sys.stdout.write(f"- {each.group} ({len(each.ids)}): {each.why}.\n")


def print_fit(fitted: "Fitted", document: dict[str, Any]) -> None:
    """Print parameters, figures and errors of a fit, and what holds them."""
    from scenarios.commands.tables import print_table

    rows = [
        [key, str(p["value"]), f"{p['spread']:.3g}", p["prior"], f"{p['prior_spread']:g}", p["held_by"]]
        for key, p in document["parameters"].items()
    ]
    print_table(["parameter", "fitted", "spread", "prior", "its spread", "held by"], rows)
    sys.stdout.write("\n")
    figures = [
        [
            f["id"],
            f"{f['measured']:g} {f['unit']}",
            f"{f['simulated']:.4g}",
            f"{f['error']:+.1%}",
            f"{f['left_out']:+.1%}",
        ]
        for f in _figures(fitted)
    ]
    print_table(["figure", "measured", "simulated", "error", "left out"], figures, numbers_from=1)
    fit = document["fit"]
    sys.stdout.write(
        f"\nMean error {fit['mean_abs_error']:.1%}, worst {fit['worst_abs_error']:.1%}; each left out of the fit (made "
        f"linear): {fit['left_out_mean_abs_error']:.1%}, worst {fit['left_out_worst_abs_error']:.1%}.\n"
        f"The data hold {fit['directions_held_by_data']} of {len(document['parameters'])} combinations of parameters "
        "(singular values, in units of the prior: "
        f"{', '.join(f'{value:.2g}' for value in fit['singular_values'])}).\n"
    )


def _figures(fitted: "Fitted") -> list[dict[str, Any]]:
    return [
        {
            "id": row.id,
            "measured": row.value,
            "unit": row.unit,
            "simulated": simulated,
            "error": float(error),
            "left_out": float(left_out),
        }
        for row, simulated, error, left_out in zip(
            fitted.plan.rows, fitted.simulated, fitted.errors, fitted.left_out_errors, strict=True
        )
    ]
