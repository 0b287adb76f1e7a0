// Access relations: which elements of one tensor an element of another needs. `explain --relations` and the classic policy ask them.
//
// A relation is an index map from the output's axes d to an element of the input. Range variables s stand for several elements, one per value;
// run-time variables rt for numbers that data decide. Relations are composed through all definitions between output and input.
//
//   C[i,j] = sum(k: A[i,k]*B[j,k])        E needs   A (d0, d1)[s0] -> (d0, s0)
//   E[i,j] = sum(k: C[i,k]*D[j,k])                  B (d0, d1)[s0, s1] -> (s0, s1)      all of it
//                                                   D (d0, d1)[s0] -> (d1, s0)
//
// Cost decides what to fuse. In a pure program any set of definitions may be fused, if no path leaves it and enters it again. The relations of an
// op give its kind (fusion/relations/forward_graph); there is no registry.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "expr/core/program.h"
#include "expr/index/affine_elements.h"
#include "expr/index/dims.h"
#include "fusion/relations/forward_graph.h"

namespace xhat::fusion {

struct Relation {
  TensorId output, input;
  std::vector<AxisRange> axes;     // d0, d1, ...: of the output
  std::vector<AxisRange> ranges;   // s0, s1, ...
  std::vector<AxisRange> runtime;  // rt0, rt1, ...
  std::vector<Id> conditions;      // under which the element is needed
  std::vector<Id> indices;         // one per dimension of the input
  bool operator==(const Relation&) const = default;
};

// The relations of one definition's own reads, in the order of the reads.
std::vector<Relation> direct_relations(const Program& p, const Definition& d);
// Composed through all definitions between, without duplicates, indices simplified. `input` may be a defined tensor.
std::vector<Relation> relations(const Program& p, TensorId output, TensorId input);
// The relations to every tensor that the output depends on.
std::map<TensorId, std::vector<Relation>> relations_from(const Program& p, TensorId output);

// "(d0, d1)[s0]{rt0} -> (d0, s0 - rt0)"
std::string to_text(const Program& p, const Relation& r);
// The values of each axis and variable under the conditions: "d0 in [0, 3], s0 in [0, 15]". Needs sizes for all dims.
std::string domain_text(const Program& p, const Relation& r, const DimValues& sizes);

// The elements of the input that a tile of the output needs; a tile is (first, last) per axis. None: it needs nothing, or isl has no answer.
struct Footprint {
  Box box;
  int64_t elements;
};
std::optional<Footprint> footprint(const Program& p, std::span<const Relation> relations, const Box& tile,
                                   const DimValues& sizes);

// How often each element of the producer is computed if every tile of the consumer, of these extents, computes the elements that it needs. 1:
// tiles share none.
std::optional<double> recompute_factor(const Program& p, TensorId consumer, TensorId producer,
                                       std::span<const int64_t> tile, const DimValues& sizes);

// Per dimension of the input: its index moves with one axis of the output by `stride` elements per step, within a window. x[2*i + r - 1] with r
// in 0..3 moves with i by 2 in a window of 3. None: the index depends on no axis, on several, or not linearly.
struct Alignment {
  size_t axis;
  int64_t stride;
  int64_t window;  // 1: no halo
};
std::vector<std::optional<Alignment>> alignment(const Program& p, const Relation& r, const DimValues& sizes);

// Why these definitions cannot be one kernel: a value leaves the set and comes back. None: they can.
std::optional<std::string> fusion_obstacle(const Program& p, std::span<const TensorId> definitions);

// elemwise: reads the same place of every operand. broadcast: places in order, some axes left out. injective: one place per operand, anywhere.
// comm_reduce: a reduction over a tensor that has an element for every step of every result. out_fusable: any other
// reduction: products, convolutions, poolings. opaque: calls, scatters, reductions inside maps.
OpKind kind_of(const Program& p, const Definition& d);

// The program as a graph: inputs as parameters, definitions in order as ops with their kinds, outputs as results.
DataflowGraph dataflow(const Program& p);
// The same, with some sets of definitions as one opaque op each. No path may leave such a node and enter it again.
struct DataflowNode {
  std::string name;
  std::vector<TensorId> members;
};
DataflowGraph dataflow(const Program& p, const std::vector<DataflowNode>& nodes);
// A definition between members of a node belongs to the node.
DataflowNode convex(const Program& p, DataflowNode node);

}  // namespace xhat::fusion
