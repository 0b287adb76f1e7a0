// Which elements of one tensor an element of another needs, and what follows from it: the one engine behind fusion.
//
// A relation is an index map, from the output's axes d, through range variables s (one input element per value) and
// run-time variables rt (numbers that data decide), to an element of the input; composed through every definition between.
//
//   C[i,j] = sum(k: A[i,k]*B[j,k])        E needs   A (d0, d1)[s0] -> (d0, s0)
//   E[i,j] = sum(k: C[i,k]*D[j,k])                  B (d0, d1)[s0, s1] -> (s0, s1)      all of it
//                                                   D (d0, d1)[s0] -> (d1, s0)
//
// What to fuse is a choice of cost; what may be fused is not much of a question in a pure program: any set of definitions
// that no way leaves and enters again. The kind of an op (fusion/relations/forward_graph) is read off its relations, not registered.
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

// Of what one definition reads itself, in the order of its reads.
std::vector<Relation> direct_relations(const Program& p, const Definition& d);
// Through all definitions between, equal ones once, indices simplified. input may be a defined tensor.
std::vector<Relation> relations(const Program& p, TensorId output, TensorId input);
// To every tensor that the output depends on.
std::map<TensorId, std::vector<Relation>> relations_from(const Program& p, TensorId output);

// "(d0, d1)[s0]{rt0} -> (d0, s0 - rt0)"
std::string to_text(const Program& p, const Relation& r);
// The values of each axis and variable under the conditions: "d0 in [0, 3], s0 in [0, 15]". Needs sizes for all dims.
std::string domain_text(const Program& p, const Relation& r, const DimValues& sizes);

// What a tile of the output, first and last along each axis, needs of the input. None: nothing, or out of reach.
struct Footprint {
  Box box;
  int64_t elements;
};
std::optional<Footprint> footprint(const Program& p, std::span<const Relation> relations, const Box& tile,
                                   const DimValues& sizes);

// How often each element of a producer is computed when every tile of the consumer, of these extents, computes for itself
// what it needs of it: 1 for what tiles do not share.
std::optional<double> recompute_factor(const Program& p, TensorId consumer, TensorId producer,
                                       std::span<const int64_t> tile, const DimValues& sizes);

// Along dimension i of the input the element needed moves with one axis of the output, stride elements a step, within a
// window: x[2*i + r - 1] with r in 0..3 moves with i by 2 in a window of 3. None: it is needed whole, or moves with two.
struct Alignment {
  size_t axis;
  int64_t stride;
  int64_t window;  // 1: no halo
};
std::vector<std::optional<Alignment>> alignment(const Program& p, const Relation& r, const DimValues& sizes);

// May these definitions be one kernel? None: yes. Else why not: a value leaves the set and comes back into it.
std::optional<std::string> fusion_obstacle(const Program& p, std::span<const TensorId> definitions);

// elemwise: the same place of everything it reads. broadcast: places in order, some axes left out. injective: any one
// place. comm_reduce: a reduction over a tensor that has an element for every step of every result. out_fusable: any other
// reduction: products, convolutions, poolings. opaque: calls, sums that data scatter.
OpKind kind_of(const Program& p, const Definition& d);

// The inputs as parameters, then the definitions as ops with such kinds, in order; the outputs as results.
DataflowGraph dataflow(const Program& p);
// The same where some definitions together are one op, which is opaque. No way may leave such a node and enter it again.
struct DataflowNode {
  std::string name;
  std::vector<TensorId> members;
};
DataflowGraph dataflow(const Program& p, const std::vector<DataflowNode>& nodes);
// What stands between members of a node belongs to it.
DataflowNode convex(const Program& p, DataflowNode node);

}  // namespace xhat::fusion
