// Which elements of the inputs each result needs, and what tiles of a consumer compute again of a producer, for people and tools:
// fusion/relations/needs.h of both directions of an op.
#pragma once
#include <string>
#include <vector>

#include "runtime/call/compile.h"

namespace xhat {

struct ExplainedNeed {
  std::string element;              // of a result: "E[i,j]"
  std::vector<std::string> needed;  // "A[i,0:8]", ...
};

struct ExplainedTile {
  std::vector<int64_t> tile;
  std::optional<int64_t> elements;
  std::optional<double> computed;
};

struct ExplainedProducer {
  std::string consumer, producer;
  std::vector<std::string> needed;  // of the producer
  std::string obstacle;             // to their sharing a kernel; empty: none
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

// Of the forward as it was written, calls expanded, and of the backward as the passes leave it.
ExplainedRelations explain_relations(const Program& op, const CompileOptions& options = {}, const DimValues& given = {});

std::string to_text(const ExplainedRelations& r);

}  // namespace xhat
