"""Costs that the engine's 32-bit sums cannot take as they are (contract 3.6)."""


def scoring(value):
    def do_score(self, hosts_ids, vm_id, args_map):
        return [(hosts_ids[0], value), (hosts_ids[1], 1)]

    return do_score


class huge:
    do_score = scoring(10**30)


class huge_negative:
    do_score = scoring(-(10**30))


class just_too_large:
    do_score = scoring(10**9 + 1)


class huge_for_one:
    def do_score(self, hosts_ids, vm_id, args_map):
        return [(hosts_ids[0], 10**30)]
