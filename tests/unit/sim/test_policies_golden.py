"""Each policy on a few accesses, worked out by hand. A cache is written from the next to go to the last to go."""

from policy_kit import Cache, evicted

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.making import make_policy


def test_fifo() -> None:
    # 1 2 3 | hit 1 changes nothing | 4 takes 1 | 1 takes 2 | hit 3 | 5 takes 3 | 2 takes 4 | 3 takes 1
    assert evicted("fifo", 3, [1, 2, 3, 1, 4, 1, 3, 5, 2, 3]) == [1, 2, 3, 4, 1]


def test_lru() -> None:
    # 1 2 3 | hit 1: 2 3 1 | 4 takes 2: 3 1 4 | hit 3: 1 4 3 | 5 takes 1: 4 3 5 | hit 4: 3 5 4 | 1, 2 take 3, 5
    assert evicted("lru", 3, [1, 2, 3, 1, 4, 3, 5, 4, 1, 2]) == [2, 1, 3, 5]


def test_lru_tail_first_turns_round_what_comes_head_first() -> None:
    head_first, tail_first = make_policy("lru", PolicyContext()), make_policy("lru-tail-first", PolicyContext())
    for policy in (head_first, tail_first):
        policy.insert(range(3))
        policy.insert(range(10, 13))
        policy.touch(range(2))
    assert list(head_first.victims()) == [range(2, 3), range(10, 13), range(2)]
    assert list(tail_first.victims()) == [range(2, 1, -1), range(12, 9, -1), range(1, -1, -1)]


def test_mru() -> None:
    # 3 2 1 | 4 takes 3: 4 2 1 | hit 1: 1 4 2 | 5 takes 1: 5 4 2 | hit 2: 2 5 4 | 3 takes 2
    assert evicted("mru", 3, [1, 2, 3, 4, 1, 5, 2, 3]) == [3, 1, 2]


def test_lfu() -> None:
    # once: 1 2 3 | hits 1 1 2: once 3, twice 2, thrice 1 | 4 takes 3, 5 takes 4 | hit 5: twice 2 5 | 3 takes 2, for it
    # has had two uses for longer than 5 | 2 starts anew at one use: it takes 3 | 3 takes 2
    assert evicted("lfu", 3, [1, 2, 3, 1, 1, 2, 4, 5, 5, 3, 2, 3]) == [3, 4, 2, 3, 2]


def test_slru() -> None:
    # Two segments of 2: 1 2 fill the lower, 3 4 the upper.
    cache = Cache("slru", 4, segments=2)
    assert cache.access(1, 2, 3, 4) == []
    assert cache.order() == [1, 2, 3, 4]
    # Hit 1: up to the upper one, whose oldest, 3, falls back: 2 3 | 4 1. 5 takes 2: 3 5 | 4 1.
    assert cache.access(1, 5) == [2]
    assert cache.order() == [3, 5, 4, 1]
    # Hit 4: 3 5 | 1 4. Hit 5: 3 1 | 4 5. 6 takes 3, 7 takes 1, 8 takes 6: those used again stay.
    assert cache.access(4, 5, 6, 7, 8) == [3, 1, 6]
    assert cache.order() == [7, 8, 4, 5]


def test_slru_with_more_segments_leaves_less_room_for_what_is_new() -> None:
    # New blocks pass through the lowest segment once the others are full: 6 of 12 with two segments, 1 with twelve.
    two, twelve = Cache("slru", 12, segments=2), Cache("slru", 12, segments=12)
    for cache in (two, twelve):
        cache.access(*range(12), *range(20, 40))
    assert two.resident == {*range(6, 12), *range(34, 40)}
    assert twelve.resident == {*range(1, 12), 39}


def test_clock() -> None:
    # 1 2 3, hit 1 | 4: 1 goes round (2 3 1), 2 goes: 3 1 4 | hit 3 | 5: 3 goes round (1 4 3), 1 goes: 4 3 5
    # hits 4 5 | 6: 4 goes round, 3 goes: 5 4 6, 5 with its bit | 7: 5 goes round, 4 goes
    assert evicted("clock", 3, [1, 2, 3, 1, 4, 3, 5, 4, 5, 6, 7]) == [2, 1, 3, 4]


def test_sieve() -> None:
    # The figure of the paper: A to G from old to new, A B G visited, the hand at A. H takes C (A and B lose their bit),
    # A is hit, D is hit, I: the hand passes D and takes E, J takes F.
    letters = {letter: number for number, letter in enumerate("ABCDEFGHIJ")}
    cache = Cache("sieve", 7)
    cache.access(*(letters[letter] for letter in "ABCDEFGABG"))
    gone = [cache.access(letters[letter]) for letter in "HADIJ"]
    assert gone == [[letters["C"]], [], [], [letters["E"]], [letters["F"]]]
    # The hand is at G, which is visited: it loses its bit; H goes, I and J; then it begins again at A, which has one.
    assert cache.access(20, 21, 22) == [letters["H"], letters["I"], letters["J"]]
    # 20 21 22 are newer, and the hand is at 20.
    assert cache.order() == [20, 21, 22, *(letters[letter] for letter in "BDGA")]


def test_s3_fifo() -> None:
    # Of 10, the small queue holds 1 and the main one 9: before the first eviction 0 enters the small, 1 to 9 the main.
    cache = Cache("s3fifo", 10)
    assert cache.access(*range(10)) == []
    assert cache.order() == list(range(10))
    # 10 takes 0 of the small queue (not hit): a ghost. 10 is in the small queue. Hits 10 10, 1.
    assert cache.access(10, 10, 10, 1) == [0]
    # 11: 10 was hit twice and moves to the main queue; the small one is empty, so the main one gives up: 1 was hit and
    # enters anew, 2 goes.
    assert cache.access(11) == [2]
    # 0 is a ghost: it enters the main queue; 11, never hit, goes.
    assert cache.access(0) == [11]
    # The small queue is empty: 3 goes. 12 is in the small queue and goes next, for main holds 9 and the small one 1.
    assert cache.access(12, 13) == [3, 12]
    assert cache.order() == [13, 4, 5, 6, 7, 8, 9, 10, 1, 0]


def test_2q() -> None:
    # Of 8, A1in holds 2 and A1out 4. All are new, so A1in holds all 8; a hit there changes nothing.
    cache = Cache("2q", 8)
    assert cache.access(*range(8), 0) == []
    # 8 and 9 take 0 and 1, which become names. 0 comes back: it takes 2 and is kept. A1in: 3 to 9.
    assert cache.access(8, 9, 0) == [0, 1, 2]
    # 3 4 5 go for 1 (kept), 2 (kept) and 10. A1in: 6 7 8 9 10, Am: 0 1 2.
    assert cache.access(1, 2, 10) == [3, 4, 5]
    # Names: 3 4 5. Hit 0: Am is 1 2 0. 3 4 5 come back for 6 7 8: Am 1 2 0 3 4 5, A1in 9 10, as much as it may hold.
    assert cache.access(0, 3, 4, 5) == [6, 7, 8]
    assert cache.order() == [1, 2, 0, 3, 4, 5, 9, 10]
    # Now Am gives up; what leaves it leaves no name: 1 enters A1in again, which is over its share and gives up 9.
    assert cache.access(11, 1) == [1, 9]


def test_lru_k() -> None:
    # Uses: 1 at 1 4, 2 at 2 5, 3 at 3. 4 takes 3 (one use). 3 comes back at 7: its use at 3 is remembered; it takes 4.
    # Then the last but one uses are: 1 at 1, 2 at 2, 3 at 3. 5 takes 1. Hit 2 (5 and 9): 5 has one use only and goes
    # for 6; 6 goes for 7.
    accesses = [1, 2, 3, 1, 2, 4, 3, 5, 2, 6, 7]
    assert evicted("lru-k", 3, accesses) == [3, 4, 1, 5, 6]
    # Without memory 3 has one use after it came back, and goes for 5.
    assert evicted("lru-k", 3, accesses, remember=False) == [3, 4, 3, 5, 6]
    # With K = 1 it is LRU.
    assert evicted("lru-k", 3, accesses, k=1) == evicted("lru", 3, accesses)


def test_lru_k_looks_at_more_uses_with_a_larger_k() -> None:
    # 1 is used twice, then 2 three times: with K = 2 the last but one use of 1 is older; with K = 3 it has too few.
    # 3 is used three times first: the third last use is then the oldest that there is.
    accesses = [3, 3, 3, 2, 2, 2, 1, 1, 4]
    assert evicted("lru-k", 3, accesses, k=2) == [3]
    assert evicted("lru-k", 3, accesses, k=3) == [1]


def test_arc() -> None:
    # T1: 1 2 3 4. Hits 1 2: T1 3 4, T2 1 2.
    cache = Cache("arc", 4)
    assert cache.access(1, 2, 3, 4, 1, 2) == []
    # 5: p is 0, so T1 gives up 3 (a name in B1). T1 4 5. 6 takes 4. T1 5 6, B1 3 4.
    assert cache.access(5, 6) == [3, 4]
    # 3 is in B1: p becomes 1. |T1| = 2 > 1: 5 goes. T1 6, T2 1 2 3, B1 4 5.
    assert cache.access(3) == [5]
    # 4 is in B1: p becomes 2. |T1| = 1: T2 gives up 1 (B2). T1 6, T2 2 3 4, B1 5, B2 1.
    assert cache.access(4) == [1]
    # 1 is in B2: p falls to 1. |T1| = p, and 1 was in B2: T1 gives up 6. T2 2 3 4 1, B1 5 6.
    assert cache.access(1) == [6]
    assert cache.order() == [2, 3, 4, 1]
    # 7 is new: |T1| = 0, so T2 gives up 2; 8: |T1| = 1 is not over p = 1, so 3 goes.
    assert cache.access(7, 8) == [2, 3]


def test_arc_as_in_vllm() -> None:
    # As above up to B1 3 4, T1 5 6, T2 1 2. The target is 0 and |T1| >= 0: T1 gives up.
    cache = Cache("arc-vllm", 4)
    assert cache.access(1, 2, 3, 4, 1, 2, 5, 6) == [3, 4]
    # 3 is a name: the target is 1. T1 gives up 5. 3 enters T1, where ARC would have put it into T2: T1 6 3, T2 1 2.
    assert cache.access(3) == [5]
    # 7: |T1| = 2 >= 1: 6. 8: 3, although it had been asked for again.
    assert cache.access(7, 8) == [6, 3]
    # 4 5 6 are names: the target goes to 4 (by 1 each), above |T1| = 2: T2 gives up 1 and 2, and T1 the rest.
    assert cache.access(4, 5, 6) == [7, 8, 1]


def test_lirs() -> None:
    # Of 4, 3 are hot and 1 is cold: 1 2 3 hot, 4 cold. 5 takes 4, whose name stays in S: 1 2 3 4 5.
    cache = Cache("lirs", 4)
    assert cache.access(1, 2, 3, 4, 5) == [4]
    # 4 comes back: it takes 5 and becomes hot; 1, the oldest hot one, turns cold. S: 2 3 5 4.
    assert cache.access(4) == [5]
    assert cache.order() == [1, 2, 3, 4]
    # Hit 1, cold and not in S: it stays cold, and is in S now. Hit 1 again: hot; 2 turns cold. S: 3 5 4 1.
    assert cache.access(1) == []
    assert cache.order() == [1, 2, 3, 4]
    assert cache.access(1) == []
    assert cache.order() == [2, 3, 4, 1]
    # 6 takes 2. Hit 3: what is above it in S is hot or a name: S 5.. is pruned to 4 1 6 3. 5 is no name any more:
    # it takes 6 and is cold.
    assert cache.access(6, 3, 5) == [2, 6]
    assert cache.order() == [5, 4, 1, 3]


def test_w_tinylfu() -> None:
    # Of 4, the window holds 1, the main part 3, of which 2 protected. All enter the window first.
    cache = Cache("w-tinylfu", 4)
    assert cache.access(1, 2, 3, 4) == []
    # Hits 1 2: twice used. 5: 3 4 and then 1 (the window by last use is 3 4 1 2) enter the main part; 2 stands against
    # 3: used more, it takes its place. Main: 4 1 2, window: 5.
    assert cache.access(1, 2, 5) == [3]
    # 6: 5 against 4: both once, so 5 goes. Main 4 1 2, window 6.
    assert cache.access(6) == [5]
    # Hit 1: protected. 7: 6 against 4: 6 goes. Again 6: used twice now; 7 against 4: 7 goes. 8: 6 against 4: 4 goes.
    assert cache.access(1, 7, 6, 8) == [6, 7, 4]
    assert cache.order() == [8, 2, 6, 1]


def test_gdsf() -> None:
    # H is uses + L. 1 2 3 at 1, hit 1: 2. 4 takes 2 and L = 1: 3 at 1, 1 at 2, 4 at 2. 5 takes 3: 5 at 2. 6: of those
    # at 2, 1 is the oldest and goes, although it was used twice: L has caught up.
    assert evicted("gdsf", 3, [1, 2, 3, 1, 4, 5, 6]) == [2, 3, 1]
    # LFU keeps it for ever.
    assert evicted("lfu", 3, [1, 2, 3, 1, 4, 5, 6]) == [2, 3, 4]


def test_gdsf_kv_keeps_what_is_dear_to_compute() -> None:
    # A block at position p takes 1 + p seconds: 1 costs 10, 2 costs 2, 3 costs 1. 4 (cost 1) takes 3, L = 1; 5 takes 2
    # and 4, which are both at 2, in the order of their use: first 2.
    positions = {1: 9, 2: 1}
    assert evicted("gdsf-kv", 3, [1, 2, 3, 4, 5, 6], positions=positions) == [3, 2, 4]
    # Two hits make 3 worth 3: 2 goes first.
    assert evicted("gdsf-kv", 3, [1, 2, 3, 3, 3, 4], positions=positions) == [2]


def test_gdsf_kv_net_takes_off_what_reading_costs() -> None:
    # Reading takes 0.5 s. Hits: 1 (position 1, saves 2 or net 1.5) once, 2 (position 0, saves 1 or net 0.5) three
    # times, used four times: worth 4 gross and 2 net; 1, used twice: 4 gross and 3 net, and older.
    accesses = [1, 1, 2, 2, 2, 2, 3]
    assert evicted("gdsf-kv", 2, accesses, positions={1: 1}) == [1]
    assert evicted("gdsf-kv-net", 2, accesses, positions={1: 1}) == [2]


def test_gdsf_kv_net_gives_nothing_for_what_is_quicker_to_compute() -> None:
    # 2 takes 1 s to compute and 5 s to read: worth nothing however often it is used.
    assert evicted("gdsf-kv-net", 2, [1, 2, 2, 2, 3], positions={1: 9}, known={"reload_s": 5.0}) == [2]


def test_lineage_keeps_what_others_continue() -> None:
    policy = make_policy("lineage", PolicyContext())
    policy.insert(range(3))
    policy.insert(range(10, 12), parent=0)
    policy.touch(range(1, 3))
    # The leaves are 2 and 11; 11 was used longer ago. Then 10, with its old use; 2 before 1, and 0 last of all.
    assert [key for run in policy.victims() for key in run] == [11, 10, 2, 1, 0]


def test_multi_lru() -> None:
    # Hits 1: twice used, on the second list: 2 3 1. 4 takes 2, 5 takes 3, 6 takes 4: 1 stays.
    cache = Cache("multi-lru", 3)
    assert cache.access(1, 2, 3, 1, 4, 5, 6) == [2, 3, 4]
    # 2 comes back, used twice, on the second list behind 1: 6 1 2. 7 takes 6, 8 takes 7.
    assert cache.access(2, 7, 8) == [5, 6, 7]
    # Six uses: the third list. Hit 2: behind 1 on the second; then 1 is above it.
    assert cache.access(1, 1, 1, 1, 2) == []
    assert cache.order() == [8, 2, 1]


def test_priority_lru() -> None:
    # 1 and 4 begin prompts. 1 2 3: priority 100 35 35. 4 takes 2; 5 takes 3; 6 takes 5; 7: 6. 1 and 4 stay.
    positions = {1: 0, 2: 1, 3: 2, 4: 0, 5: 1, 6: 1, 7: 1, 8: 2, 9: 3}
    accesses = [1, 2, 3, 4, 5, 6, 7]
    assert evicted("priority-lru", 3, accesses, positions=positions, head_chunks=1) == [2, 3, 5, 6]
    # With two chunks of each head, 5 and 6 have the priority too: 3 goes for 4, and then the oldest, 1.
    assert evicted("priority-lru", 3, accesses[:5], positions=positions, head_chunks=2) == [3, 1]
    # A priority below that of the rest puts the head first.
    assert evicted("priority-lru", 3, accesses[:4], positions=positions, head_chunks=1, head_priority=0) == [1]
    # 3 s after its last use at 1 s, the priority of 1 ends: at 4 s 1 is the oldest of equals.
    assert evicted("priority-lru", 3, accesses[:4], positions=positions, head_chunks=1, duration_s=3.0) == [1]
    assert evicted("priority-lru", 3, accesses[:4], positions=positions, head_chunks=1, duration_s=3.5) == [2]


def test_ttl_counts_from_the_store() -> None:
    # Stored at 1 s and used at 2 and 3 s: gone 3 s after the store, at 4 s.
    cache = Cache("ttl", 9, ttl_s=3.0)
    cache.access(1, 1, 1, 1)
    assert cache.hits == [1, 1]
    # The first to expire goes first, used or not: 1 2, hit 1, 3 takes 1.
    assert evicted("ttl", 2, [1, 2, 1, 3], ttl_s=10.0) == [1]


def test_a_sliding_ttl_counts_from_the_last_use() -> None:
    cache = Cache("ttl-sliding", 9, ttl_s=3.0)
    cache.access(1, 1, 1, 1, 2, 3, 1)
    assert cache.hits == [1, 1, 1]  # the fourth use is at 4 s, and 1 is gone at 7 s
    assert evicted("ttl-sliding", 2, [1, 2, 1, 3], ttl_s=10.0) == [2]


def test_workload_aware_keeps_the_category_that_comes_back() -> None:
    # Blocks of turn 1 (1 to 3) are never used again, those of turn 2 (11 to 13) every 4 s. By the time of the first
    # eviction turn 2 has been reused six times, so the blocks of turn 1 go first, though they are younger.
    turns = dict.fromkeys(range(1, 10), 1) | dict.fromkeys(range(11, 14), 2)
    accesses = [11, 12, 13, 1, 11, 12, 13, 2, 11, 12, 13, 3, 4, 5]
    assert evicted("workload-aware", 6, accesses, turns=turns, window_s=10.0) == [1, 2]
    # LRU takes the oldest, whatever it is.
    assert evicted("lru", 6, [*accesses, 6, 7]) == [1, 2, 11, 12]
    assert evicted("workload-aware", 6, [*accesses, 6, 7], turns=turns, window_s=10.0) == [1, 2, 3, 4]


def test_workload_aware_looks_no_further_than_its_window() -> None:
    # Turn 1 comes back after 1 s each time, turn 2 after 6 s; then both rest. In the next second the slow one is
    # likelier to come; over a thousand seconds only how often they come back at all counts, and turn 1 was used more.
    turns = {1: 1, 2: 2}
    accesses = [1, 1, 2, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8]
    turns |= {8: 3}
    short = Cache("workload-aware", 9, turns=turns, window_s=1.0)
    long = Cache("workload-aware", 9, turns=turns, window_s=1000.0)
    short.access(*accesses)
    long.access(*accesses)
    assert short.order().index(1) < short.order().index(2)
    assert long.order().index(2) < long.order().index(1)


def test_belady() -> None:
    # 1 2 3; 4 takes 3 (used never again); hit 1; hit 2; 5 takes 1 (2 at the end, 4 before that, 1 never); hits 4 2.
    assert evicted("belady", 3, [1, 2, 3, 4, 1, 2, 5, 4, 2]) == [3, 1]


def test_belady_takes_the_farthest_also_where_a_use_passed_it_by() -> None:
    # 1 is used at 2 by somebody who found it elsewhere: its next use is then the farthest.
    cache = Cache("belady", 2, future=[1, 2, 1, 3, 2, 2, 1])
    cache.access(1, 2)
    cache.now = 3
    assert cache.access(3) == [1]


def test_belady_prefix_keeps_the_head_while_the_tail_is_there() -> None:
    # The tail is used next, the head never (its tier lost it once): per block the head goes, by prefixes the tail.
    tail_next = {"future": [5, 5, 2, 2]}
    block, prefix = (Cache(name, 2, **tail_next) for name in ("belady", "belady-prefix"))  # type: ignore[arg-type]
    for cache in (block, prefix):
        cache.policy.insert(range(1 << 24, (1 << 24) + 1))
        cache.policy.insert(range(2 << 24, (2 << 24) + 1), parent=1 << 24)
    assert block.order() == [1, 2]
    assert prefix.order() == [2, 1]


def test_infinite_keeps_all_where_a_tier_gives_it_the_room() -> None:
    assert EVICTION.get("infinite").unbounded  # type: ignore[attr-defined]
    assert evicted("infinite", 3, [1, 2, 3, 1, 4]) == [1]  # in a full one it is FIFO
