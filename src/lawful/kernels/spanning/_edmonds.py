"""The best spanning arborescence in plain Python and numpy: Edmonds without recursion, O(N^2)."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_heads"]

Array = NDArray[np.float64]
Cost = NDArray[np.int64]


def best_heads(score: Array, cost: Cost) -> list[int]:
    """Heads of the words of the best tree.

    Args:
        score: (N, N + 1), [word, head], head N is the root; finite.
        cost: Same shape. Trees are compared by total cost first (smaller wins), then by score, so
            that forbidden arcs and surplus root arcs need no large negative numbers.

    Returns:
        N heads in 0..N. Ties go to the lower head.
    """
    return _Graph(score.copy(), cost.copy()).solve()


class _Graph:
    """Slots 0..N-1 are words or contracted cycles (in the slot of a member), slot N the root."""

    def __init__(self, score: Array, cost: Cost) -> None:
        self.n = n = len(score)
        self.score, self.cost = score, cost
        self.head = np.tile(np.arange(n + 1), (n, 1))  # the arc between words behind an entry
        self.tail = np.tile(np.arange(n)[:, None], (1, n + 1))
        self.alive = np.ones(n + 1, dtype=bool)
        self.state = [0] * (n + 1)  # 0 new, 1 on the current path, 2 finished
        self.best = [0] * n
        self.node = list(range(n))
        self.parent = [-1] * n
        self.arc = [(-1, -1)] * n  # chosen (head, tail) into each node of the forest

    def solve(self) -> list[int]:
        for start in range(self.n):
            if self.alive[start] and self.state[start] != 2:
                self._grow(start)
        return self._expand()

    def _choose(self, m: int) -> int:
        usable = self.alive.copy()
        usable[m] = False
        least = self.cost[m][usable].min()
        usable &= self.cost[m] == least
        h = int(np.where(usable, self.score[m], -np.inf).argmax())
        self.best[m] = h
        self.arc[self.node[m]] = (int(self.head[m, h]), int(self.tail[m, h]))
        return h

    def _grow(self, start: int) -> None:
        """Follows best heads; a cycle becomes one node; ends at the root or a finished node."""
        path = [start]
        self.state[start] = 1
        while True:
            h = self._choose(path[-1])
            if h == self.n or self.state[h] == 2:
                break
            if self.state[h] == 0:
                self.state[h] = 1
                path.append(h)
                continue
            cycle = path[path.index(h) :]
            del path[path.index(h) :]
            path.append(self._contract(cycle))
        for m in path:
            self.state[m] = 2

    def _contract(self, cycle: list[int]) -> int:
        keep, new = cycle[0], len(self.parent)
        self.parent.append(-1)
        self.arc.append((-1, -1))
        for c in cycle:
            self.parent[self.node[c]] = new
            self.score[c] -= self.score[c, self.best[c]]
            self.cost[c] -= self.cost[c, self.best[c]]
        for c in cycle:
            self.alive[c] = c == keep
        for c in cycle[1:]:
            self._take_better((c, slice(None)), (keep, slice(None)))
            self._take_better((slice(None), c), (slice(None), keep))
        self.node[keep] = new
        return keep

    def _take_better(
        self, source: tuple[int | slice, ...], target: tuple[int | slice, ...]
    ) -> None:
        s, t, c, d = self.score[source], self.score[target], self.cost[source], self.cost[target]
        better = (c < d) | ((c == d) & (s > t))
        for x in (self.score, self.cost, self.head, self.tail):
            x[target] = np.where(better, x[source], x[target])

    def _expand(self) -> list[int]:
        """Outermost nodes first: the arc into a node opens the cycles around its tail."""
        heads, opened = [0] * self.n, [False] * len(self.parent)
        for v in reversed(range(len(self.parent))):
            if opened[v]:
                continue
            h, x = self.arc[v]
            heads[x] = h
            while x != v:
                opened[x] = True
                x = self.parent[x]
            opened[v] = True
        return heads
