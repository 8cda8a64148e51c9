// The best spanning arborescence of a dense graph in O(n^2) time, without recursion.
//
// Weights are compared in the order (forbidden arcs, arcs from the root if only one may be used,
// score): minus infinity and the single root become counts, and no large constant meets a score.
#pragma once

#include "trees.h"

namespace lawful::trees {

struct Weight {
  int64_t cost;  // fewer is better, whatever the score
  double score;
};
inline bool operator>(Weight a, Weight b) {
  return a.cost != b.cost ? a.cost < b.cost : a.score > b.score;
}
inline Weight operator-(Weight a, Weight b) { return {a.cost - b.cost, a.score - b.score}; }

// Nodes are slots: words 0..n-1 and the root n. A contracted cycle lives on in the slot of its first
// member; `forest` remembers the contractions.
class Edmonds {
 public:
  explicit Edmonds(int64_t n)
      : n_(n), weight_(static_cast<size_t>(n * (n + 1))), head_(weight_.size()),
        tail_(weight_.size()), node_(static_cast<size_t>(n)), alive_(static_cast<size_t>(n + 1), 1),
        state_(static_cast<size_t>(n + 1), 0), best_(static_cast<size_t>(n)) {}

  // The arc h -> m; h = n is the root.
  void set(int64_t h, int64_t m, Weight w) {
    const auto at = index(h, m);
    weight_[at] = w;
    head_[at] = static_cast<int32_t>(h);
    tail_[at] = static_cast<int32_t>(m);
  }

  // heads[m] in 0..n, n for the root.
  void solve(int64_t* heads) {
    for (int64_t m = 0; m < n_; ++m) {
      node_[m] = m;
      forest_.push_back({-1, -1, -1});
    }
    for (int64_t start = 0; start < n_; ++start) grow(start);
    expand(heads);
  }

 private:
  struct Node {
    int64_t parent, head, tail;  // the chosen arc into the node, between words
  };
  size_t index(int64_t h, int64_t m) const { return static_cast<size_t>(m * (n_ + 1) + h); }

  void choose_head(int64_t m) {
    int64_t best = -1;
    for (int64_t h = 0; h <= n_; ++h) {
      if (!alive_[h] || h == m) continue;
      if (best < 0 || weight_[index(h, m)] > weight_[index(best, m)]) best = h;
    }
    best_[m] = best;
    const auto at = index(best, m);
    forest_[node_[m]].head = head_[at];
    forest_[node_[m]].tail = tail_[at];
  }

  // Follows best heads from `start`; a cycle becomes one node; ends at the root or a finished node.
  void grow(int64_t start) {
    if (!alive_[start] || state_[start] == 2) return;
    std::vector<int64_t> path{start};
    state_[start] = 1;
    while (true) {
      const int64_t m = path.back();
      choose_head(m);
      const int64_t h = best_[m];
      if (h == n_ || state_[h] == 2) break;
      if (state_[h] == 0) {
        state_[h] = 1;
        path.push_back(h);
        continue;
      }
      std::vector<int64_t> cycle;
      do {
        cycle.push_back(path.back());
        path.pop_back();
      } while (cycle.back() != h);
      path.push_back(contract(cycle));
    }
    for (int64_t m : path) state_[m] = 2;
  }

  int64_t contract(const std::vector<int64_t>& cycle) {
    const int64_t keep = cycle[0];
    const auto parent = static_cast<int64_t>(forest_.size());
    forest_.push_back({-1, -1, -1});
    for (int64_t c : cycle) {
      forest_[node_[c]].parent = parent;
      const Weight chosen = weight_[index(best_[c], c)];
      for (int64_t x = 0; x <= n_; ++x) {
        if (alive_[x] && x != c) weight_[index(x, c)] = weight_[index(x, c)] - chosen;
      }
    }
    for (int64_t c : cycle) alive_[c] = c == keep;
    for (int64_t c : cycle) {
      if (c == keep) continue;
      for (int64_t x = 0; x <= n_; ++x) {
        if (!alive_[x] || x == keep) continue;
        take_better(index(x, c), index(x, keep));
        if (x != n_) take_better(index(c, x), index(keep, x));
      }
    }
    node_[keep] = parent;
    return keep;
  }

  void take_better(size_t from, size_t to) {
    if (!(weight_[from] > weight_[to])) return;
    weight_[to] = weight_[from];
    head_[to] = head_[from];
    tail_[to] = tail_[from];
  }

  // From the outermost node inwards: the arc into a node replaces the arcs of all nodes around its
  // tail, whose cycles open there.
  void expand(int64_t* heads) {
    std::vector<char> open(forest_.size(), 0);
    for (auto v = static_cast<int64_t>(forest_.size()) - 1; v >= 0; --v) {
      if (open[v]) continue;
      const Node& node = forest_[v];
      heads[node.tail] = node.head;
      for (int64_t x = node.tail; x != v; x = forest_[x].parent) open[x] = 1;
      open[v] = 1;
    }
  }

  int64_t n_;
  std::vector<Weight> weight_;  // weight_[m][h]
  std::vector<int32_t> head_, tail_;
  std::vector<int64_t> node_;
  std::vector<char> alive_, state_;
  std::vector<int64_t> best_;
  std::vector<Node> forest_;
};

}  // namespace lawful::trees
