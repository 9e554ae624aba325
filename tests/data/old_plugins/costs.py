"""Costs that the engine's 32-bit sums cannot take as they are (contract 3.6)."""

from decimal import Decimal
from fractions import Fraction


def scoring(value):
    def do_score(self, hosts_ids, vm_id, args_map):
        return [(hosts_ids[0], value), (hosts_ids[1], 1)]

    return do_score


class half_down:
    do_score = scoring(2.5)


class half_up:
    do_score = scoring(3.5)


class decimal:
    do_score = scoring(Decimal("7.4"))


class fraction:
    do_score = scoring(Fraction(22, 7))


class huge:
    do_score = scoring(10**30)


class huge_negative:
    do_score = scoring(-(10**30))


class just_too_large:
    do_score = scoring(10**9 + 1)


class not_a_number:
    do_score = scoring(float("nan"))


class infinite:
    do_score = scoring(float("inf"))


class none:
    do_score = scoring(None)


class word:
    do_score = scoring("12")
