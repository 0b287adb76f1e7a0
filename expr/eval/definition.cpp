#include "expr/eval/definition.h"

#include "expr/eval/meaning.h"

namespace xhat {

Arrays evaluate_by_definition(const Program& p, const Arrays& inputs, const DimValues& dims, Rounding rounding) {
  return evaluation::Meaning(p, inputs, dims, rounding).run();
}

}  // namespace xhat
