"""What running costs: money over a life and as energy, power by load, and the wear of flash. Pure laws, no prices."""

from typing import Final

SECONDS_PER_DAY: Final = 86_400.0
SECONDS_PER_YEAR: Final = 365.25 * SECONDS_PER_DAY
JOULES_PER_KWH: Final = 3.6e6


def capital_per_s(price: float, *, years: float, utilisation: float) -> float:
    """Return what parts of *price* cost a second of use, in its currency.

    Straight-line amortisation over *years*, of which they are in use the share *utilisation*, above 0 up to 1: time in
    which nothing runs is paid by the time in which something does.
    """
    return price / (years * SECONDS_PER_YEAR * utilisation)


def energy_cost(joules: float, *, pue: float, price_per_kwh: float) -> float:
    """Return what energy at the plugs of the parts costs, in the currency of *price_per_kwh*.

    *pue* is the energy of the building over that of its computers (power usage effectiveness, ISO/IEC 30134-2).
    """
    return joules * pue / JOULES_PER_KWH * price_per_kwh


def power_w(idle_w: float, busy_w: float, busy: float) -> float:
    """Return the mean power of a part that is at work for the share *busy* of the time [W].

    Straight between idle and busy: Fan, Weber, Barroso, Power provisioning for a warehouse-sized computer, ISCA 2007.
    """
    return idle_w + (busy_w - idle_w) * min(max(busy, 0.0), 1.0)


def busy_share(
    *, read_bytes: float, write_bytes: float, read_bytes_per_s: float, write_bytes_per_s: float, time_s: float
) -> float:
    """Return the share of *time_s* that a device of these rates needs for these bytes, 0 to 1."""
    if time_s <= 0.0:
        return 0.0
    return min((read_bytes / read_bytes_per_s + write_bytes / write_bytes_per_s) / time_s, 1.0)


def rated_bytes(capacity_bytes: float, *, dwpd: float, life_s: float) -> float:
    """Return the bytes that flash is rated to be written with: *dwpd* times its capacity a day for its life [B].

    JESD218: the rating holds for the load of JESD219, mostly random writes of 4 KiB.
    """
    return capacity_bytes * dwpd * life_s / SECONDS_PER_DAY


def wear_out_s(
    written_bytes_per_s: float, *, endurance_bytes: float, write_amplification: float, rated_write_amplification: float
) -> float | None:
    """Return the time until flash is worn out [s]; None where nothing is written.

    *endurance_bytes* are of a load that the flash itself writes *rated_write_amplification* times; these are written
    *write_amplification* times. Cells take what is written to them, whoever had it written.
    """
    flash_bytes_per_s = written_bytes_per_s * write_amplification
    if flash_bytes_per_s <= 0.0:
        return None
    return endurance_bytes * rated_write_amplification / flash_bytes_per_s
