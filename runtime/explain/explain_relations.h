// Reports, for both directions of an op, which elements of the inputs each result needs, and how often tiles of a consumer compute elements
// of a producer (fusion/relations/needs.h).
#pragma once
#include <string>
#include <vector>

#include "runtime/call/compile.h"

namespace xhat {

struct ExplainedNeed {
  std::string element;              // an element of a result: "E[i,j]"
  std::vector<std::string> needed;  // "A[i,0:8]", ...
};

struct ExplainedTile {
  std::vector<int64_t> tile;
  std::optional<int64_t> elements;
  std::optional<double> computed;
};

struct ExplainedProducer {
  std::string consumer, producer;
  std::vector<std::string> needed;  // elements of the producer
  std::string obstacle;             // why they cannot share a kernel; empty: they can
  std::vector<ExplainedTile> tiles;
};

struct ExplainedRelations {
  struct Direction {
    std::string name;  // "forward", "backward"
    std::vector<ExplainedNeed> needs;
    std::vector<ExplainedProducer> producers;
  };
  std::string op;
  std::string text;
  DimValues sizes, nominal;  // as in Explanation
  std::vector<Direction> directions;
};

// The forward is the written one with calls expanded, the backward the one after all passes.
ExplainedRelations explain_relations(const Program& op, const CompileOptions& options = {}, const DimValues& given = {});

std::string to_text(const ExplainedRelations& r);

}  // namespace xhat
