"""`kvtier import-device`: a device file from a storage benchmark or a log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
def import_device_file(
    *,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="What the tool wrote; several are runs or parts of one grid.")
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            help="fio, gdsio, nixlbench, elbencho, mlperf-kvcache or iostat; found from the file unless given."
        ),
    ] = None,
    out: Annotated[str, typer.Option("-o", "--out", metavar="DEVICE.yaml", help="Where to write; - for stdout.")] = "-",
    name: Annotated[str | None, typer.Option(help="Name of the device; that of the file unless given.")] = None,
    device_class: Annotated[str, typer.Option("--class", help="drive, array, object or memory.")] = "drive",
    count: Annotated[
        int, typer.Option(min=1, help="Devices that were measured together as a stripe; figures are for one.")
    ] = 1,
    stand_in: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="Catalogue device whose figures stand in, as assumed, for what was not measured."
        ),
    ] = None,
    disk: Annotated[str | None, typer.Option(help="Which drive of an iostat log, such as nvme0n1.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: the device, and its curve at each point.")
    ] = False,
) -> None:
    """Make a catalogue device of what fio, gdsio, nixlbench, elbencho, MLPerf Storage or iostat -x wrote.

    The grid of block sizes, queue depths and mixes becomes bandwidth, operations a second, latency and the rate of one
    stream. A scenario takes the file as `device: ./DEVICE.yaml`.

    Example: kvtier import-device fio.json -o drive.yaml
    """
    from calibration.importers.device import STAND_INS, import_device
    from calibration.importers.reading import read_measurements
    from models.errors import InputError, UnknownNameError

    if device_class not in STAND_INS:
        raise UnknownNameError("device class", device_class, STAND_INS)
    if out != "-" and not out.endswith((".yaml", ".yml")):
        raise InputError(f"-o {out}: must end in .yaml, which is how a scenario tells a file from a catalogue name")
    options = {} if disk is None else {"disk": disk}
    read = [(file, read_measurements(file, kind, **options)) for file in files]
    called = name or Path(files[0] if out == "-" else out).name.partition(".")[0] or "device"
    imported = import_device(read, name=called, device_class=device_class, count=count, stand_in=stand_in)
    text = imported.yaml()
    if out != "-":
        try:
            Path(out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    for warning in imported.warnings:
        sys.stderr.write(f"kvtier: warning: {warning}\n")
    if json:
        _print_json(imported)
    elif out == "-":
        sys.stdout.write(text)
    else:
        _print_tables(imported)
        sys.stderr.write(f"kvtier: device written to {out}\n")


def _print_json(imported: Any) -> None:
    from scenarios.commands.tables import print_json

    curve = [
        {
            "io_bytes": row.point.cell.io_bytes,
            "queue_depth": row.point.cell.depth,
            "write_fraction": row.point.cell.write_fraction,
            "pattern": row.point.cell.pattern,
            "runs": row.point.runs,
            "measured_bytes_per_s": row.point.cell.bytes_per_s,
            "curve_bytes_per_s": row.curve_bytes_per_s,
            "error": row.error,
        }
        for row in imported.met
    ]
    device = imported.entry.model_dump(mode="json", exclude_none=True)
    print_json({"device": device, "curve": curve, "warnings": list(imported.warnings)})


def _print_tables(imported: Any) -> None:
    from models.units import format_rate
    from scenarios.commands.tables import print_table

    figures = imported.entry.figures.items()
    print_table(
        ["figure", "value", "status", "spread", "how"],
        [
            [
                key,
                figure.text,
                figure.status,
                "-" if figure.spread is None else f"{figure.spread:.1%}",
                figure.note or figure.source,
            ]
            for key, figure in figures
        ],
    )
    if imported.met:
        sys.stdout.write("\n")
        rows = [
            [
                row.point.text(),
                format_rate(row.point.cell.bytes_per_s),
                format_rate(row.curve_bytes_per_s),
                f"{row.error:+.0%}",
            ]
            for row in imported.met
        ]
        print_table(["point", "measured", "curve", "error"], rows, numbers_from=1)
